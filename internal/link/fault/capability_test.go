package fault_test

import (
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/fault"
	"github.com/verbena-rdma/verbena/internal/link/mem"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// capable is a link with every capability, whose port has room for packets and a reader for shares.
type capable struct{ link.Link }

type capablePort struct {
	link.Port
	room    [64]byte
	counted int             // calls of PlaceCounted
	packets []link.RxPacket // for the next Recv
}

func (c capable) Ports() []link.Port { return []link.Port{&capablePort{Port: c.Link.Ports()[0]}} }

func (capable) Capabilities() link.Capabilities {
	return link.Capabilities{RecvBuffer: 4096, QPNs: []link.QPNRange{{First: 1, Last: 2}}}
}

func (p *capablePort) Capabilities() link.PortCapabilities {
	return link.PortCapabilities{Direct: p, ByReference: p, Lender: p}
}

func (p *capablePort) PlaceCounted(path *link.Path, qpn uint32, n int, _ link.Ack) ([]byte, bool) {
	p.counted++
	return p.Place(path, qpn, n, false)
}

type countsAll struct{}

func (countsAll) Count(*link.Path, uint32) bool { return true }

// Recv returns packets, all of them counted requests, and an acknowledgement.
func (p *capablePort) Recv(b *link.RxBatch) int {
	b.Packets, b.Acks = append(b.Packets[:0], p.packets...), b.Acks[:0]
	if len(p.packets) > 0 {
		b.Acks = append(b.Acks, link.Ack{PSN: 7})
	}
	for i := range b.Packets {
		b.Packets[i].Counter = countsAll{}
	}
	p.packets = nil
	return len(b.Packets) + len(b.Acks)
}

func (p *capablePort) Place(_ *link.Path, _ uint32, n int, _ bool) ([]byte, bool) {
	return p.room[:n], true
}
func (*capablePort) Train(*link.Path, uint32) int               { return 100 }
func (*capablePort) Publish()                                   {}
func (*capablePort) Reads(*link.Path, uint32, *link.Share) bool { return true }
func (*capablePort) Revoke(*link.Path)                          {}
func (*capablePort) Lend(size int) []byte                       { return make([]byte, size) }
func (*capablePort) Renew([]byte, bool) bool                    { return true }
func (p *capablePort) PlaceRef(_ *link.Path, _ uint32, head int, _ *link.Share, _ int64, _ int) []byte {
	return p.room[:head]
}

// A link with faults has the capabilities of the link below, and does not use the direct ways while it injects faults.
func TestCapabilities(t *testing.T) {
	inner, err := mem.NewFabric(mem.Config{}).Open([]netip.Addr{addrA}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if c := fault.Wrap(inner, fault.Config{}).Ports()[0].Capabilities(); c != (link.PortCapabilities{}) {
		t.Errorf("capabilities %+v of a port without any", c)
	}
	l := fault.Wrap(capable{inner}, fault.Config{})
	if c := l.Capabilities(); c.RecvBuffer != 4096 || len(c.QPNs) != 1 {
		t.Errorf("capabilities %+v", c)
	}
	c := l.Ports()[0].Capabilities()
	check := func(want bool) {
		t.Helper()
		b, mine := c.Direct.Place(nil, 1, 8, false)
		if (b != nil) != want || mine != want {
			t.Errorf("Place: %v, %v; want a place: %v", b, mine, want)
		}
		if _, mine := c.Direct.Place(nil, 1, 8, true); !mine {
			t.Error("a train was sent back to the batch")
		}
		if n := c.Direct.Train(nil, 1); (n != 0) != want {
			t.Errorf("Train: %d", n)
		}
		if got := c.ByReference.Reads(nil, 1, nil); got != want {
			t.Errorf("Reads: %v, want %v", got, want)
		}
		if b := c.ByReference.PlaceRef(nil, 1, 8, nil, 0, 0); (b != nil) != want {
			t.Errorf("PlaceRef: %v; want a place: %v", b, want)
		}
	}
	check(true)
	if got := c.Lender.Lend(6); len(got) != 6 {
		t.Errorf("Lend: %d bytes", len(got))
	}
	l.SetFaults(fault.Faults{Loss: 1}, fault.Faults{})
	check(false)
}

// Requests are counted, and acknowledged in this way, only while there are no faults that apply to acknowledgements.
func TestCountedRequests(t *testing.T) {
	inner, err := mem.NewFabric(mem.Config{}).Open([]netip.Addr{addrA}, 1)
	if err != nil {
		t.Fatal(err)
	}
	below := &capablePort{Port: inner.Ports()[0]}
	l := fault.Wrap(onePort{capable{inner}, below}, fault.Config{})
	p := l.Ports()[0]
	d := p.Capabilities().Direct
	packet := make([]byte, wire.BTHLen)
	wire.BTH(packet).Put(wire.RC|wire.SendOnly, 0, 0xFFFF, 7, 1, 0)
	for _, c := range []struct {
		name       string
		send, recv fault.Faults
		mine       bool // a place is found
		counted    int
		packets    int
		acked      bool // received requests can be acknowledged by counting
	}{
		{"none", fault.Faults{}, fault.Faults{}, true, 1, 1, true},
		{"send", fault.Faults{Loss: 1}, fault.Faults{}, false, 0, 1, false},
		{"receive", fault.Faults{}, fault.Faults{Loss: 1}, true, 0, 0, false},
		{"late", fault.Faults{}, fault.Faults{Duplicate: 1}, true, 0, 2, true},
	} {
		l.SetFaults(c.send, c.recv)
		below.counted = 0
		b, mine := d.PlaceCounted(nil, 1, 8, link.Ack{})
		if (b != nil) != c.mine || mine != c.mine || below.counted != c.counted {
			t.Errorf("%s: place %v, %v, counted %d times", c.name, b, mine, below.counted)
		}
		below.packets = []link.RxPacket{{Data: packet}}
		var batch link.RxBatch
		if n := p.Recv(&batch); n != c.packets+1 || len(batch.Packets) != c.packets || len(batch.Acks) != 1 {
			t.Errorf("%s: %d, packets %+v, acknowledgements %+v", c.name, n, batch.Packets, batch.Acks)
		}
		for i, r := range batch.Packets {
			if got := r.Counter != nil; got != (c.acked && i == 0) {
				t.Errorf("%s: packet %d can be acknowledged: %v", c.name, i, got)
			}
		}
	}
}

// onePort is a link with another port.
type onePort struct {
	link.Link
	port link.Port
}

func (l onePort) Ports() []link.Port { return []link.Port{l.port} }
