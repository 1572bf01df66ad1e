package rdmacm

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/internal/lookup"
)

// What the system says of the ways to peers, and how long it counts. The loopback address is always known.

var hereToHere = wayKey{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.1")}

// An answer counts for pathAge if the link address is known, else for lookFirst.
func TestWaysAreKept(t *testing.T) {
	for _, c := range []struct {
		known lookup.Knowledge
		after time.Duration
		asked bool
	}{
		{lookup.Known, 0, false}, {lookup.Known, pathAge - 1, false}, {lookup.Known, pathAge, true},
		{lookup.Unknown, 0, false}, {lookup.Unknown, lookFirst - 1, false}, {lookup.Unknown, lookFirst, true},
		{lookup.Unanswered, lookFirst - 1, false}, {lookup.Unanswered, lookFirst, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			w := &way{known: c.known, looked: begin}
			n := &neighbours{ways: map[wayKey]*way{hereToHere: w}}
			time.Sleep(c.after)
			known, err := n.look(hereToHere)
			if asked := !w.looked.Equal(begin); asked != c.asked || err != nil {
				t.Errorf("%v after %v: asked %v, %v", c.known, c.after, asked, err)
			}
			if want := c.asked || c.known == lookup.Known; known != want {
				t.Errorf("%v after %v: known %v, want %v", c.known, c.after, known, want)
			}
		})
	}
}

// The system's failure to learn a link address counts if it follows a packet of ours.
func TestWaysUnanswered(t *testing.T) {
	const failed = syscall.EHOSTUNREACH
	for ago, want := range map[time.Duration]error{0: failed, askTime - 1: failed, askTime: nil} {
		synctest.Test(t, func(t *testing.T) {
			w := &way{known: lookup.Unanswered, solicited: time.Now()}
			n := &neighbours{ways: map[wayKey]*way{hereToHere: w}}
			time.Sleep(ago)
			w.looked = time.Now()
			if known, err := n.look(hereToHere); known || !errors.Is(err, want) {
				t.Errorf("%v after the packet: %v, %v, want %v", ago, known, err, want)
			}
		})
	}
}

// At most maxPaths answers are kept.
func TestWaysAreBounded(t *testing.T) {
	n := &neighbours{ways: map[wayKey]*way{}}
	for i := range maxPaths - 1 {
		n.ways[wayKey{src: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})}] = &way{}
	}
	for _, want := range []int{maxPaths, maxPaths, 1} {
		if want == 1 {
			delete(n.ways, hereToHere)
			n.ways[wayKey{}] = &way{}
		}
		if known, err := n.look(hereToHere); !known || err != nil || len(n.ways) != want {
			t.Errorf("%d ways, want %d; %v, %v", len(n.ways), want, known, err)
		}
	}
}

// One packet in solicitEvery is sent, whoever asks.
func TestWaysAreSolicitedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &neighbours{}
		if known, err := n.look(hereToHere); !known || err != nil {
			t.Errorf("%v, %v", known, err)
		}
		w := n.ways[hereToHere]
		for _, c := range []struct {
			wait time.Duration
			sent bool
		}{{0, true}, {0, false}, {solicitEvery - 1, false}, {1, true}, {0, false}} {
			time.Sleep(c.wait)
			before := w.solicited
			w.solicited = time.Time{}
			if n.solicit(t.Context(), hereToHere) {
				t.Error("this host refuses to send")
			}
			if sent := !w.solicited.IsZero(); sent != c.sent || sent != w.soliciting.Equal(time.Now()) && c.wait > 0 {
				t.Errorf("after %v: sent %v, want %v (%v)", c.wait, sent, c.sent, before)
			}
		}
	})
}

// A wait ends when the address is known, and with its context.
func TestWaysAreAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &neighbours{}
		begin := time.Now()
		if err := n.await(t.Context(), hereToHere); err != nil || time.Since(begin) != lookFirst {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := n.await(ctx, hereToHere); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
}

// The errno of a way is that of the route; a wait that has ended is ETIMEDOUT.
func TestWayErrors(t *testing.T) {
	id := &ID{binding: binding{remote: netip.MustParseAddrPort("192.0.2.1:7")}}
	id.mu.Lock()
	defer id.mu.Unlock()
	for err, want := range map[error]error{
		nil: nil, context.DeadlineExceeded: syscall.ETIMEDOUT, syscall.EACCES: syscall.EACCES,
		errUnanswered: syscall.EHOSTUNREACH, fmt.Errorf("x: %w", syscall.ENETUNREACH): syscall.ENETUNREACH,
	} {
		got := id.wayError(err, 3*time.Second)
		if !errors.Is(got, want) || got != nil && !strings.Contains(got.Error(), "192.0.2.1") {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
		if want == syscall.ETIMEDOUT && !strings.Contains(got.Error(), " in 3s: ") {
			t.Errorf("%v", got)
		}
	}
	ended := 0
	id.stopReaching = func() { ended++ }
	id.endReach()
	id.endReach()
	if ended != 1 || id.stopReaching != nil {
		t.Errorf("ended %d times", ended)
	}
}

// The names of calls and states in errors.
func TestClausesOfErrors(t *testing.T) {
	for n, want := range []string{"", "IDLE", "IDLE or ADDR_QUERY", "IDLE, ADDR_QUERY or ADDR_RESOLVED",
		"IDLE, ADDR_QUERY, ADDR_RESOLVED or ROUTE_QUERY"} {
		if got := stateList([]state{stIdle, stAddrQuery, stAddrResolved, stRouteQuery}[:n]); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for event, want := range map[EventType]string{
		EventAddrResolved: "resolve_addr", EventAddrError: "resolve_addr", EventRouteResolved: "resolve_route",
		EventRouteError: "resolve_route", EventConnectRequest: "connect", EventConnectResponse: "connect",
		EventConnectError: "connect", EventUnreachable: "connect", EventRejected: "connect", EventEstablished: "connect",
		EventDisconnected: "disconnect", EventTimewaitExit: "disconnect", EventMulticastJoin: "join_multicast",
		EventMulticastError: "join_multicast", EventAddrInfoResolved: "resolve_addrinfo",
		EventAddrInfoError: "resolve_addrinfo", EventUser: "write_cm_event", EventAddrChange: "connect",
	} {
		if got := event.op(); got != want {
			t.Errorf("%v: %s, want %s", event, got, want)
		}
		aside := event == EventAddrChange || event == EventTimewaitExit || event == EventUser
		if event.aside() != aside {
			t.Errorf("%v: aside is %v", event, !aside)
		}
	}
	for op, want := range map[string][]EventType{
		"resolve_addr":  nil,
		"resolve_route": {EventAddrResolved},
		"connect":       {EventAddrResolved, EventRouteResolved},
		"disconnect":    {EventAddrResolved, EventRouteResolved, EventConnectResponse, EventEstablished},
	} {
		var got []EventType
		for event := EventAddrResolved; event <= EventUser; event++ {
			if event.before(op) {
				got = append(got, event)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("before %s: %v, want %v", op, got, want)
		}
	}
}

// The error of an event is of its type and its status.
func TestErrorsOfEvents(t *testing.T) {
	cause := errors.New("the cause")
	for _, c := range []struct {
		event *Event
		errno syscall.Errno
		text  string
	}{
		{&Event{Type: EventEstablished}, 0, ""},
		{&Event{Type: EventDeviceRemoval}, syscall.ENODEV, "removed"},
		{&Event{Type: EventRejected, Status: 28}, syscall.ECONNREFUSED, "reason"},
		{&Event{Type: EventRejected, Status: 0}, syscall.ECONNREFUSED, "refused, reason"},
		{&Event{Type: EventRejected, Status: -int(syscall.ECONNRESET)}, syscall.ECONNREFUSED, "the peer refused"},
		{&Event{Type: EventUnreachable, Status: -int(syscall.ETIMEDOUT)}, syscall.ETIMEDOUT, syscall.ETIMEDOUT.Error()},
		{&Event{Type: EventUnreachable, Status: -int(syscall.ETIMEDOUT), cause: cause}, syscall.ETIMEDOUT, "the cause"},
		{&Event{Type: EventUnreachable, Status: 2}, syscall.Errno(2), "the peer answered"},
		{&Event{Type: EventAddrError, Status: -int(syscall.ENODEV)}, syscall.ENODEV, syscall.ENODEV.Error()},
	} {
		c.event.ID = &ID{ps: PSTCP}
		err := c.event.Err()
		if c.errno == 0 {
			if err != nil {
				t.Errorf("%v: %v", c.event.Type, err)
			}
		} else if err == nil || errnoOf(err) != c.errno || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v %d: %v, want %v", c.event.Type, c.event.Status, err, c.errno)
		}
	}
	if err := (*Event)(nil).Ack(); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("no event: %v", err)
	}
	if errnoOf(errors.New("x")) != syscall.EIO || errnoOf(&fault{"x", syscall.EPERM}) != syscall.EPERM {
		t.Error("errnoOf")
	}
}
