package iwtcp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/fdset"
	"github.com/verbena-rdma/verbena/internal/iwarp"
	"github.com/verbena-rdma/verbena/internal/link/pcap"
	"github.com/verbena-rdma/verbena/internal/refuse"
	"github.com/verbena-rdma/verbena/internal/transport"
	wire "github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// patient sets how long peers have to close their side.
func patient(t *testing.T, d time.Duration) {
	t.Helper()
	old := endTime
	t.Cleanup(func() { endTime = old })
	endTime = d
}

// The end of a connection is reported when the QP is in ERR. The peer may still have to close its side.
func TestReportBeforeThePeerClosesItsSide(t *testing.T) {
	patient(t, time.Hour)
	reported := make(chan bool, 1)
	q, peer, _ := responder(t, func(silent bool) { reported <- silent })
	if _, err := peer.Write([]byte{0, 1, 0, 0}); err != nil { // the length of no ULPDU
		t.Fatal(err)
	}
	if <-reported {
		t.Error("a peer that has sent a bad segment counts as one that does not answer")
	}
	q.mu.Lock()
	if q.fd < 0 || !q.shut || q.timer == nil {
		t.Errorf("socket %d, shut %v, timer %v", q.fd, q.shut, q.timer)
	}
	q.mu.Unlock()
	ended(t, peer)
	_ = peer.Close()
	until(t, "the socket is closed", func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.fd < 0 && q.timer == nil
	})
	q.Disconnect()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.timer != nil {
		t.Error("Disconnect after the end waits for a peer")
	}
}

// A second Disconnect does not give the peer more time. Without a connection it does nothing.
func TestSecondDisconnect(t *testing.T) {
	patient(t, time.Hour)
	e := newEnd(t, new(Device), 1, 8)
	e.Disconnect()
	startWith(t, e.QP, iwarp.Params{Initiator: true}, func(bool) {})
	e.Disconnect()
	first := e.timer
	if e.Disconnect(); first == nil || e.timer != first {
		t.Errorf("timers %v and %v", first, e.timer)
	}
	if e.Fail(); e.timer != nil {
		t.Error("the timer is left after the end")
	}
}

// A silent peer is cut off. The posted work requests complete with an error, whose cause is RETRY_EXC_ERR.
func TestCutOfASilentPeer(t *testing.T) {
	d, r := new(Device), &recorder{}
	e := newEnd(t, d, 1, 8)
	reported := make(chan bool, 2)
	startWith(t, e.QP, iwarp.Params{Initiator: true, ORD: 1}, func(silent bool) { reported <- silent })
	if err := e.post(transport.OpRead, 8, e); err != nil {
		t.Fatal(err)
	}
	d.SetTaps([]Tap{r})
	m := e.m
	e.cut(new(iwarp.QP))
	if e.State() != transport.RTS {
		t.Error("the timer of another connection ends this one")
	}
	e.cut(m)
	e.cut(m)
	e.send.expect(t, transport.WRFlushErr)
	if c := e.send.done[0].Cause; c == nil || c.First == nil || c.First.Status != transport.RetryExcErr {
		t.Errorf("the cause is %+v", c)
	}
	if !<-reported {
		t.Error("the peer counts as one that answers")
	}
	if len(r.all) != 1 || r.all[0].Flags != pcap.FlagFIN|pcap.FlagACK || !r.all[0].Sent {
		t.Errorf("seen: %+v", r.all)
	}
	d.SetTaps(nil)
	e.loop.turn.Lock()
	e.onEvent(e.loop.buf, -1, false)
	e.loop.turn.Unlock()
	if e.eof || len(reported) != 0 {
		t.Errorf("an event after the end: eof %v, %d reports", e.eof, len(reported))
	}
}

// A peer that reads slowly gets all bytes, and each is counted once. Room for writing is an event only while the socket
// is full.
func TestPeerThatReadsSlowly(t *testing.T) {
	const size = 16 << 20
	e := newEnd(t, new(Device), 1, size)
	peer, own := accepted(t)
	_ = own.SetWriteBuffer(64 << 10)
	if err := e.Start(&Conn{tcp: own, Params: iwarp.Params{IRD: 1}}, func(bool) {}); err != nil {
		t.Fatal(err)
	}
	q := e.QP
	if _, err := peer.Write(readRequest(e.reg.RKey, size)); err != nil {
		t.Fatal(err)
	}
	until(t, "the socket is full", func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.room
	})
	var n atomic.Int64
	go func() {
		buf := make([]byte, size)
		for {
			k, err := peer.Read(buf)
			if n.Add(int64(k)); err != nil {
				return
			}
		}
	}()
	until(t, "the peer has all bytes", func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return n.Load() > size && n.Load() == int64(q.trace.sent)-1 && !q.room
	})
}

// The bytes of a stream are counted one by one, and those of all connections of a QP together.
func TestBytesOfTwoConnections(t *testing.T) {
	e := newEnd(t, new(Device), 1, 8)
	rx := func(n uint64) {
		t.Helper()
		until(t, "the bytes are counted", func() bool { return e.View().Counters.RxBytes == n })
	}
	peer := startWith(t, e.QP, iwarp.Params{}, func(bool) {})
	rx(0)
	for n := range uint64(3) {
		if _, err := peer.Write([]byte{0}); err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			rx(1)
		}
	}
	rx(3)
	packets := e.View().Counters
	e.Reset()
	if err := e.Init(0); err != nil {
		t.Fatal(err)
	}
	rx(3)
	peer = startWith(t, e.QP, iwarp.Params{Initiator: true}, func(bool) {})
	if _, err := peer.Write([]byte{0}); err != nil {
		t.Fatal(err)
	}
	rx(4)
	if c := e.View().Counters; c.RxPackets <= packets.RxPackets || c.TxPackets <= packets.TxPackets {
		t.Errorf("%+v, before %+v", c, packets)
	}
	_ = peer.Close()
}

// A frame of the start-up may end with a piece of one byte.
func TestFrameInPieces(t *testing.T) {
	peer, own := accepted(t)
	_, frame := iwarp.Initiate(0, iwarp.Options{})
	s, step := iwarp.Respond(0), make(chan iwarp.Step, 1)
	go func() {
		got, _ := readFrame(own, s)
		step <- got
	}()
	raw, err := own.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	unread := func() (n int) {
		_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCINQ) })
		return n
	}
	if _, err := peer.Write(frame[:len(frame)-1]); err != nil {
		t.Fatal(err)
	}
	until(t, "the first piece is read", func() bool { return len(step) == 0 && unread() == 0 })
	if _, err := peer.Write(frame[len(frame)-1:]); err != nil {
		t.Fatal(err)
	}
	_ = own.SetReadDeadline(time.Now().Add(time.Minute))
	if got := <-step; got != iwarp.Asked {
		t.Errorf("step %v", got)
	}
	_ = own.Close()
}

// A dial ends with its context, also during the start-up, and closes the connection.
func TestDialEndsWithItsContext(t *testing.T) {
	l, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(loopbackAny))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := Dial(ctx, netip.AddrPortFrom(loopbackAny.Addr(), 0), plain(l.Addr()), iwarp.Options{})
		failed <- err
	}()
	c, err := l.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	ended(t, c)
}

// The places for connections that wait are at most a quarter of the descriptors, at least 4. A source has a quarter of
// them.
func TestPlacesByTheLimitOfDescriptors(t *testing.T) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
			t.Error(err)
		}
	}()
	for _, c := range []struct{ limit, most, places int }{{400, 100, 100}, {400, 101, 100}, {400, 40, 40}, {200, 100, 50},
		{4, 100, 4}, {0, 100, 4}} {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(c.limit), Max: old.Max}); err != nil {
			t.Fatal(err)
		}
		n, w := Places(c.most), newWaiting(c.most)
		if c.limit == 0 && fdset.Limit() == 0 {
			c.places = c.most // an unknown limit
		}
		if n != c.places || w.most != n || w.share != n/4 || w.patience != patience {
			t.Errorf("%+v: %d places, %+v", c, n, w)
		}
	}
}

// A port counts as free if the process has no descriptor to try it.
func TestPortIsFreeWithoutDescriptors(t *testing.T) {
	l, at, _ := listener(t)
	defer l.Close()
	if PortIsFree(at) {
		t.Error("the port of a listener is free")
	}
	free, refused := make(chan bool, 1), make(chan error, 1)
	go func() { // not by the limit: other goroutines may close a descriptor meanwhile
		if err := refuse.Thread(unix.EMFILE, unix.SYS_SOCKET); err != nil {
			refused <- err
			return
		}
		free <- PortIsFree(at)
	}()
	select {
	case err := <-refused:
		t.Skip(err)
	case is := <-free:
		if !is {
			t.Error("a port that cannot be tried is in use")
		}
	}
}

// closer counts how often it was closed.
type closer int

func (c *closer) Close() error {
	*c++
	return nil
}

// A source takes the place of another one that has at least two connections more, at once. Otherwise only a connection
// that has waited for long ends.
func TestPlacesOfSources(t *testing.T) {
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	w := newWaiting(100)
	w.limit(4, 4, time.Hour)
	var closed closer
	enter := func(source netip.Addr, want bool, closes int) {
		t.Helper()
		if in := w.enter(&closed, source) != nil; in != want || int(closed) != closes {
			t.Errorf("%v has a place: %v, %d were closed, want %d", source, in, closed, closes)
		}
	}
	for range 4 {
		enter(a, true, 0)
	}
	enter(a, false, 0)
	enter(b, true, 1)  // 4 and 0
	enter(b, true, 2)  // 3 and 1
	enter(b, false, 2) // 2 and 2
	w.limit(4, 4, 0)
	enter(b, true, 3) // the oldest, of a: 1 and 3
	if w.number(a.String()) != 1 || w.number(b.String()) != 3 {
		t.Errorf("%d and %d", w.number(a.String()), w.number(b.String()))
	}
	w.limit(4, 4, time.Hour)
	enter(a, true, 4)  // 1 and 3: of b
	enter(a, false, 4) // 2 and 2
	w.close()
	if enter(a, false, 8); w.number("") != 0 {
		t.Errorf("%d are left", w.number(""))
	}
}

// A socket's error says that the peer does not answer if TCP has given up.
func TestErrorsOfPeersThatDoNotAnswer(t *testing.T) {
	for err, want := range map[error]bool{unix.ETIMEDOUT: true, unix.EHOSTUNREACH: true, unix.ENETUNREACH: true,
		unix.ECONNRESET: false, unix.EPIPE: false, nil: false} {
		if unanswered(err) != want {
			t.Errorf("%v: %v", err, !want)
		}
	}
}

// The receive of a message that a reset cuts off frees its place in a shared queue.
func TestResetWithinAMessage(t *testing.T) {
	e := newEnd(t, new(Device), 1, 8)
	e.RQ = transport.NewRecvQueue(1, 1, true, 1)
	if err := e.RQ.Post(1, []transport.SGE{e.sge(8)}); err != nil {
		t.Fatal(err)
	}
	p := &raw{TCPConn: startWith(t, e.QP, iwarp.Params{}, func(bool) {}), t: t}
	seg := make([]byte, wire.UntaggedLen+8)
	wire.PutUntagged(seg, wire.Send, true, 0, 1, 0)
	part := uint64(wire.LengthLen + wire.UntaggedLen + 4)
	p.send(wire.AppendFPDU(nil, seg, false)[:part])
	until(t, "a part of the message is received", func() bool { return e.View().Counters.RxBytes == part })
	if err := e.RQ.Post(2, nil); err == nil {
		t.Error("the receive of a message that is being received has left its place")
	}
	e.Reset()
	if err := e.RQ.Post(2, nil); err != nil {
		t.Errorf("after the reset: %v", err)
	}
}

// A QP without a connection that fails ends none: a tap sees nothing.
func TestFailWithoutAConnection(t *testing.T) {
	d, r := new(Device), &recorder{}
	d.SetTaps([]Tap{r})
	e := newEnd(t, d, 1, 8)
	if e.Fail(); len(r.all) != 0 || e.shut {
		t.Errorf("seen: %+v, shut %v", r.all, e.shut)
	}
}

// The end of a listener ends connections whose request has not come.
func TestListenerEndsSilentConnections(t *testing.T) {
	l, at, _ := listener(t)
	c := from(t, "127.0.0.1", at)
	l.waiting.reach(t, "", 1)
	if l.Close(); l.waiting.number("") != 0 {
		t.Error("the connection waits for its request")
	}
	ended(t, c)
}
