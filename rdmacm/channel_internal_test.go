package rdmacm

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/internal/cm"
)

// Two events whose tokens have become one wake two waiters: the first of them passes the token on.
func TestOneTokenForTwoEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(nil)
		ch := newChannel(h)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		done := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := ch.GetEvent(ctx)
				done <- err
			}()
		}
		synctest.Wait() // both wait
		id := &ID{host: h, reporting: reporting{ch: ch}}
		ch.mu.Lock()
		ch.queue = append(ch.queue, &Event{Type: EventUser, ID: id, owner: id}, &Event{Type: EventUser, ID: id, owner: id})
		ch.wake()
		ch.mu.Unlock()
		for range 2 {
			if err := <-done; err != nil {
				t.Errorf("an event waits, and so does GetEvent: %v", err)
			}
		}
	})
}

// Events of a listener that are no requests do not disturb Accept.
func TestListenerPassesOverOtherEvents(t *testing.T) {
	h := memoryHost(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	l, err := Listen(ctx, ":0", &Options{Host: h})
	if err != nil {
		t.Fatal(err)
	}
	l.id.mu.Lock()
	for range 3 {
		l.id.push(&Event{Type: EventAddrChange})
	}
	l.id.mu.Unlock()
	type result struct {
		id  *ID
		err error
	}
	accepted := make(chan result, 1)
	go func() {
		id, err := l.Accept(ctx)
		accepted <- result{id, err}
	}()
	c, err := Dial(ctx, netip.AddrPortFrom(fuzzHere, l.Addr().Port()).String(), &Options{Host: h})
	if err != nil {
		t.Fatal(err)
	}
	r := <-accepted
	if r.err != nil {
		t.Fatal(r.err)
	}
	for _, o := range []interface{ Close() error }{c, r.id, l, h} {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A listener begins no handshake beyond the limit, and says that the limit is the reason.
func TestFullListenerBeginsNoHandshake(t *testing.T) {
	h := memoryHost(t)
	l, err := Listen(t.Context(), ":0", &Options{Host: h})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		under int32
		full  bool
	}{{0, false}, {maxHandshakes - 1, false}, {maxHandshakes, true}} {
		l.under.Store(c.under)
		ch, full, err := l.begin("accept")
		if full != c.full || ch != l.id.ch || err != nil {
			t.Errorf("%d handshakes: full %v, %v, want %v", c.under, full, err, c.full)
		}
	}
	l.under.Store(0)
	for n := range cm.MaxBacklog + 1 { // connections that wait for Accept
		if _, full, err := l.begin("accept"); full != (n == cm.MaxBacklog) || err != nil {
			t.Fatalf("%d connections: full %v, %v", n, full, err)
		}
		l.made <- made{}
	}
	asynchronous := &Listener{id: &ID{host: h, reporting: reporting{ch: newChannel(h)}, state: stListen}}
	removed := &Listener{id: &ID{host: h, reporting: reporting{ch: newChannel(h)}, state: stRemoved}}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	for name, l := range map[string]*Listener{"closed": l, "asynchronous": asynchronous, "removed": removed} {
		if ch, full, err := l.begin("accept"); ch != nil || full || err == nil {
			t.Errorf("%s: full %v, %v", name, full, err)
		}
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// A channel that is closed takes no events, and has no descriptor.
func TestPushToAClosedChannel(t *testing.T) {
	ch := newChannel(nil)
	for _, open := range []bool{true, false} {
		if pushed := ch.push(&Event{Type: EventUser}); pushed != open {
			t.Errorf("open %v: pushed %v", open, pushed)
		}
		if !open {
			break
		}
		if err := ch.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(ch.queue); n != 1 {
		t.Errorf("%d events, want the one from before Close", n)
	}
	if fd, err := ch.FD(); fd != -1 || !errors.Is(err, ErrClosed) {
		t.Errorf("descriptor %d, %v", fd, err)
	}
}

// An iteration waits for the next event also on a channel whose other calls do not wait, and ends with its context.
func TestEventsOfANonblockingChannel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ch := newChannel(nil)
		ch.SetNonblock(true)
		id := &ID{reporting: reporting{ch: ch}}
		ctx, cancel := context.WithCancel(t.Context())
		var got []EventType
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for ev := range ch.Events(ctx) {
				got = append(got, ev.Type)
			}
		}()
		want := []EventType{EventUser, EventAddrChange}
		for _, event := range want {
			synctest.Wait()
			ch.push(&Event{Type: event, owner: id})
		}
		synctest.Wait()
		if !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		cancel()
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Error("the iteration goes on after the end of its context")
		}
	})
}

// The Close of the ID that has got an event from another one waits for the acknowledgement, and that of the other one
// does not.
func TestHandedOverEvent(t *testing.T) {
	for _, acked := range []bool{false, true} {
		from, to := new(ID), new(ID)
		ev := &Event{Type: EventConnectRequest, owner: from}
		from.acks.take()
		if acked {
			if err := ev.Ack(); err != nil {
				t.Fatal(err)
			}
		}
		ev.handOver(to)
		if from.acks.pending() || to.acks.pending() == acked || ev.owner != to {
			t.Errorf("acknowledged %v: the first ID waits %v, the second %v", acked, from.acks.pending(), to.acks.pending())
		}
		if !acked {
			if err := ev.Ack(); err != nil || to.acks.open != 0 {
				t.Errorf("%v, %d events are open", err, to.acks.open)
			}
		}
	}
}
