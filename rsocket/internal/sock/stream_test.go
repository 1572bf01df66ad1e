package sock

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/rs"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// The first failure of a stream is its error. One that is closed does not fail any more.
func TestFirstFailureCounts(t *testing.T) {
	st := NewStream(nil, Options{})
	st.mu.Lock()
	defer st.mu.Unlock()
	w := NewWaiter()
	st.others.add(&w)
	if st.fail(syscall.EPROTO); st.state != streamFailed || st.err != syscall.EPROTO || len(w.C) != 1 {
		t.Errorf("state %d, %v, %d wake-ups", st.state, st.err, len(w.C))
	}
	<-w.C
	if st.fail(syscall.ETIMEDOUT); st.err != syscall.EPROTO || len(w.C) != 0 {
		t.Errorf("after another failure: %v, %d wake-ups", st.err, len(w.C))
	}
	st.state, st.err = streamClosed, nil
	if st.fail(syscall.EPROTO); st.state != streamClosed || st.err != nil || len(w.C) != 0 {
		t.Errorf("after Close: state %d, %v", st.state, st.err)
	}
}

// A stream is over when it is closed, has failed or is disconnected, and not before.
func TestStreamThatIsOver(t *testing.T) {
	for state, want := range map[streamState]bool{
		streamNew: false, streamConnecting: false, streamConnected: false, streamFailed: true,
	} {
		st := NewStream(nil, Options{})
		st.state, st.m = state, rs.New(rs.Params{SQ: 16, RQ: 16, SendBuf: 4096, RecvBuf: 4096})
		if st.IsOver() != want {
			t.Errorf("state %d: over %v", state, st.IsOver())
		}
		st.m.Disconnect()
		if over := want || state == streamConnected; st.IsOver() != over {
			t.Errorf("state %d, disconnected: over %v", state, st.IsOver())
		}
		if st.closed = true; !st.IsOver() {
			t.Errorf("state %d, closed: not over", state)
		}
	}
}

// The error of a stream is told once. No error is not the one that is told.
func TestErrorIsToldOnce(t *testing.T) {
	st := NewStream(nil, Options{})
	if err := st.TakeError(); err != nil {
		t.Errorf("%v", err)
	}
	st.err = syscall.EPROTO
	if err := st.TakeError(); !errors.Is(err, syscall.EPROTO) {
		t.Errorf("%v", err)
	}
	if err := st.TakeError(); err != nil {
		t.Errorf("again: %v", err)
	}
}

// The errno of a connection that fails is that of its reason, or EIO. An error of connect is not wrapped again.
func TestErrnoOfAFailedConnection(t *testing.T) {
	own := Fail("connect", syscall.EPROTO, "a reason")
	other := Fail("resolve_addr", syscall.ENETUNREACH, "a reason")
	for _, c := range []struct {
		err  error
		want syscall.Errno
		same bool
	}{{own, syscall.EPROTO, true}, {other, syscall.ENETUNREACH, false}, {errors.New("x"), syscall.EIO, false}} {
		got := connectError(c.err)
		var e *verbs.Error
		if !errors.Is(got, c.want) || !errors.As(got, &e) || e.Op != "connect" || (got == c.err) != c.same {
			t.Errorf("%v has become %v", c.err, got)
		}
	}
	if got := ErrnoOf(other); got != syscall.ENETUNREACH {
		t.Errorf("errno %v", got)
	}
	for err, want := range map[error]syscall.Errno{
		fmt.Errorf("version 2: %w", rs.ErrVersion): syscall.ENOTSUP, errors.New("no data"): syscall.EPROTO,
	} {
		if got := versionError(err); !errors.Is(got, want) || !errors.Is(got, err) {
			t.Errorf("%v has become %v", err, got)
		}
	}
}

// A connection that cannot begin fails: the ID is closed, or has a path MTU that it does not take.
func TestConnectThatCannotBegin(t *testing.T) {
	host := hosted(t)
	id := must(host.CreateID(nil, rdmacm.PSTCP, nil))(t)
	ok(t, id.Close())
	st := NewStream(nil, Options{})
	err := st.Connect(id, netip.MustParseAddrPort("127.0.0.1:7"))
	if err == nil || st.state != streamFailed || st.err != err {
		t.Errorf("a closed ID: %v, state %d, %v", err, st.state, st.err)
	}
	ch := must(host.CreateEventChannel())(t)
	id = must(host.CreateID(ch, rdmacm.PSTCP, nil))(t)
	st = NewStream(nil, Options{PathMTU: 99})
	if err := st.Connect(id, netip.MustParseAddrPort("127.0.0.1:7")); !errors.Is(err, syscall.EINVAL) || st.err != err {
		t.Errorf("a bad path MTU: %v, state %d, %v", err, st.state, st.err)
	}
	st.closed = true
	if err := st.Connect(id, netip.MustParseAddrPort("127.0.0.1:7")); !errors.Is(err, syscall.EBADF) {
		t.Errorf("after Close: %v", err)
	}
	ok(t, errors.Join(id.Close(), ch.Close()))
}

// After Close a stream has no timer, no IO map, and no deadline can be set. Its waiters are woken.
func TestStreamCloseLeavesNothing(t *testing.T) {
	host := hosted(t)
	id := must(host.CreateID(nil, rdmacm.PSTCP, nil))(t)
	ok(t, id.BindAddr(ownAddr))
	st := NewStream(JoinHub(host), Options{SendBuf: 4096, RecvBuf: 4096}.WithDefaults())
	st.id = id
	st.mu.Lock()
	ok(t, st.setUp())
	st.state = streamConnected
	st.mu.Unlock()
	size := (len(st.res.mem) + blockAlign - 1) / blockAlign * blockAlign
	if len(slabs.of[size]) != 1 {
		t.Errorf("%d buffers of small streams", len(slabs.of[size]))
	}
	buf := make([]byte, 8)
	must(st.IOMap(buf, false, 0))(t)
	st.SetKeepalive(time.Hour)
	w := NewWaiter()
	st.Watch(&w)
	st.Close(0)
	if st.keepalive.Stop() || len(st.publish.maps) != 0 || len(w.C) != 1 || len(slabs.of[size]) != 0 {
		t.Errorf("%d IO maps, %d wake-ups, %d buffers", len(st.publish.maps), len(w.C), len(slabs.of[size]))
	}
	<-w.C
	if st.release(); len(w.C) != 0 { // once
		t.Error("it is released again")
	}
	if err := st.SetDeadline(time.Now(), true, true); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a deadline after Close: %v", err)
	}
	if err := st.IOUnmap(buf); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("the IO map after Close: %v", err)
	}
	st = NewStream(&Hub{users: 2}, Options{})
	st.Watch(&w)
	if st.release(); st.state != streamClosed || len(w.C) != 1 {
		t.Errorf("state %d, %d wake-ups by the release", st.state, len(w.C))
	}
}

// A stream has a receive for each message that the peer may have under way and for control messages, and a CQ for the
// completions of all requests.
func TestReceivesOfAStream(t *testing.T) {
	host := hosted(t)
	id := must(host.CreateID(nil, rdmacm.PSTCP, nil))(t)
	ok(t, id.BindAddr(ownAddr))
	st := NewStream(JoinHub(host), Options{SQSize: 20, RQSize: 100}.WithDefaults())
	st.id = id
	st.mu.Lock()
	ok(t, st.setUp())
	if st.unposted != 0 || st.res.cq.Cap() < 20+100+spareRecvs {
		t.Errorf("%d receives are not posted; the CQ has room for %d completions", st.unposted, st.res.cq.Cap())
	}
	ok(t, st.res.qp.Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, verbs.QPAttrState)) // the receives are flushed
	var wcs [256]verbs.WC
	flushed := 0
	await(t, func() bool {
		flushed += must(st.res.cq.Poll(wcs[:]))(t)
		return flushed >= 100+spareRecvs
	})
	if n := must(st.res.cq.Poll(wcs[:]))(t); n != 0 {
		t.Errorf("%d more receives than %d", n, flushed)
	}
	st.mu.Unlock()
	st.Close(0)
}

// The pieces of a message are those that have bytes.
func TestPiecesOfAMessage(t *testing.T) {
	id := must(hosted(t).CreateID(nil, rdmacm.PSTCP, nil))(t)
	ok(t, id.BindAddr(ownAddr))
	var r resources
	ok(t, r.register(id.PD(), &Options{SendBuf: 4096, RecvBuf: 4096, RQSize: 16}, false))
	for want, d := range []rs.Data{
		{}, {Buf: [2]rs.Span{{Off: 8, Len: 1}, {}}}, {Buf: [2]rs.Span{{Off: 4000, Len: 96}, {Off: 0, Len: 1}}},
	} {
		list := r.pieces(&d)
		if len(list) != want {
			t.Errorf("%+v has %d pieces", d, len(list))
		}
		for i, s := range list {
			if want := r.mrs[sbufMR].SGE(d.Buf[i].Off, d.Buf[i].Len); s != want {
				t.Errorf("piece %d of %+v: %+v, want %+v", i, d, s, want)
			}
		}
	}
	for _, mr := range r.mrs {
		if mr != nil {
			ok(t, mr.Close())
		}
	}
	r.free()
	ok(t, id.Close())
}

// The next interval of checks takes the place of the last one; without an interval there are none.
func TestKeepaliveIsTakenBack(t *testing.T) {
	st := NewStream(nil, Options{})
	st.SetKeepalive(time.Hour)
	first := st.keepalive
	st.SetKeepalive(1)
	if st.keepalive == nil || st.keepalive == first || first.Stop() {
		t.Error("the first timer still runs, or is the second one")
	}
	if st.SetKeepalive(0); st.keepalive != nil {
		t.Error("there is a timer without an interval")
	}
	st.state = streamClosed
	if st.SetKeepalive(time.Hour); st.keepalive != nil {
		t.Error("a closed stream has a timer")
	}
}

// Errors name a stream by its addresses, if it has an ID.
func TestNameOfAStream(t *testing.T) {
	id := must(hosted(t).CreateID(nil, rdmacm.PSTCP, nil))(t)
	ok(t, id.BindAddr(ownAddr))
	st := NewStream(nil, Options{})
	if got := st.name(); got != "stream" {
		t.Errorf("without an ID: %q", got)
	}
	st.id = id
	if got, want := st.name(), fmt.Sprintf("%v-%v", id.LocalAddr(), id.PeerAddr()); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	ok(t, id.Close())
}

// A peer that breaks the protocol ends the stream with EPROTO, though it has no ID yet.
func TestPeerBreaksTheProtocol(t *testing.T) {
	st := NewStream(nil, Options{})
	st.state = streamConnected
	st.mu.Lock()
	if st.breakOff(errors.New("x")); st.state != streamFailed || !errors.Is(st.err, syscall.EPROTO) {
		t.Errorf("state %d, %v", st.state, st.err)
	}
	st.mu.Unlock()
}
