package rdmacm

import (
	"context"
	"net/netip"
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
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}
