package transport

import (
	"bytes"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// Payload by reference that is revoked while it is copied, and what a peer may send at its PSN afterwards. A correct
// peer repeats the message; these peers do not, or cut it in another way.

// voided is an epoch that is over.
func voided() link.Epoch { return link.NewEpoch(new(atomic.Uint64), 1) }

// taggedStage is an RC QP with an SRQ that matches tags, and one buffer for any tag.
func taggedStage(t *testing.T) *hostile {
	t.Helper()
	h := newHostile(t, []byte{kindTags, 0, 128, 0})
	h.quiet = false
	h.buffer(1)
	return h
}

func (h *hostile) buffer(wrid uint64) {
	h.t.Helper()
	r := h.regions[regLocal]
	op := TagOp{Op: TagAdd, RecvWRID: wrid, SGEs: []SGE{{Addr: r.Base, Length: 2000, LKey: r.LKey}}}
	if err := h.tags.Do(&op); err != nil {
		h.t.Fatal(err)
	}
}

func eager(n int, tag uint64) []byte {
	b := patterned(n, 1)
	wire.TMH(b).Put(wire.TMEager, 0, tag)
	return b
}

// A revoked packet counts as lost: the peer gets one NAK, and what follows it is dropped without another one.
func TestRevokedPacketIsReportedOnce(t *testing.T) {
	s := play(t, "qp rc", "region A", "recv 1 A+0/1000")
	s.train(wire.SendOnly, 100, patterned(40, 9), voided(), nil)
	same(t, "replies to the revoked packet", s.log, []string{"RC ACKNOWLEDGE NAK sequence 100"})
	s.train(wire.SendOnly, 101, patterned(40, 1), link.Epoch{}, nil)
	same(t, "replies to the next one", s.log, nil)
	s.train(wire.SendOnly, 100, patterned(40, 1), link.Epoch{}, nil)
	if !s.has("cqe", "id=1 SUCCESS") || !s.has("RC ACKNOWLEDGE ack 100") {
		t.Errorf("the packet again: %v", s.log)
	}
}

// A header that was revoked before the receive is looked for matches nothing: its tag may be anything by then.
func TestRevokedHeaderMatchesNothing(t *testing.T) {
	h := taggedStage(t)
	first := h.qp.resp.epsn
	h.train(wire.SendOnly, first, eager(512, 5), voided(), nil)
	if h.qp.resp.held || h.tags.used.Load() != 1 || h.tags.first < 0 {
		t.Fatalf("the buffer was taken: %+v", h.qp.resp.recv)
	}
	h.train(wire.SendOnly, first, nil, link.Epoch{}, nil)
	if !h.has("RNR") {
		t.Errorf("an empty SEND without a receive: %v", h.log)
	}
	h.train(wire.SendOnly, first, eager(512, 5), link.Epoch{}, nil)
	if !h.has("cqe", "id=1 SUCCESS") {
		t.Errorf("%v", h.log)
	}
}

// revokeDuringCopy delivers an eager message whose payload is revoked between the look at its header and the end of the
// copy.
func (h *hostile) revokeDuringCopy(data []byte) {
	h.t.Helper()
	h.train(wire.SendOnly, h.qp.resp.epsn, data, h.epoch(2), nil)
	if !h.qp.resp.held || h.cqes != 0 {
		h.t.Fatalf("the buffer is not kept: %v", h.log)
	}
}

// The buffer that a revoked message has matched is for that message: another one at its PSN ends the QP, and the buffer
// completes once.
func TestRevokedTagThenAnotherMessage(t *testing.T) {
	noReth := func(p wire.Packet) { p.RETH().Put(0, 0, 0) }
	for name, send := range map[string]func(h *hostile, psn uint32){
		"an empty SEND":  func(h *hostile, psn uint32) { h.train(wire.SendOnly, psn, nil, link.Epoch{}, nil) },
		"a short SEND":   func(h *hostile, psn uint32) { h.train(wire.SendOnly, psn, make([]byte, 8), link.Epoch{}, nil) },
		"another tag":    func(h *hostile, psn uint32) { h.train(wire.SendOnly, psn, eager(512, 6), link.Epoch{}, nil) },
		"WRITE with imm": func(h *hostile, psn uint32) { h.train(wire.WriteOnlyImm, psn, nil, link.Epoch{}, noReth) },
		"WRITE":          func(h *hostile, psn uint32) { h.train(wire.WriteOnly, psn, nil, link.Epoch{}, noReth) },
	} {
		h := taggedStage(t)
		first := h.qp.resp.epsn
		h.revokeDuringCopy(eager(512, 5))
		send(h, first)
		if h.qp.State() != Err || h.cqes != 1 || !h.has("cqe", "id=1", "taken back") {
			t.Errorf("%s: state %v, %d completions: %v", name, h.qp.State(), h.cqes, strings.Join(h.log, "; "))
		}
	}
	h := taggedStage(t)
	data := eager(512, 5)
	h.revokeDuringCopy(data)
	h.train(wire.SendOnly, h.qp.resp.epsn, data, link.Epoch{}, nil)
	if !h.has("cqe", "id=1 SUCCESS len=496") || !bytes.Equal(h.regions[regLocal].Buf[:496], data[wire.TMHLen:]) {
		t.Errorf("the same message: %v", h.log)
	}
}

// A QP that is reset while it keeps a buffer gives its place back, and does not remember it when it is connected again.
func TestRevokedTagThenReset(t *testing.T) {
	h := taggedStage(t)
	h.revokeDuringCopy(eager(512, 5))
	if err := h.qp.Modify(0, &Attr{State: Reset}, MaskState); err != nil {
		t.Fatal(err)
	}
	h.connect()
	if n := h.tags.used.Load(); n != 0 {
		t.Errorf("%d places are taken", n)
	}
	h.buffer(2)
	h.train(wire.SendOnly, h.qp.resp.epsn, eager(512, 6), link.Epoch{}, nil)
	if !h.has("cqe", "id=2 SUCCESS") {
		t.Errorf("%v", h.log)
	}
}

// An unexpected message that a RESET ends is not counted: the program never learns of it, and its buffers would wait
// for ever.
func TestResetInsideAnUnexpectedMessage(t *testing.T) {
	h := newHostile(t, []byte{kindTags, 0, 128, 0})
	h.post([8]byte{10, 1, 0, 0, 0, 6, 6, 6})
	h.train(wire.SendFirst, h.qp.resp.epsn, eager(h.attr.MTU, 5), link.Epoch{}, nil)
	if h.tags.came != 1 {
		t.Fatalf("%d unexpected messages", h.tags.came)
	}
	h.buffer(1) // waits, since the program has seen none
	if err := h.qp.Modify(0, &Attr{State: Reset}, MaskState); err != nil {
		t.Fatal(err)
	}
	h.connect()
	h.quiet = false
	h.train(wire.SendOnly, h.qp.resp.epsn, eager(512, 5), link.Epoch{}, nil)
	if h.tags.came != 0 || !h.has("cqe", "id=1 SUCCESS") {
		t.Errorf("%d unexpected messages: %v", h.tags.came, h.log)
	}
}

// After a revoked message its receive is the oldest again, and each receive completes once, whatever comes at that PSN.
func TestRevokedMessagesLoseNoReceive(t *testing.T) {
	for _, queue := range []string{"", " srq=yes"} {
		for name, again := range map[string]func(s *stage, psn uint32){
			"SEND": func(s *stage, psn uint32) { s.train(wire.SendOnly, psn, patterned(40, 1), link.Epoch{}, nil) },
			"WRITE with imm": func(s *stage, psn uint32) {
				s.train(wire.WriteOnlyImm, psn, nil, link.Epoch{}, func(p wire.Packet) { p.RETH().Put(0, 0, 0) })
			},
		} {
			s := play(t, "qp rc recvs=4"+queue, "region A len=65536")
			a := s.named["A"]
			want := uint64(0)
			for round := range 10 {
				for s.qp.RQ.Post(want, []SGE{{Addr: a.Base, Length: 20000, LKey: a.LKey}}) == nil {
					want++
				}
				first, before := s.qp.resp.epsn, s.cqes
				if round%2 == 0 {
					s.train(wire.SendOnly, first, patterned(9000, 9), voided(), nil)
				} else {
					reth := func(p wire.Packet) { p.RETH().Put(a.Base, a.RKey, 9000) }
					s.train(wire.WriteOnlyImm, first, patterned(9000, 9), voided(), reth)
				}
				if s.cqes != before || s.qp.RQ.Posted() != 4 {
					t.Fatalf("%s%s: %d completions of a revoked message, %d receives left",
						name, queue, s.cqes-before, s.qp.RQ.Posted())
				}
				again(s, first)
				if s.cqes != before+1 || s.qp.RQ.Posted() != 3 {
					t.Fatalf("%s%s: %d completions, %d receives left: %v", name, queue, s.cqes-before, s.qp.RQ.Posted(), s.log)
				}
			}
			if want != 13 {
				t.Errorf("%s%s: %d receives could be posted, want 13", name, queue, want)
			}
		}
	}
}

// A long WRITE with immediate data that was revoked is repeated in other pieces; its receive completes once.
func TestRevokedWriteWithImmediate(t *testing.T) {
	s := play(t, "qp rc srq=yes", "region A len=65536", "recv 1 A+0/100", "recv 2 A+0/100")
	a, mtu := s.named["A"], s.qp.attr.MTU
	data := patterned(3*mtu, 1)
	reth := func(p wire.Packet) { p.RETH().Put(a.Base, a.RKey, uint32(len(data))) }
	first := s.qp.resp.epsn
	s.train(wire.WriteOnlyImm, first, patterned(3*mtu, 9), voided(), reth)
	s.train(wire.WriteFirst, first, data[:mtu], link.Epoch{}, reth)
	s.train(wire.WriteLastImm, first+1, patterned(2*mtu, 9), voided(), nil)
	s.train(wire.WriteMiddle, first+1, data[mtu:2*mtu], link.Epoch{}, nil)
	s.train(wire.WriteLastImm, first+2, data[2*mtu:], link.Epoch{}, nil)
	if s.cqes != 1 || !s.has("cqe", "id=1 SUCCESS") || s.qp.RQ.Posted() != 1 || !bytes.Equal(a.Buf[:len(data)], data) {
		t.Errorf("%d completions, %d receives left: %v", s.cqes, s.qp.RQ.Posted(), s.log)
	}
}

// The receive that a revoked message to one SRQ of an XRC domain took is that SRQ's again when the next message is for
// another one.
func TestRevokedMessageToAnotherSRQ(t *testing.T) {
	h := newHostile(t, []byte{kindXRC, 0, 128, 0})
	h.post([8]byte{10, 1, 0, 0, 0, 6, 6, 6})
	to := func(srqn uint32) func(wire.Packet) {
		return func(p wire.Packet) { p.XRCETH().Put(srqn) }
	}
	first := h.qp.resp.epsn
	h.train(wire.XRC|wire.SendOnly, first, patterned(512, 9), voided(), to(1))
	h.train(wire.XRC|wire.SendOnly, first, patterned(512, 1), link.Epoch{}, to(2)) // which has no receive
	if h.cqes != 0 || h.rq.Posted() != 1 {
		t.Fatalf("%d completions, %d receives left", h.cqes, h.rq.Posted())
	}
	h.train(wire.XRC|wire.SendOnly, first, patterned(512, 1), link.Epoch{}, to(1))
	if h.cqes != 1 || h.rq.Posted() != 0 {
		t.Errorf("%d completions, %d receives left", h.cqes, h.rq.Posted())
	}
}
