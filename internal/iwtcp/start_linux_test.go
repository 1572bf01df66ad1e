package iwtcp

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/iwarp"
	"github.com/verbena-rdma/verbena/internal/transport"
	wire "github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// slow sets the pauses before nudges, and before a responder sends first.
func slow(t *testing.T, d time.Duration) {
	t.Helper()
	pauses, release := nudges, releaseTime
	t.Cleanup(func() { nudges, releaseTime = pauses, release }) // after the QPs of the test have ended
	for i := range nudges {
		nudges[i] = d
	}
	releaseTime = d
}

// empty is the length of a message without payload.
var empty = wire.FPDULen(wire.TaggedLen)

// An initiator that has sent a first message and nothing since sends three nudges, and no more.
func TestNudgesOfAnInitiator(t *testing.T) {
	slow(t, time.Millisecond)
	e := newEnd(t, new(Device), 1, 8)
	p := &raw{TCPConn: startWith(t, e.QP, iwarp.Params{Initiator: true, RTR: wire.RTRWrite}, func(bool) {}), t: t}
	p.receive(4 * empty)
	e.Disconnect()
	if rest, err := io.ReadAll(p); len(rest) > 0 || err != nil {
		t.Errorf("% x after the nudges, %v", rest, err)
	}
}

// A pause that has ended late has no effect on the next connection of the QP, nor on one that has ended.
func TestLateNudge(t *testing.T) {
	slow(t, time.Hour)
	e := newEnd(t, new(Device), 1, 8)
	first := iwarp.Params{Initiator: true, RTR: wire.RTRWrite}
	startWith(t, e.QP, first, func(bool) {})
	old := e.m
	e.onNudge(old, 0)
	e.Fail()
	e.onNudge(old, 1)
	e.Reset()
	if err := e.Init(0); err != nil {
		t.Fatal(err)
	}
	p := &raw{TCPConn: startWith(t, e.QP, first, func(bool) {}), t: t}
	for range 3 {
		e.onNudge(old, 1)
	}
	e.onNudge(e.m, 0)
	e.onNudge(e.m, len(nudges)-1) // the one nudge that is sent
	e.Disconnect()
	if all, err := io.ReadAll(p); len(all) != 2*empty || err != nil {
		t.Errorf("%d bytes, want %d, %v", len(all), 2*empty, err)
	}
}

// RFC 5044, section 7.1: a responder sends nothing before the initiator's first FPDU. An initiator that sends nothing
// for long is taken for one that waits, if the connection is without peer-to-peer mode.
func TestResponderSendsFirstAfterAPause(t *testing.T) {
	slow(t, time.Hour)
	e := newEnd(t, new(Device), 1, 8)
	copy(e.mem, "response")
	sent := func() uint64 { return e.View().Counters.TxBytes } // by all connections of the QP
	start := func() *raw {
		before := sent()
		p := &raw{TCPConn: startWith(t, e.QP, iwarp.Params{}, func(bool) {}), t: t}
		if err := e.post(transport.OpSend, 8, nil); err != nil {
			t.Fatal(err)
		}
		if n := sent() - before; n != 0 {
			t.Errorf("%d bytes before the first message of the initiator", n)
		}
		return p
	}
	p := start()
	old := e.m
	e.onRelease(old)
	if b := p.receive(wire.FPDULen(wire.UntaggedLen + 8)); !bytes.Contains(b, []byte("response")) {
		t.Errorf("% x", b)
	}
	e.Fail()
	e.onRelease(old)
	e.Reset()
	if err := e.Init(0); err != nil {
		t.Fatal(err)
	}
	start()
	before := sent()
	e.onRelease(old) // of the first connection
	if n := sent() - before; n != 0 {
		t.Errorf("%d bytes after the pause of another connection", n)
	}
}

// The pause of a responder begins with the connection.
func TestPauseOfAResponder(t *testing.T) {
	slow(t, time.Millisecond)
	e := newEnd(t, new(Device), 1, 8)
	p := &raw{TCPConn: startWith(t, e.QP, iwarp.Params{}, func(bool) {}), t: t}
	if err := e.post(transport.OpSend, 8, nil); err != nil {
		t.Fatal(err)
	}
	p.receive(wire.FPDULen(wire.UntaggedLen + 8))
}

// A QP reports RTS when it has its connection. A CQ that has overflowed prevents that, and ends a connection.
func TestStartWithABrokenCQ(t *testing.T) {
	for _, which := range []func(*end) *keeper{func(e *end) *keeper { return &e.send },
		func(e *end) *keeper { return &e.recv }} {
		e := newEnd(t, new(Device), 1, 8)
		which(e).broken.Store(true)
		peer, own := connection(t)
		if err := e.Start(&Conn{tcp: own}, func(bool) {}); !errors.Is(err, transport.ErrState) {
			t.Errorf("a broken CQ: %v", err)
		}
		ended(t, peer)
		which(e).broken.Store(false)
		startWith(t, e.QP, iwarp.Params{Initiator: true}, func(bool) {})
		if !slices.Equal(e.send.moves, []transport.State{transport.RTS}) {
			t.Errorf("moves %v", e.send.moves)
		}
		which(e).broken.Store(true)
		if err := e.post(transport.OpSend, 8, nil); err != nil {
			t.Fatal(err)
		}
		if e.State() != transport.Err || !slices.Equal(e.send.events, []transport.Event{transport.EventQPFatal}) {
			t.Errorf("state %v, events %v", e.State(), e.send.events)
		}
	}
}

// A connection whose socket cannot be watched ends without a report, and Start has the error.
func TestStartWithoutAPlaceInTheSet(t *testing.T) {
	e := newEnd(t, new(Device), 1, 8)
	if err := e.RQ.Post(1, []transport.SGE{e.sge(8)}); err != nil {
		t.Fatal(err)
	}
	good := e.loop
	e.loop = &loop{ready: -1, qps: map[int32]*QP{}}
	peer, own := connection(t)
	err := e.Start(&Conn{tcp: own}, func(bool) { t.Error("the end is reported") })
	if !errors.Is(err, unix.EBADF) || e.State() != transport.Err || len(e.loop.qps) > 0 {
		t.Errorf("%v, state %v, %d sockets", err, e.State(), len(e.loop.qps))
	}
	e.loop = good
	e.recv.expect(t, transport.WRFlushErr)
	ended(t, peer)
}
