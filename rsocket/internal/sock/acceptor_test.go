package sock

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// listening returns an acceptor on a host of its own. end closes both, and fails the test if a stream is left.
func listening(t *testing.T, backlog int) (a *Acceptor, end func()) {
	t.Helper()
	host := hosted(t)
	ch := must(host.CreateEventChannel())(t)
	id := must(host.CreateID(ch, rdmacm.PSTCP, nil))(t)
	ok(t, id.BindAddr(ownAddr))
	b := JoinHub(host)
	a = must(Listen(b, id, ch, backlog, func() Options { return Options{} }))(t)
	return a, func() {
		t.Helper()
		_ = a.Close()
		await(t, b.ended)
	}
}

// A backlog of the program's is at most the default, which is that of programs that do not give any. The queue has
// room for all handshakes besides.
func TestBacklogOfAnAcceptor(t *testing.T) {
	for backlog, want := range map[int]int{
		-1: 1024, 0: 1024, 1: 1, 2: 2, 1023: 1023, 1024: 1024, 1025: 1024,
	} {
		a, end := listening(t, backlog)
		if a.backlog != want || cap(a.queue) < want+2*maxHalfOpen || cap(a.slots) != cap(a.queue) {
			t.Errorf("backlog %d: %d, room for %d streams and %d handshakes", backlog, a.backlog, cap(a.queue), cap(a.slots))
		}
		end()
	}
}

// An ID that cannot listen, because it begins to connect or is closed, has no acceptor.
func TestIDThatCannotListen(t *testing.T) {
	host := hosted(t)
	ch := must(host.CreateEventChannel())(t)
	id := must(host.CreateID(ch, rdmacm.PSTCP, nil))(t)
	ok(t, id.ResolveAddr(background, ownAddr, ownAddr, time.Minute))
	if a, err := Listen(nil, id, ch, 0, nil); a != nil || err == nil {
		t.Errorf("it connects: acceptor %v, %v", a != nil, err)
	}
	ev := must(ch.GetEvent(background))(t)
	ok(t, ev.Ack())
	ok(t, id.Close())
	if a, err := Listen(nil, id, ch, 0, nil); a != nil || err == nil {
		t.Errorf("it is closed: acceptor %v, %v", a != nil, err)
	}
	ok(t, ch.Close())
}

// Close closes all streams in the queue, wakes callers of Poll, and lets no handshake begin.
func TestAcceptorCloseLeavesNothing(t *testing.T) {
	a, end := listening(t, 0)
	w := NewWaiter()
	a.Watch(&w)
	var queued [3]*Stream
	for i := range queued {
		a.hub.Join()
		queued[i] = NewStream(a.hub, Options{})
		if !a.enqueue(queued[i], true) {
			t.Error("a stream does not enter the queue")
		}
	}
	<-w.C
	if e := a.PollEvents(); e != PollIn {
		t.Errorf("events %#x", e)
	}
	end()
	for i, st := range queued {
		if !st.IsClosed() {
			t.Errorf("stream %d is open", i)
		}
	}
	st := NewStream(nil, Options{})
	st.mu.Lock()
	if a.begin(st) || len(w.C) != 1 || a.PollEvents() != PollNval {
		t.Errorf("afterwards: %d wake-ups, events %#x", len(w.C), a.PollEvents())
	}
	st.mu.Unlock()
}

// A stream whose handshake ends while the acceptor is closed is left alone. Others are closed, with their slots free.
func TestEndOfHandshakes(t *testing.T) {
	a, _ := Unserved()
	hub := &Hub{Host: hosted(t), users: 9}
	made, shaking := NewStream(hub, Options{}), NewStream(hub, Options{})
	made.state, shaking.state, shaking.acceptor = streamConnected, streamConnecting, a
	a.closed, a.shaking, a.slots = true, map[*Stream]struct{}{made: {}, shaking: {}}, make(chan struct{}, 2)
	a.slots <- struct{}{}
	a.slots <- struct{}{}
	a.endHandshakes()
	if made.state != streamConnected || made.closed || made.err != nil {
		t.Errorf("the stream that was made: state %d, closed %v, %v", made.state, made.closed, made.err)
	}
	if !shaking.closed || shaking.acceptor != nil || len(a.slots) != 1 || len(a.shaking) != 0 || hub.users != 8 {
		t.Errorf("closed %v, %d slots in use, %d handshakes, %d users of the hub", shaking.closed, len(a.slots),
			len(a.shaking), hub.users)
	}
}

// A request in another protocol has no stream, and its ID is closed (R-SOCK-16).
func TestRequestInAnotherProtocol(t *testing.T) {
	host := hosted(t)
	ch := must(host.CreateEventChannel())(t)
	id := must(host.CreateID(ch, rdmacm.PSTCP, nil))(t)
	a, _ := Unserved()
	a.hub = &Hub{Host: host, users: 1}
	if a.request(id, &rdmacm.ConnParam{PrivateData: []byte("hello")}) || a.hub.users != 1 {
		t.Errorf("it has a stream; %d users of the hub", a.hub.users)
	}
	if err := id.Close(); err == nil {
		t.Error("the ID was open")
	}
	ok(t, ch.Close())
}

// Accept ends at its deadline, with and without waiting, but a closed acceptor says that it is closed.
func TestAcceptAtTheDeadline(t *testing.T) {
	a, end := listening(t, 0)
	a.SetDeadline(time.Now().Add(-time.Second))
	for _, nonblock := range []bool{false, true} {
		if st, err := a.Accept(nonblock); st != nil || err == nil || err.Error() != "i/o timeout" {
			t.Errorf("%v", err)
		}
	}
	end()
	if _, err := a.Accept(false); err == nil || err.Error() == "i/o timeout" {
		t.Errorf("after Close: %v", err)
	}
}

// An event of an ID that no socket has does not end the hub.
func TestEventOfNoSocket(t *testing.T) {
	host := hosted(t)
	b := JoinHub(host)
	peer := ownAddr
	nobody := must(host.CreateID(b.Channel, rdmacm.PSTCP, nil))(t)
	ok(t, nobody.ResolveAddr(background, ownAddr, peer, time.Second))
	got := make(handler, 1)
	id := must(host.CreateID(b.Channel, rdmacm.PSTCP, got))(t)
	ok(t, id.ResolveAddr(background, ownAddr, peer, time.Second))
	select {
	case <-got:
	case <-time.After(20 * time.Second):
		t.Error("the next event does not come")
	}
	ok(t, errors.Join(nobody.Close(), id.Close()))
	b.Leave()
}

// handler takes events.
type handler chan *cmEvent

func (h handler) onEvent(ev *cmEvent) { h <- ev }

// A request that has no stream gives its slot back.
func TestSlotOfARefusedRequest(t *testing.T) {
	fabric := rdmatest.New(rdmatest.Config{RealTime: true})
	server := rdmacm.NewHost(must(fabric.NewDevice("a", ownAddr.Addr()))(t))
	client := rdmacm.NewHost(must(fabric.NewDevice("b", ownAddr.Addr().Next()))(t))
	ch := must(server.CreateEventChannel())(t)
	id := must(server.CreateID(ch, rdmacm.PSTCP, nil))(t)
	ok(t, id.BindAddr(ownAddr))
	b := JoinHub(server)
	a := must(Listen(b, id, ch, 0, func() Options { return Options{} }))(t)
	await(t, func() bool { return len(a.slots) == 1 }) // for the next request
	for range 2 {
		c := must(client.CreateID(nil, rdmacm.PSTCP, nil))(t)
		ok(t, c.ResolveAddr(background, netip.AddrPortFrom(ownAddr.Addr().Next(), 0), a.Addr(), time.Second))
		ok(t, c.ResolveRoute(background, time.Second))
		ok(t, c.CreateQP(nil, &verbs.QPInitAttr{Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1}}))
		if err := c.Connect(background, &rdmacm.ConnParam{PrivateData: []byte("hello")}); err == nil {
			t.Error("the request is accepted")
		}
		await(t, func() bool { return len(a.slots) == 1 })
		ok(t, c.DestroyQP())
		ok(t, c.Close())
	}
	ok(t, a.Close())
	await(t, b.ended)
	await(t, func() bool { return server.Close() == nil })
	await(t, func() bool { return client.Close() == nil })
}

// A handshake ends once, whatever becomes of the stream afterwards.
func TestHandshakeEndsOnce(t *testing.T) {
	a, _ := Unserved()
	st := NewStream(nil, Options{})
	st.state, st.acceptor = streamConnected, a
	a.shaking = map[*Stream]struct{}{st: {}}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.endHandshake()
	st.endHandshake()
	if st.fail(net.ErrClosed); st.acceptor != nil || a.Queued() != 1 || len(a.shaking) != 0 {
		t.Errorf("%d streams in the queue, %d in their handshake", a.Queued(), len(a.shaking))
	}
}
