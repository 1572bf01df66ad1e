package rdmacm_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/observe"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// observed collects the events of a function. Time stands still while stop delivers the last ones.
func observed(f func()) (events []observe.Event) {
	stop := observe.Handle(func(e observe.Event) { events = append(events, e) })
	f()
	stop()
	return events
}

// brief describes events by name, local host and outcome, in the order of these words.
func brief(events []observe.Event) string {
	var list []string
	for _, e := range events {
		s := fmt.Sprintf("%s at %v", strings.TrimPrefix(e.Name, "rdma."), e.Local.Addr())
		if e.Err != nil {
			s += " fails"
		}
		list = append(list, s)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

func count(events []observe.Event, name string) (n int) {
	for _, e := range events {
		if e.Name == name {
			n++
		}
	}
	return n
}

// Both ends of a connection report when it is made and when it ends, with addresses, QPs and durations.
func TestObserveConnections(t *testing.T) {
	in(t, func(w *world) {
		l := must(rdmacm.Listen(bg, ":0", &rdmacm.Options{Host: w.b}))(w)
		events := observed(func() {
			got := w.accepts(l, 1)
			client := must(rdmacm.Dial(bg, at(addrB, l.Addr().Port()).String(), &rdmacm.Options{Host: w.a}))(w)
			server := <-got
			time.Sleep(time.Hour)
			left := make(chan error)
			go func() { left <- client.Disconnect(bg) }()
			time.Sleep(time.Millisecond) // the DREQ arrives
			w.ok(server.Disconnect(bg))
			w.ok(<-left)
			w.ok(client.Close())
			w.ok(server.Close())
		})
		w.ok(l.Close())
		want := "accept at 198.18.0.2, connect at 198.18.0.1, device at 198.18.0.1, " +
			"disconnect at 198.18.0.1, disconnect at 198.18.0.2"
		if got := brief(events); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		for _, e := range events {
			if e.Name == observe.Device {
				continue
			}
			long := e.Duration >= time.Hour
			if long != (e.Name == observe.Disconnect) || e.QPN == 0 || e.DestQPN == 0 || e.Peer.Addr() == e.Local.Addr() ||
				e.Time.IsZero() || !e.Peer.IsValid() {
				t.Errorf("%+v", e)
			}
		}
	})
}

// An attempt that nobody answers, and one that is refused, are events with an error.
func TestObserveFailedAttempts(t *testing.T) {
	in(t, func(w *world) {
		events := observed(func() {
			_, err := rdmacm.Dial(bg, at(addrB, 9).String(), &rdmacm.Options{Host: w.a})
			if err == nil {
				t.Fatal("connected to nobody")
			}
			w.fab.Cut(addrA, addrB)
			_, err = rdmacm.Dial(bg, at(addrB, 9).String(), &rdmacm.Options{Host: w.a})
			if err == nil {
				t.Fatal("connected through a cut")
			}
			w.fab.Heal(addrA, addrB)
		})
		if got := brief(events); got != "connect at 198.18.0.1 fails, connect at 198.18.0.1 fails, device at 198.18.0.1" {
			t.Errorf("%q", got)
		}
	})
}

// The device that is chosen for a peer is an event, once for many connections.
func TestObserveDevice(t *testing.T) {
	in(t, func(w *world) {
		events := observed(func() {
			for range 3 {
				c := w.newEnd(w.a, rdmacm.PSTCP)
				w.ok(c.ResolveAddr(bg, netip.AddrPort{}, at(addrB, port), timeout))
				c.expect(rdmacm.EventAddrResolved)
				c.close()
			}
		})
		if len(events) != 1 || events[0].Name != observe.Device {
			t.Fatalf("%q", brief(events))
		}
		e := events[0]
		if e.Local.Addr() != addrA || e.Peer.Addr() != addrB || e.Device == "" ||
			!strings.Contains(e.Reason, "the route to 198.18.0.2 leaves from 198.18.0.1") {
			t.Errorf("%+v", e)
		}
	})
}

// A peer that no longer answers gives an event for each retry, and one for the failure with the error of the request.
func TestObserveRetriesAndFailure(t *testing.T) {
	in(t, func(w *world) {
		l := must(rdmacm.Listen(bg, ":0", &rdmacm.Options{Host: w.b}))(w)
		got := w.accepts(l, 1)
		o := &rdmacm.Options{Host: w.a, AckTimeout: 10, RetryCount: 3}
		client := must(rdmacm.Dial(bg, at(addrB, l.Addr().Port()).String(), o))(w)
		server := <-got
		mr := must(client.RegMsgs(make([]byte, 64)))(w)
		events := observed(func() {
			w.fab.Cut(addrA, addrB)
			w.ok(client.PostSend(1, mr.Bytes(), mr, verbs.SendSignaled))
			if wc, err := client.GetSendComp(bg); err == nil && wc.Err() == nil {
				t.Fatal("the send succeeded")
			}
		})
		w.fab.Heal(addrA, addrB)
		if n := count(events, observe.Retry); n != 3 {
			t.Errorf("%d retries: %s", n, brief(events))
		}
		if n := count(events, observe.Failure); n != 1 {
			t.Fatalf("%d failures: %s", n, brief(events))
		}
		for _, e := range events {
			var wc *verbs.WCError
			switch {
			case e.QPN != client.QP().QPN() || e.Local.Addr() != addrA || e.Peer.Addr() != addrB:
				t.Errorf("%+v", e)
			case e.Name == observe.Failure && (!errors.As(e.Err, &wc) || wc.Status != verbs.WCRetryExcErr):
				t.Errorf("%v", e.Err)
			}
		}
		w.ok(client.Close())
		w.ok(server.Close())
		w.ok(mr.Close())
		w.ok(l.Close())
	})
}
