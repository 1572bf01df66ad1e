package umad

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/rdmatest"
)

// FuzzReceive passes receive buffers, including the GRH, to the dispatcher of the port: agents get only datagrams
// that match their registration, unchanged.
func FuzzReceive(f *testing.F) {
	good := make([]byte, wire.GRHLen+Size)
	good[20], good[32+20-20] = 0x45, 1
	New(Header{Class: ClassCM, ClassVersion: 2, Method: MethodSend, AttrID: 0x10}, nil).Put(Header{})
	copy(good[wire.GRHLen:], New(Header{Class: ClassCM, ClassVersion: 2, Method: MethodSend, AttrID: 0x10}, []byte("x")))
	f.Add(good)
	f.Add(good[:wire.GRHLen])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, buf []byte) {
		dev, err := rdmatest.New(rdmatest.Config{RealTime: true}).NewDevice("a", netip.MustParseAddr("198.18.0.1"))
		if err != nil {
			t.Fatal(err)
		}
		p, err := Open(dev)
		if err != nil {
			t.Fatal(err)
		}
		handled := 0
		handler, err := p.Register(Registration{Class: ClassCM, ClassVersion: 2, Methods: []uint8{MethodSend},
			Handler: func(r *Received) {
				if r.MAD.Class() != ClassCM || r.MAD.Method() != MethodSend || len(r.MAD) != Size {
					t.Errorf("the agent got %x", r.MAD[:24])
				}
				handled++
			}})
		if err != nil {
			t.Fatal(err)
		}
		queue, err := p.Register(Registration{Class: ClassPerf, Methods: []uint8{MethodGet, MethodSet}, QueueLen: 1})
		if err != nil {
			t.Fatal(err)
		}
		before := bytes.Clone(buf)
		for range 3 {
			grh, mad, ok := split(buf)
			if !ok {
				continue
			}
			from := Address{Local: grh.DstIP(), Remote: grh.SrcIP()}
			p.share.dispatch(&Received{MAD: mad, From: from}, func() uint8 { return 1 })
		}
		if !bytes.Equal(buf, before) {
			t.Error("the datagram was changed")
		}
		if n := len(queue.queue); n > 1 || n == 1 && handled > 0 {
			t.Errorf("%d datagrams wait, %d were handled", n, handled)
		}
		for _, a := range []*Agent{handler, queue} {
			if err := a.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}
