package explain

import (
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// TestBoundedLadder: a capture of many messages to many QPs, of which each begins and none ends, is kept in bounded
// memory, and every step is printed once, in order.
func TestBoundedLadder(t *testing.T) {
	const packets = 200_000
	l := newLadder()
	out := &text{w: io.Discard, draws: true}
	printed, last := 0, time.Duration(-1)
	print := func(s *step) {
		if s.at <= last {
			t.Fatalf("step at %v after %v", s.at, last)
		}
		printed, last = printed+1, s.at
		out.print(s)
	}
	src, dst := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	for i := range packets {
		f := wire.Fields{Opcode: wire.SendFirst, PKey: 0xffff, DestQPN: uint32(i + 2), Payload: make([]byte, 256)}
		data, err := wire.Parse(f.Build())
		if err != nil {
			t.Fatal(err)
		}
		l.add(&packet{at: time.Unix(0, int64(i)), src: src, dst: dst, data: data})
		l.emit(window, print)
		if len(l.steps) > 3*window+1 || len(l.highest) > mostFlows+1 || len(l.running) > mostFlows+1 {
			t.Fatalf("after %d packets: %d steps, %d and %d flows", i, len(l.steps), len(l.highest), len(l.running))
		}
	}
	l.emit(0, print)
	if printed != packets || l.messages != packets || len(out.drawn) != svgMost {
		t.Errorf("%d steps printed, %d counted, %d drawn", printed, l.messages, len(out.drawn))
	}
}

// TestOldMessageGoesOn: the rest of a message whose first packet has been printed is a step of its own.
func TestOldMessageGoesOn(t *testing.T) {
	l := newLadder()
	printed := 0
	count := func(*step) { printed++ }
	src, dst := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	add := func(op wire.Opcode, qpn, psn uint32) {
		f := wire.Fields{Opcode: op, PKey: 0xffff, DestQPN: qpn, PSN: psn, Payload: make([]byte, 256)}
		data, err := wire.Parse(f.Build())
		if err != nil {
			t.Fatal(err)
		}
		l.add(&packet{at: time.Unix(0, 0), src: src, dst: dst, data: data})
		l.emit(window, count)
	}
	add(wire.SendFirst, 5, 0)
	for i := range uint32(window + 1) {
		add(wire.SendOnly, 6, i)
	}
	add(wire.SendLast, 5, 1)
	l.emit(0, count)
	if want := window + 3; printed != want {
		t.Errorf("%d steps, want %d", printed, want)
	}
}
