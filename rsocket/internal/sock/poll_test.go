package sock

import (
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/rs"
)

// The events of a stream are those of a socket of TCP in the same state.
func TestR_POLL_02_EventsOfEachState(t *testing.T) {
	message := func(st *Stream) { ok(t, st.m.OnMessage(rs.Word(rs.OpData, 1), 1)) }
	end := func(st *Stream) { st.m.Disconnect() }
	fail := func(st *Stream) { st.state, st.err = streamFailed, syscall.EPROTO }
	room := func(st *Stream) { st.m.Connect(rs.ConnData{Credits: 16, Data: rs.SGE{Length: 4096}}) }
	for name, c := range map[string]struct {
		change []func(st *Stream)
		want   Events
	}{
		"connected, the peer has no room": {nil, 0},
		"connected":                       {[]func(st *Stream){room}, PollOut},
		"a message, no room":              {[]func(st *Stream){message}, PollIn},
		"a message":                       {[]func(st *Stream){room, message}, PollIn | PollOut},
		"the peer sends no more": {[]func(st *Stream){room, func(st *Stream) {
			ok(t, st.m.OnMessage(rs.Word(rs.OpCtrl, rs.CtrlShutdown), 0))
		}}, PollIn | PollRdHup | PollOut},
		"it reads no more":  {[]func(st *Stream){func(st *Stream) { st.m.Shutdown(true, false) }}, PollIn | PollRdHup},
		"it sends no more":  {[]func(st *Stream){func(st *Stream) { st.m.Shutdown(false, true) }}, PollOut},
		"disconnected":      {[]func(st *Stream){end}, PollIn | PollRdHup | PollHup},
		"data before that":  {[]func(st *Stream){message, end}, PollIn | PollRdHup | PollOut},
		"failed":            {[]func(st *Stream){fail}, PollIn | PollRdHup | PollErr | PollHup},
		"failed, with room": {[]func(st *Stream){room, fail}, PollIn | PollRdHup | PollErr | PollHup},
		"not connected": {[]func(st *Stream){fail, func(st *Stream) { st.established = false }},
			PollErr | PollIn | PollOut},
		"new": {[]func(st *Stream){func(st *Stream) { st.state, st.established = streamNew, false }},
			PollErr | PollIn | PollOut},
		"connecting": {[]func(st *Stream){func(st *Stream) { st.state, st.established = streamConnecting, false }}, 0},
		"closed":     {[]func(st *Stream){func(st *Stream) { st.closed = true }}, PollNval},
	} {
		st, free := withCQ(t)
		st.established = true
		for _, f := range c.change {
			f(st)
		}
		if got := st.PollEvents(); got != c.want {
			t.Errorf("%s: events %#x, want %#x", name, got, c.want)
		}
		free()
	}
}

// The token of a stream is an event of its CQ, which was asked for. Who takes it lets the CQ be asked again.
func TestTokenOfAStream(t *testing.T) {
	st, free := withCQ(t)
	defer free()
	st.res.event = st.res.ch.Ready()
	if st.Token() != st.res.event || !st.armed {
		t.Errorf("the CQ is armed: %v", st.armed)
	}
	if st.OnToken(); st.armed {
		t.Error("the CQ is armed after its event, though nobody waits")
	}
	w := NewWaiter()
	st.Watch(&w)
	if st.OnToken(); !st.armed {
		t.Error("the CQ is not armed after its event, though somebody waits")
	}
}

// Only a bell that was rung for a stream makes it look at its CQ, once.
func TestBellOfAStream(t *testing.T) {
	st, free := withCQ(t)
	defer free()
	for _, rung := range []bool{false, true, false} {
		if rung {
			st.asleep.wake()
		}
		st.armed = true
		if st.OnBell(); st.armed == rung || st.asleep.rung.Load() {
			t.Errorf("rung %v: the CQ is armed %v, still rung %v", rung, st.armed, st.asleep.rung.Load())
		}
	}
}

// An event after Close is nothing: there may be no channel.
func TestEventOfAClosedStream(t *testing.T) {
	st := NewStream(nil, Options{})
	st.state = streamClosed
	if st.OnToken(); st.state != streamClosed || st.err != nil {
		t.Errorf("state %d, %v", st.state, st.err)
	}
}

// A waiter without a bell is woken by the stream, not by each event of its CQ. More than one wake-up is one.
func TestWaiterWithoutABell(t *testing.T) {
	st := NewStream(nil, Options{})
	w := NewWaiter()
	st.Watch(&w)
	for range 2 {
		if st.asleep.wake(); len(w.C) != 0 {
			t.Error("an event of the CQ wakes it")
		}
	}
	for range 2 {
		if st.wakeAll(); len(w.C) != 1 || len(st.read.waiter.C) != 1 || len(st.write.waiter.C) != 1 {
			t.Errorf("%d wake-ups of the waiter, %d of the reader, %d of the writer", len(w.C), len(st.read.waiter.C),
				len(st.write.waiter.C))
		}
	}
}

// The events of an acceptor say whether there is a stream to accept.
func TestEventsOfAnAcceptor(t *testing.T) {
	a, enqueue := Unserved()
	if e := a.PollEvents(); e != 0 {
		t.Errorf("events %#x", e)
	}
	if enqueue(); a.PollEvents() != PollIn {
		t.Errorf("events %#x with a stream", a.PollEvents())
	}
}

// A wait that has slept polls anew, and is not woken by every change afterwards.
func TestStreamPollsAnewAfterASleep(t *testing.T) {
	st := NewStream(nil, Options{})
	st.state = streamConnecting
	w := NewWaiter()
	w.Wake()
	p := WaitMode{spin: Spin{start: time.Now(), polls: 7}}
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := st.pause(&w, &p); err != nil || p.spin.begun() || w.on {
		t.Errorf("%v, begun %v, on %v", err, p.spin.begun(), w.on)
	}
}
