package transport

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/psn"
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/internal/wire/captures"
)

// notReplayed lists captures that cannot be compared, with the reason.
var notReplayed = map[string]string{
	"write_bw": "the recorder missed packets of two WRITEs",
}

// lastUnanswered lists captures whose last request reached a QP that had just been closed.
var lastUnanswered = map[string]bool{"riostream": true, "rstream_large": true}

// TestRespondsLikeLinux replays the requests of captured RC traffic between two Linux machines. The responder must
// send the bytes that Linux sent, except for the MigReq bit.
func TestRespondsLikeLinux(t *testing.T) {
	for _, name := range captures.Names(t) {
		if notReplayed[name] != "" {
			continue
		}
		flows := rcFlows(captures.Read(t, name))
		if len(flows) == 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			for _, f := range flows {
				if name == "rc_loss" && f.dst != netip.MustParseAddr("192.168.77.2") {
					continue // captured before endpoint 2: packets of 3 may have been lost earlier
				}
				f.replay(t, name)
			}
		})
	}
}

// flow holds the requests and responses of one QP.
type flow struct {
	dst      netip.Addr
	port     uint16 // an RC connection of rxe uses one source port for both directions
	requests []captures.Packet
	answers  []captures.Packet
}

func rcFlows(packets []captures.Packet) (flows []*flow) {
	find := func(dst netip.Addr, port uint16) *flow {
		for _, f := range flows {
			if f.dst == dst && f.port == port {
				return f
			}
		}
		flows = append(flows, &flow{dst: dst, port: port})
		return flows[len(flows)-1]
	}
	for _, p := range packets {
		op := wire.Packet(p.Body()).Opcode()
		switch {
		case op.Transport() != wire.RC:
		case op.Is(wire.Response):
			f := find(p.Src, p.SrcPort)
			f.answers = append(f.answers, p)
		default:
			f := find(p.Dst, p.SrcPort)
			f.requests = append(f.requests, p)
		}
	}
	return flows
}

// replay replays a flow. Memory holds the data of the captured responses.
func (f *flow) replay(t *testing.T, name string) {
	if len(f.requests) == 0 {
		return
	}
	s := newStage(t)
	s.quiet = true
	first := f.requests[0]
	s.qp = NewQP(Config{
		Num: stageQPN, Type: RC, PD: stagePD, SQ: NewSendQueue(1, 1, 0), RQ: NewRecvQueue(16, 1, false, 0),
		SendCQ: s, RecvCQ: s, Regions: s.regions, Host: s,
	})
	at := Attr{
		Path: link.Path{Src: first.Dst, Dst: first.Src}, DestQPN: f.peerQPN(), PKey: wire.DefaultPKey, MTU: f.mtu(),
		RQPSN: wire.Packet(first.Body()).BTH().PSN(), MaxDestRdAtom: 16, MinRNRTimer: f.rnrTimer(),
		Access: accessWrite | accessRead | accessAtomic,
	}
	if name == "nak_opcode" {
		at.Access = 0
	}
	for _, st := range []State{Init, RTR} {
		at.State = st
		if err := s.qp.Modify(0, &at, ^Mask(0)); err != nil {
			t.Fatal(err)
		}
	}
	keys := f.register(t, s, name)
	landing := &mr.Region{PD: stagePD, Access: mr.LocalWrite, Base: 0x1000, Buf: make([]byte, 1<<20)}
	if err := s.regions.Add(landing); err != nil {
		t.Fatal(err)
	}
	room := uint32(1 << 20)
	if name == "nak_len" {
		room = 100
	}

	answers := f.answers
	for i, req := range f.requests {
		if len(answers) == 0 && lastUnanswered[name] && i == len(f.requests)-1 {
			break
		}
		p := wire.Packet(bytes.Clone(req.Body()))
		f.prepareMemory(s, p, keys)
		notReady := len(answers) > 0 && isRNR(answers[0].Body())
		if !notReady && s.qp.RQ.Posted() == 0 {
			if err := s.qp.RQ.Post(1, []SGE{{Addr: landing.Base, Length: room, LKey: landing.LKey}}); err != nil {
				t.Fatal(err)
			}
		}
		s.qp.OnPacket(0, &link.RxPacket{Data: p, Src: req.Src, Dst: req.Dst})
		for more := true; more; {
			more = s.qp.Transmit(0, s.tx, 64)
			for i := range s.tx.Packets {
				got := s.tx.Bytes(i)
				answers = compare(t, name, req.N, got[:len(got)-wire.ICRCLen], answers)
			}
			s.tx.Reset()
		}
	}
	for _, a := range answers {
		t.Errorf("to %v: Linux also answered %v", f.dst, wire.Packet(a.Body()))
	}
}

// compare compares a response with the next one of Linux and returns the remaining ones.
func compare(t *testing.T, name string, n int, got wire.Packet, answers []captures.Packet) []captures.Packet {
	if len(answers) == 0 {
		t.Errorf("request %d: we answer %v, Linux nothing", n, got)
		return nil
	}
	want := wire.Packet(bytes.Clone(answers[0].Body()))
	want[1] |= 0x40 // MigReq
	if name == "nak_len" {
		want.AETH().Put(wire.SynInvReq, want.AETH().MSN()) // see faultSendTooLong
	}
	if !bytes.Equal(got, want) {
		t.Errorf("request %d: we answer\n%v, Linux\n%v", n, got, want)
	}
	if isRNR(want) && len(answers) > 1 { // see nakNotReady
		next := wire.Packet(answers[1].Body())
		if h := next.AETH(); h != nil && h.Syndrome() == wire.SynSeqErr && next.BTH().PSN() == want.BTH().PSN() {
			return answers[2:]
		}
	}
	return answers[1:]
}

// register registers the regions that the requests name and maps captured keys to ours.
func (f *flow) register(t *testing.T, s *stage, name string) map[uint32]*mr.Region {
	type span struct{ from, to uint64 }
	spans := map[uint32]span{}
	for _, req := range f.requests {
		p := wire.Packet(req.Body())
		key, addr, n := named(p)
		if n == 0 {
			continue
		}
		sp, ok := spans[key]
		if !ok {
			sp = span{addr, addr + n}
		}
		spans[key] = span{min(sp.from, addr), max(sp.to, addr+n)}
	}
	if name == "nak_rkey" {
		return nil
	}
	regions := map[uint32]*mr.Region{}
	for key, sp := range spans {
		r := &mr.Region{
			PD:     stagePD,
			Access: mr.LocalWrite | mr.RemoteWrite | mr.RemoteRead | mr.RemoteAtomic,
			Base:   sp.from,
			Buf:    make([]byte, sp.to-sp.from),
		}
		switch name {
		case "nak_bounds":
			r.Buf = r.Buf[:32]
		case "nak_perm":
			r.Access &^= mr.RemoteRead
		}
		if name == "inv" {
			r.Access = mr.LocalWrite | mr.MWBind
		}
		if err := s.regions.Add(r); err != nil {
			t.Fatal(err)
		}
		if name == "inv" {
			r = bindAll(t, s, r)
		}
		regions[key] = r
	}
	return regions
}

// bindAll binds a type 2 window to a region. The result has the window's key and the region's memory.
func bindAll(t *testing.T, s *stage, r *mr.Region) *mr.Region {
	w := &mr.Window{PD: stagePD, Type: mr.Type2}
	if err := s.regions.AddWindow(w); err != nil {
		t.Fatal(err)
	}
	key := s.regions.Key(w)
	b := mr.Binding{Window: w, RKey: key, LKey: r.LKey, Access: mr.RemoteWrite, Addr: r.Base, Length: uint64(len(r.Buf))}
	if err := s.regions.Bind(&b, stagePD, s.qp.id); err != nil {
		t.Fatal(err)
	}
	return &mr.Region{RKey: key, Base: r.Base, Buf: r.Buf}
}

// named returns the memory that a request names.
func named(p wire.Packet) (key uint32, addr, n uint64) {
	if h := p.RETH(); h != nil {
		return h.RKey(), h.Addr(), uint64(h.DMALen())
	}
	if h := p.AtomicETH(); h != nil {
		return h.RKey(), h.Addr(), 8
	}
	return 0, 0, 0
}

// prepareMemory replaces the key in a request and stores the data of the captured response.
func (f *flow) prepareMemory(s *stage, p wire.Packet, keys map[uint32]*mr.Region) {
	if at := p.Info().IETH; at != 0 && keys[p.IETH()] != nil {
		binary.BigEndian.PutUint32(p[at:], keys[p.IETH()].RKey)
	}
	key, addr, n := named(p)
	r := keys[key]
	if r == nil {
		return
	}
	if h := p.RETH(); h != nil {
		h.Put(addr, r.RKey, h.DMALen())
	} else {
		h := p.AtomicETH()
		h.Put(addr, r.RKey, h.SwapAdd(), h.Compare())
	}
	off := addr - r.Base
	for _, a := range f.answers {
		b := wire.Packet(a.Body())
		i := psn.Diff(b.BTH().PSN(), p.BTH().PSN())
		at := off + uint64(i*s.qp.attr.MTU)
		switch {
		case p.Opcode().Is(wire.IsRead) && i >= 0 && at < off+n && b.Opcode().Is(wire.HasData):
			copy(r.Buf[at:], b.Payload())
		case p.Opcode().Is(wire.IsAtomic) && i == 0 && b.Opcode() == wire.AtomicAck:
			mr.Store(r.Buf[off:], b.AtomicAck())
		}
	}
}

func (f *flow) peerQPN() uint32 {
	if len(f.answers) == 0 {
		return 0
	}
	return wire.Packet(f.answers[0].Body()).BTH().DestQPN()
}

// mtu returns the length of the first packet of some message, or the smallest MTU that fits.
func (f *flow) mtu() int {
	n := 256
	for _, p := range append(f.requests, f.answers...) {
		b := wire.Packet(p.Body())
		if l := len(b.Payload()); b.Opcode().Is(wire.Start) && !b.Opcode().Is(wire.End) {
			return l
		}
		for n < len(b.Payload()) {
			n *= 2
		}
	}
	return n
}

func isRNR(p wire.Packet) bool { h := p.AETH(); return h != nil && h.IsRNR() }

func (f *flow) rnrTimer() uint8 {
	for _, a := range f.answers {
		if isRNR(a.Body()) {
			return wire.Packet(a.Body()).AETH().Timer()
		}
	}
	return 0
}

func (f *flow) String() string { return fmt.Sprintf("to %v port %d", f.dst, f.port) }
