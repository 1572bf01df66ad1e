package sock

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/internal/rs"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
)

// connecting gives the test a stream that has begun to connect. The device has no way to the peer, and nobody reads the
// events: the test tells the stream what has happened.
func connecting(t *testing.T, f func(st *Stream)) {
	t.Helper()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	dev, err := rdmatest.New(rdmatest.Config{RealTime: true}).NewDevice("a", netip.MustParseAddr("198.18.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	host := rdmacm.NewHost(dev)
	defer func() { ok(host.Close()) }()
	ch, err := host.CreateEventChannel()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { ok(ch.Close()) }()
	id, err := host.CreateID(ch, rdmacm.PSTCP, nil)
	if err != nil {
		t.Fatal(err)
	}
	st := NewStream(nil, Options{})
	ok(st.Connect(id, netip.MustParseAddrPort("127.0.0.1:7")))
	f(st)
	for ev, err := ch.TryGetEvent(); err == nil; ev, err = ch.TryGetEvent() {
		ok(ev.Ack())
	}
	ok(id.Close())
}

// An address is looked for seven times with ever longer time-outs, and only silence is a reason to look again.
func TestR_SOCK_15_ResolveTries(t *testing.T) {
	for reason, want := range map[syscall.Errno]int{syscall.ETIMEDOUT: 7, syscall.ENETUNREACH: 1} {
		connecting(t, func(st *Stream) {
			tries := 1
			for timeout := time.Second; ; timeout, tries = 2*timeout, tries+1 {
				if got := st.resolveTimeout(); got != timeout {
					t.Errorf("try %d waits %v, want %v", tries, got, timeout)
				}
				st.onEvent(&cmEvent{Type: rdmacm.EventAddrError, Err: reason})
				if st.state != streamConnecting {
					break
				}
			}
			if tries != want || !errors.Is(st.err, reason) {
				t.Errorf("%v: %d tries, want %d; %v", reason, tries, want, st.err)
			}
		})
	}
}

// A connection that ends while it is made fails with the reason: the peer, or the device of this side.
func TestConnectEnds(t *testing.T) {
	for event, want := range map[rdmacm.EventType]syscall.Errno{
		rdmacm.EventDisconnected:  syscall.ECONNRESET,
		rdmacm.EventDeviceRemoval: syscall.ENODEV,
	} {
		connecting(t, func(st *Stream) {
			if st.onEvent(&cmEvent{Type: event}); !errors.Is(st.err, want) {
				t.Errorf("%v: %v, want %v", event, st.err, want)
			}
		})
	}
}

// The end of a connection wakes the waiters of the stream although no completion comes.
func TestDisconnectedWakesAll(t *testing.T) {
	for _, event := range []rdmacm.EventType{rdmacm.EventDisconnected, rdmacm.EventDeviceRemoval} {
		id := must(hosted(t).CreateID(nil, rdmacm.PSTCP, nil))(t)
		ok(t, id.BindAddr(ownAddr))
		st := NewStream(nil, Options{})
		st.state, st.m = streamConnected, rs.New(rs.Params{SQ: 16, RQ: 16, SendBuf: 4096, RecvBuf: 4096})
		st.res.cq = must(id.Verbs().CreateCQ(1, nil))(t)
		w := NewWaiter()
		st.Watch(&w)
		st.onEvent(&cmEvent{Type: event})
		if len(w.C) == 0 || len(st.read.waiter.C) == 0 || len(st.write.waiter.C) == 0 || !st.m.Disconnected() {
			t.Errorf("%v: %d, %d and %d wake-ups of the waiter, the reader and the writer", event, len(w.C),
				len(st.read.waiter.C), len(st.write.waiter.C))
		}
		ok(t, st.res.cq.Close())
		ok(t, id.Close())
	}
}

// A call during the connection attempt ends at its deadline, although the stream has no device yet.
func TestDeadlineWhileConnecting(t *testing.T) {
	connecting(t, func(st *Stream) {
		ok(t, st.SetDeadline(time.Now().Add(time.Millisecond), true, true))
		if n, err := st.Recv(make([]byte, 1), 0, st.Reading()); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("recv: %d bytes, %v", n, err)
		}
		if n, err := st.Send([]byte("x"), st.Writing()); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("send: %d bytes, %v", n, err)
		}
	})
}

// A wait for the connection fails if the stream is closed meanwhile.
func TestClosedWhileConnecting(t *testing.T) {
	connecting(t, func(st *Stream) {
		st.closed = true // as Close does first
		if err := st.AwaitConnection(t.Context()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%v", err)
		}
	})
}

// Late events of an attempt to connect that has failed, or of a stream that is closed, begin nothing.
func TestEventsAfterTheEnd(t *testing.T) {
	for _, over := range []streamState{streamFailed, streamClosed} {
		connecting(t, func(st *Stream) {
			st.state = over
			st.onEvent(&cmEvent{Type: rdmacm.EventAddrError, Err: syscall.ETIMEDOUT})
			if st.tries != 0 || st.state != over {
				t.Errorf("state %d: the address is looked for again, state %d", over, st.state)
			}
		})
	}
}

// Another acknowledgement of a connection that is made already has no effect.
func TestEstablishedTwice(t *testing.T) {
	st := NewStream(nil, Options{})
	st.id = must(hosted(t).CreateID(nil, rdmacm.PSTCP, nil))(t)
	st.state, st.established = streamConnected, true
	if st.onEvent(&cmEvent{Type: rdmacm.EventEstablished}); st.state != streamConnected || st.err != nil {
		t.Errorf("state %d, %v", st.state, st.err)
	}
	ok(t, st.id.Close())
}

// A wait for the connection goes on when something else wakes it, ends with its context, and finds a connection that
// was made meanwhile.
func TestAwaitConnection(t *testing.T) {
	for name, c := range map[string]struct {
		change func(st *Stream, cancel func())
		want   error
	}{
		"the connection is made": {func(st *Stream, _ func()) { st.state, st.established = streamConnected, true }, nil},
		"the attempt fails":      {func(st *Stream, _ func()) { st.fail(syscall.EPROTO) }, syscall.EPROTO},
		"the context ends":       {func(_ *Stream, cancel func()) { cancel() }, context.Canceled},
		"made at the last moment": {func(st *Stream, cancel func()) {
			cancel()
			st.state, st.established = streamConnected, true
		}, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			st := NewStream(nil, Options{})
			st.state = streamConnecting
			ended := make(chan error, 1)
			go func() { ended <- st.AwaitConnection(ctx) }()
			wake := func(f func()) {
				synctest.Wait()
				st.mu.Lock()
				defer st.mu.Unlock()
				f()
				st.wakeAll()
			}
			wake(func() {})
			synctest.Wait()
			select {
			case err := <-ended:
				t.Fatalf("%s: the wait has ended before: %v", name, err)
			default:
			}
			wake(func() { c.change(st, cancel) })
			if err := <-ended; !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
		})
	}
}

// A call goes on waiting for the connection when something else wakes it.
func TestCallsWaitForTheConnection(t *testing.T) {
	for name, call := range ioCalls {
		synctest.Test(t, func(t *testing.T) {
			st := NewStream(nil, Options{})
			st.state = streamConnecting
			ended := make(chan error, 1)
			go func() {
				_, err := call(st, WaitMode{})
				ended <- err
			}()
			for range 2 {
				synctest.Wait()
				st.mu.Lock()
				st.wakeAll()
				st.mu.Unlock()
			}
			synctest.Wait()
			if len(ended) != 0 {
				t.Fatalf("%s has ended before: %v", name, <-ended)
			}
			st.mu.Lock()
			st.fail(syscall.EPROTO)
			st.mu.Unlock()
			if err := <-ended; !errors.Is(err, syscall.EPROTO) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// The route is looked for with a time-out of its own, however long the address took.
func TestTriesOfTheRouteBeginAnew(t *testing.T) {
	connecting(t, func(st *Stream) {
		st.tries = 3
		if st.onEvent(&cmEvent{Type: rdmacm.EventAddrResolved}); st.resolveTimeout() != time.Second {
			t.Errorf("the time-out is %v", st.resolveTimeout())
		}
	})
}

// A route that the program gives is used instead of one that is looked for.
func TestRouteOfTheProgram(t *testing.T) {
	connecting(t, func(st *Stream) {
		st.SetRoute([]byte{1, 2, 3})
		st.onEvent(&cmEvent{Type: rdmacm.EventAddrResolved})
		if st.err == nil || !strings.Contains(st.err.Error(), "set_option") {
			t.Errorf("%v, want that of a route of 3 bytes", st.err)
		}
	})
}
