package transport

import (
	"bytes"
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// newSteered returns a UD QP with receives of the given SGEs, and the list of its completions.
func newSteered(t *testing.T, receives ...[]SGE) (s *sender, cqes *[]CQE) {
	t.Helper()
	cqes = new([]CQE)
	s = newSender(t, UD, func(c *Config, _ *Attr) {
		c.RecvCQ = pushFunc(func(e *CQE) { *cqes = append(*cqes, *e) })
		c.RQ = NewRecvQueue(8, 4, false, testPD)
	})
	for i, list := range receives {
		for j := range list {
			list[j].LKey += s.mem.LKey
		}
		if err := s.qp.RQ.Post(uint64(i), list); err != nil {
			t.Fatal(err)
		}
	}
	return s, cqes
}

// A frame lies behind 40 bytes that keep their content, however the receive is cut.
func TestV_RECV_06_FrameLiesBehind40Bytes(t *testing.T) {
	frame := patterned(100, 3)
	for _, cuts := range [][]uint32{{140}, {40, 100}, {39, 101}, {41, 99}, {1, 0, 39, 100}, {30, 9, 150}} {
		var list []SGE
		at := 0
		for _, n := range cuts {
			list = append(list, SGE{Addr: memBase + uint64(at), Length: n})
			at += int(n)
		}
		s, cqes := newSteered(t, list)
		s.qp.OnSteered(s.now, nil, &Steered{Frame: frame, Tag: 0x1234, CsumOK: true})
		if !bytes.Equal(s.mem.Buf[:40], noise[:40]) || !bytes.Equal(s.mem.Buf[40:140], frame) ||
			!bytes.Equal(s.mem.Buf[140:], noise[140:]) {
			t.Errorf("%v: wrong memory", cuts)
		}
		e := (*cqes)[0]
		if len(*cqes) != 1 || e.Status != Success || e.Op != CQRecv || e.ByteLen != 140 || !e.Frame || e.Tag != 0x1234 ||
			e.Flags != IPCsumOK || e.QP != s.qp {
			t.Errorf("%v: %+v", cuts, *cqes)
		}
		if s.qp.resp.held || s.qp.bytes.received != 100 {
			t.Errorf("%v: held %v, %d bytes", cuts, s.qp.resp.held, s.qp.bytes.received)
		}
	}
}

// A frame without a receive, or longer than it, is dropped and counted. The short receive stays. A QP that is not ready
// counts it too.
func TestFramesThatAreDropped(t *testing.T) {
	s, _ := newSteered(t)
	f := &Steered{Frame: make([]byte, 60)}
	s.qp.OnSteered(s.now, nil, f)
	if c := s.qp.Totals(); c.RecvDropped != 1 || c.RespLocalLengthError != 0 || c.RxDataBytes != 0 {
		t.Errorf("no receive: %+v", c)
	}
	s, cqes := newSteered(t, []SGE{{Addr: memBase, Length: 99}})
	s.qp.OnSteered(s.now, nil, f)
	if c := s.qp.Counters; c.RecvDropped != 1 || c.RespLocalLengthError != 1 || s.qp.RQ.Posted() != 1 {
		t.Errorf("short receive: %+v", c)
	}
	f.Frame = f.Frame[:59]
	s.qp.OnSteered(s.now, nil, f)
	if len(*cqes) != 1 || (*cqes)[0].Status != Success || (*cqes)[0].Flags != 0 {
		t.Errorf("a frame that fits: %+v", *cqes)
	}
	for _, st := range []State{Reset, Init, RTR, RTS, Err} {
		s, cqes := newSteered(t)
		s.modify(Reset, Attr{}, 0)
		for _, next := range []State{Init, RTR, RTS} {
			if st != Reset && st != Err && next <= st {
				s.modify(next, rtsAttr(), everyMask)
			}
		}
		if st == Err {
			s.modify(Err, Attr{}, 0)
		}
		s.qp.OnSteered(s.now, nil, f)
		ready := st == RTR || st == RTS
		if c := s.qp.Counters; c.BadState == 0 != ready || (c.RecvDropped == 1) != ready || len(*cqes) != 0 {
			t.Errorf("state %d: %+v", st, c)
		}
	}
}

// A frame whose receive is invalid moves the QP to ERR.
func TestFrameIntoAnInvalidReceive(t *testing.T) {
	s, cqes := newSteered(t, []SGE{{Addr: memBase, Length: 100, LKey: 1}}, []SGE{{Addr: memBase, Length: 100}})
	s.qp.OnSteered(s.now, nil, &Steered{Frame: make([]byte, 60)})
	s.is(Err)
	var got []Status
	for _, e := range *cqes {
		got = append(got, e.Status)
	}
	if want := []Status{LocProtErr, WRFlushErr}; !slices.Equal(got, want) {
		t.Errorf("statuses %v, want %v", got, want)
	}
}

// A datagram that a flow rule delivers has the flow tag of the rule. The next one, which no rule delivers, has none.
func TestFlowTagOfADatagram(t *testing.T) {
	s, cqes := newSteered(t, []SGE{{Addr: memBase, Length: 100}}, []SGE{{Addr: memBase, Length: 100}})
	f := wire.Fields{
		Opcode: wire.UD | wire.SendOnly, PKey: 0xFFFF, DestQPN: s.qp.Num, QKey: 0x11111111, Payload: []byte("x"),
	}
	p := &link.RxPacket{Data: f.Build(), Src: dstAddr, Dst: srcAddr}
	s.qp.OnSteered(s.now, p, &Steered{Tag: 0x99})
	s.qp.OnPacket(s.now, p)
	e := *cqes
	if len(e) != 2 || !e[0].Frame || e[0].Tag != 0x99 || e[1].Frame || e[1].Tag != 0 {
		t.Errorf("%+v", e)
	}
}

// A UD QP with checksums fills in those of a message on request, and reports those that are right.
func TestChecksumsOfDatagrams(t *testing.T) {
	s, cqes := newSteered(t, []SGE{{Addr: memBase, Length: 100}}, []SGE{{Addr: memBase, Length: 100}})
	s.qp.IPOffload = &IPOffload{
		Fill: func(m []byte) {
			for i := range m {
				m[i] = '#'
			}
		},
		Verify: func(m []byte) bool { return m[0] == '+' },
	}
	for _, n := range []int{5, 8} {
		s.post(OpSend, s.sges(0, n), nil)
		s.post(OpSend, s.sges(0, n), func(w *SendWQE) { w.Flags = IPCsum })
		p := s.out()
		if !bytes.Equal(p[0].Payload(), noise[:n]) || !bytes.Equal(p[1].Payload(), bytes.Repeat([]byte("#"), n)) {
			t.Errorf("sent %q and %q", p[0].Payload(), p[1].Payload())
		}
	}
	for _, text := range []string{"+", "-"} {
		s.arrives(wire.Fields{Opcode: wire.UD | wire.SendOnly, QKey: 0x11111111, Payload: []byte(text)}, 0)
	}
	if e := *cqes; len(e) != 2 || e[0].Flags != WithGRH|IPCsumOK || e[1].Flags != WithGRH {
		t.Errorf("received %+v", e)
	}
}
