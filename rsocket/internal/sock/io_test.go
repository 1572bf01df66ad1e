package sock

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/internal/rs"
	"github.com/verbena-rdma/verbena/verbs"
)

// ioCalls are the calls that transfer data.
var ioCalls = map[string]func(st *Stream, p WaitMode) (int, error){
	"recv":     func(st *Stream, p WaitMode) (int, error) { return st.Recv(make([]byte, 4), 0, p) },
	"send":     func(st *Stream, p WaitMode) (int, error) { return st.Send([]byte("data"), p) },
	"send all": func(st *Stream, p WaitMode) (int, error) { return st.SendAll([][]byte{[]byte("data")}, p) },
	"iowrite":  func(st *Stream, p WaitMode) (int, error) { return st.IOWrite([]byte("data"), 0, p) },
}

// A call on a stream without a connection, and one without waiting that another one is before, transfers nothing.
func TestCallsThatCannotBegin(t *testing.T) {
	for name, call := range ioCalls {
		st := NewStream(nil, Options{})
		if n, err := call(st, WaitMode{}); n != 0 || !errors.Is(err, syscall.ENOTCONN) {
			t.Errorf("%s without a connection: %d bytes, %v", name, n, err)
		}
		st.reading.lock()
		st.writing.lock()
		if n, err := call(st, WaitMode{Nonblock: true}); n != 0 || !errors.Is(err, syscall.EAGAIN) {
			t.Errorf("%s behind another call: %d bytes, %v", name, n, err)
		}
		st.reading.unlock()
		st.writing.unlock()
		st.state, st.err = streamFailed, syscall.ECONNREFUSED
		if n, err := call(st, WaitMode{}); n != 0 || !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s after a connection that could not be made: %d bytes, %v", name, n, err)
		}
		st.closed = true
		if n, err := call(st, WaitMode{}); n != 0 || !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s after Close: %d bytes, %v", name, n, err)
		}
	}
}

// A deadline is for the directions that are asked for, until it is taken back.
func TestDeadlinesOfDirections(t *testing.T) {
	past := time.Now().Add(-time.Second)
	for _, want := range [][2]bool{{false, false}, {true, false}, {false, true}, {true, true}} {
		st := NewStream(nil, Options{})
		d := NewDatagram(nil, true, Options{}.WithDefaults())
		ok(t, st.SetDeadline(past, want[0], want[1]))
		ok(t, d.SetDeadline(past, want[0], want[1]))
		for _, modes := range [][2]WaitMode{{st.Reading(), st.Writing()}, {d.Reading(), d.Writing()}} {
			if modes[0].expired() != want[0] || modes[1].expired() != want[1] {
				t.Errorf("%v: expired %v and %v", want, modes[0].expired(), modes[1].expired())
			}
		}
		ok(t, st.SetDeadline(time.Time{}, true, true))
		if r, w := st.Reading(), st.Writing(); r.expired() || w.expired() {
			t.Errorf("%v: the deadlines are still there", want)
		}
	}
}

// The first Close says so, and no other.
func TestStreamClosesOnce(t *testing.T) {
	host := hosted(t)
	for range 2 {
		st := NewStream(JoinHub(host), Options{})
		for i := range 3 {
			if first := st.Close(0); first != (i == 0) {
				t.Errorf("call %d is the first: %v", i+1, first)
			}
		}
	}
}

// Close wakes the reader and the writer. Nothing is sent afterwards.
func TestDatagramCloseEndsWaits(t *testing.T) {
	d := NewDatagram(JoinHub(hosted(t)), true, Options{}.WithDefaults())
	ok(t, d.Bind(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), 0)))
	d.Close()
	if len(d.read.waiter.C) == 0 || len(d.write.waiter.C) == 0 {
		t.Errorf("%d wake-ups of the reader, %d of the writer", len(d.read.waiter.C), len(d.write.waiter.C))
	}
	_, err := d.SendTo([]byte("x"), netip.MustParseAddrPort("127.0.0.1:9"), WaitMode{})
	if !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// Requests that are flushed after a failure of the QP, of which no other completion tells, are no end of the stream.
func TestFlushAfterAFailureIsAnError(t *testing.T) {
	for first, want := range map[verbs.WCStatus]error{
		verbs.WCWRFlushErr: nil, verbs.WCFatalErr: syscall.ECONNRESET, verbs.WCRetryExcErr: syscall.ETIMEDOUT,
	} {
		st := NewStream(nil, Options{})
		st.state, st.m = streamConnected, rs.New(rs.Params{SQ: 16, RQ: 16, SendBuf: 4096, RecvBuf: 4096})
		wc := verbs.WC{Status: verbs.WCWRFlushErr, Cause: &verbs.WCError{Status: verbs.WCWRFlushErr}}
		if first != verbs.WCWRFlushErr {
			wc.Cause.First = &verbs.WCError{Status: first}
		}
		st.mu.Lock()
		st.failed(&wc)
		if got := st.state == streamFailed; got != (want != nil) || want != nil && !errors.Is(st.err, want) {
			t.Errorf("after %v: failed %v, %v, want %v", first, got, st.err, want)
		}
		if want == nil && !st.m.EOF() {
			t.Error("after the end of the connection: no end of the stream")
		}
		st.mu.Unlock()
	}
}

// A wait that began without a deadline ends at one that is set later, whatever deadlines there were before.
func TestDeadlineOfAnEarlierWait(t *testing.T) {
	var d deadline
	d.set(time.Now().Add(time.Hour))
	d.set(time.Time{})
	over := d.wait()
	select {
	case <-over:
		t.Error("the wait ends without a deadline")
	default:
	}
	d.set(time.Now().Add(-time.Second))
	select {
	case <-over:
	default:
		t.Error("the wait goes on after the deadline")
	}
}

// Failed requests of a stream that has failed, or whose peer is gone, change nothing and wake nobody.
func TestFailuresAfterTheEnd(t *testing.T) {
	for name, end := range map[string]func(st *Stream){
		"the stream has failed": func(st *Stream) { st.state, st.err = streamFailed, syscall.EPROTO },
		"the peer is gone":      func(st *Stream) { st.m.Disconnect() },
	} {
		for _, status := range []verbs.WCStatus{verbs.WCWRFlushErr, verbs.WCRetryExcErr} {
			st := NewStream(nil, Options{})
			st.state, st.m = streamConnected, rs.New(rs.Params{SQ: 16, RQ: 16, SendBuf: 4096, RecvBuf: 4096})
			end(st)
			before, err, over := st.state, st.err, st.m.Disconnected()
			st.mu.Lock()
			st.failed(&verbs.WC{Status: status})
			if st.state != before || st.err != err || st.m.Disconnected() != over || len(st.read.waiter.C) != 0 {
				t.Errorf("%s, %v: state %d, %v, the end of the connection %v, %d wake-ups", name, status, st.state, st.err,
					st.m.Disconnected(), len(st.read.waiter.C))
			}
			st.mu.Unlock()
		}
	}
}

// A reader or writer that waits is woken when it can go on, though another call has processed the completion.
func TestNotifyWakesThoseThatCanGoOn(t *testing.T) {
	for name, c := range map[string]struct {
		change      func(st *Stream)
		read, write int // wake-ups
	}{
		"nothing": {func(*Stream) {}, 0, 0},
		"the end": {func(st *Stream) { st.m.Disconnect() }, 1, 1},
		"failure": {func(st *Stream) { st.state = streamFailed }, 1, 1},
		"message": {func(st *Stream) { ok(t, st.m.OnMessage(rs.Word(rs.OpData, 1), 1)) }, 1, 0},
	} {
		for _, waits := range []bool{true, false} {
			st := NewStream(nil, Options{})
			st.state, st.m = streamConnected, rs.New(rs.Params{SQ: 16, RQ: 16, SendBuf: 4096, RecvBuf: 4096})
			c.change(st)
			other := NewWaiter()
			st.Watch(&other)
			st.mu.Lock()
			st.read.waiter.on, st.write.waiter.on = waits, waits
			st.notify()
			st.mu.Unlock()
			if len(other.C) != 1 {
				t.Errorf("%s: %d wake-ups of another waiter, which looks for itself", name, len(other.C))
			}
			read, write := c.read, c.write
			if !waits {
				read, write = 0, 0
			}
			if r, w := len(st.read.waiter.C), len(st.write.waiter.C); r != read || w != write {
				t.Errorf("%s, they wait %v: %d wake-ups of the reader, %d of the writer, want %d and %d", name, waits, r, w,
					read, write)
			}
		}
	}
}

// A deadline at the present time has passed.
func TestDeadlineThatIsNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d deadline
		if d.set(time.Now()); !d.expired() {
			t.Error("the deadline is still to come")
		}
		if d.set(time.Now().Add(time.Nanosecond)); d.expired() {
			t.Error("a deadline in 1 ns has passed")
		}
		time.Sleep(time.Nanosecond)
		if synctest.Wait(); !d.expired() {
			t.Error("the deadline has not passed after 1 ns")
		}
	})
}

// A copy to a stream ends with the error of the stream.
func TestCopyToAStreamThatFails(t *testing.T) {
	st := NewStream(nil, Options{})
	n, err := st.CopyFrom(strings.NewReader("hello"), func() WaitMode { return WaitMode{} })
	if n != 0 || !errors.Is(err, syscall.ENOTCONN) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// A copy of nothing needs no stream, one of a single byte does.
func TestCopyOfNothing(t *testing.T) {
	for text, want := range map[string]error{"": nil, "x": syscall.ENOTCONN} {
		st := NewStream(nil, Options{})
		n, err := st.CopyFrom(strings.NewReader(text), func() WaitMode { return WaitMode{} })
		if n != 0 || !errors.Is(err, want) {
			t.Errorf("%q: %d bytes, %v", text, n, err)
		}
	}
}

// A program reads the bytes that arrived before a failure, then gets the error.
func TestDataBeforeAFailure(t *testing.T) {
	for _, n := range []uint32{1, 2} {
		st := NewStream(nil, Options{})
		st.m = rs.New(rs.Params{SQ: 16, RQ: 16, SendBuf: 4096, RecvBuf: 4096})
		st.res.rbuf = make([]byte, 4096)
		ok(t, st.m.OnMessage(rs.Word(rs.OpData, n), n))
		st.state, st.err, st.established = streamFailed, syscall.EPROTO, true
		for range n {
			if got, err := st.Recv(make([]byte, 1), 0, WaitMode{}); got != 1 || err != nil {
				t.Errorf("of %d bytes: %d, %v", n, got, err)
			}
		}
		if got, err := st.Recv(make([]byte, 1), 0, WaitMode{}); got != 0 || !errors.Is(err, syscall.EPROTO) {
			t.Errorf("after %d bytes: %d, %v", n, got, err)
		}
	}
}
