package sock

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/rs"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// Only a connected stream enters the queue of an acceptor, and none after Close. A caller of Poll wakes for it.
func TestQueueOfAnAcceptor(t *testing.T) {
	for _, c := range []struct{ closed, connected bool }{{false, false}, {true, true}, {true, false}, {false, true}} {
		a, _ := Unserved()
		st := NewStream(nil, Options{})
		w := NewWaiter()
		a.Watch(&w)
		a.closed, a.shaking = c.closed, map[*Stream]struct{}{st: {}}
		want := 0
		if c.connected && !c.closed {
			want = 1
		}
		if got := a.enqueue(st, c.connected); got != (want == 1) || a.Queued() != want || len(w.C) != want ||
			len(a.shaking) != 0 {
			t.Errorf("%+v: %v, %d streams, %d wake-ups, %d in their handshake", c, got, a.Queued(), len(w.C), len(a.shaking))
		}
	}
}

// After Close no handshake begins.
func TestHandshakeOfAClosedAcceptor(t *testing.T) {
	a, _ := Unserved()
	a.closed, a.shaking, a.slots = true, map[*Stream]struct{}{}, make(chan struct{}, 1)
	st := NewStream(nil, Options{})
	st.mu.Lock()
	defer st.mu.Unlock()
	if a.begin(st) || len(a.shaking) != 0 {
		t.Errorf("%d handshakes", len(a.shaking))
	}
	a.closed = false
	if !a.begin(st) || len(a.shaking) != 1 {
		t.Errorf("%d handshakes of an open one", len(a.shaking))
	}
}

// A stream fails when its completion channel does.
func TestChannelFails(t *testing.T) {
	host := hosted(t)
	id := must(host.CreateID(nil, 0x106, nil))(t)
	ok(t, id.BindAddr(ownAddr))
	st := NewStream(nil, Options{})
	st.state = streamConnected
	st.res.ch = must(id.Verbs().CreateCompChannel())(t)
	ok(t, st.res.ch.Close())
	st.mu.Lock()
	st.onCQEvent()
	if st.state != streamFailed || st.err == nil || st.armed {
		t.Errorf("state %d, %v", st.state, st.err)
	}
	st.mu.Unlock()
	ok(t, id.Close())
}

// Over TCP only Close waits for the peer's end; a stream without outstanding requests has delivered everything.
func TestDrainOverTCP(t *testing.T) {
	st := NewStream(nil, Options{})
	st.state, st.words, st.m = streamConnected, true, rs.New(rs.Params{SQ: 16, RQ: 16, SendBuf: 4096, RecvBuf: 4096})
	st.mu.Lock()
	defer st.mu.Unlock()
	ok(t, st.drain(MaxLinger, true))
	st.state, st.err = streamFailed, net.ErrClosed
	if err := st.drain(MaxLinger, true); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a failed stream: %v", err)
	}
}

// A request whose ID cannot move to the hub's channel has no stream, and leaves nothing behind.
func TestRequestThatCannotMove(t *testing.T) {
	host := hosted(t)
	closed := must(host.CreateEventChannel())(t)
	ok(t, closed.Close())
	ch := must(host.CreateEventChannel())(t)
	id := must(host.CreateID(ch, rdmacm.PSTCP, nil))(t)
	a, _ := Unserved()
	a.hub, a.opts = &Hub{Host: host, Channel: closed, users: 1}, func() Options { return Options{} }
	data := rs.ConnData{Flags: rs.HostFlags(), Credits: 16, Table: rs.SGE{Length: rs.TableEntries}}
	if _, err := rs.ParseConnData(data.Append(nil)); err != nil {
		t.Fatal(err)
	}
	if a.request(id, &rdmacm.ConnParam{PrivateData: data.Append(nil)}) {
		t.Error("it has a stream")
	}
	if a.hub.users != 1 {
		t.Errorf("%d users of the hub, want 1", a.hub.users)
	}
	if err := id.Close(); err == nil {
		t.Error("the ID of the request was open")
	}
	ok(t, ch.Close())
}

// A request whose device is removed before its handshake begins has no handshake.
func TestRequestThatHasEnded(t *testing.T) {
	host := hosted(t)
	ch := must(host.CreateEventChannel())(t)
	id := must(host.CreateID(ch, rdmacm.PSTCP, nil))(t)
	a, _ := Unserved()
	a.shaking, a.slots = map[*Stream]struct{}{}, make(chan struct{}, 1)
	a.slots <- struct{}{}
	hub := &Hub{Host: host, Channel: NewChannel(host), users: 1}
	st := NewStream(hub, Options{})
	st.id, st.acceptor = id, a
	st.onEvent(&cmEvent{Type: rdmacm.EventDeviceRemoval})
	if err := st.accept(rs.ConnData{}, &rdmacm.ConnParam{}); !errors.Is(err, syscall.ENODEV) {
		t.Errorf("the handshake begins: %v", err)
	}
	if len(a.shaking) != 0 || len(a.slots) != 0 {
		t.Errorf("%d handshakes, %d slots in use", len(a.shaking), len(a.slots))
	}
	if _, err := hub.Channel.GetEvent(t.Context()); err == nil { // the stream is closed in the background
		t.Error("an event of the hub")
	}
	ok(t, ch.Close())
}

// A poller that no longer watches a socket is not woken by it.
func TestUnwatch(t *testing.T) {
	a, _ := Unserved()
	st := NewStream(nil, Options{})
	d := NewDatagram(nil, true, Options{}.WithDefaults())
	for name, c := range map[string]struct {
		socket Pollable
		change func()
	}{
		"stream": {st, st.wakeAll}, "acceptor": {a, a.wakeOthers}, "datagrams": {d, func() { d.deliver(datagramMsg{}) }},
	} {
		w, stays := NewWaiter(), NewWaiter()
		d.closed = true // Watch opens no UDP socket
		c.socket.Watch(&w)
		c.socket.Watch(&stays)
		c.socket.Unwatch(&w)
		if c.change(); len(w.C) != 0 || len(stays.C) != 1 {
			t.Errorf("%s: %d wake-ups after Unwatch, %d of another waiter", name, len(w.C), len(stays.C))
		}
	}
}

// withCQ returns a connected stream that has a CQ with a completion channel. free destroys them.
func withCQ(t *testing.T) (st *Stream, free func()) {
	t.Helper()
	id := must(hosted(t).CreateID(nil, rdmacm.PSTCP, nil))(t)
	ok(t, id.BindAddr(ownAddr))
	st = NewStream(nil, Options{})
	st.id, st.state = id, streamConnected
	st.m = rs.New(rs.Params{SQ: 16, RQ: 16, SendBuf: 4096, RecvBuf: 4096, Table: make([]byte, 4096)})
	st.res.ch = must(id.Verbs().CreateCompChannel())(t)
	st.res.cq = must(id.Verbs().CreateCQ(1, &verbs.CQOptions{Channel: st.res.ch}))(t)
	return st, func() {
		t.Helper()
		_ = st.res.cq.Close() // the test may have closed it
		ok(t, st.res.ch.Close())
		ok(t, id.Close())
	}
}

// After an event the CQ is asked for another one only if somebody waits for it.
func TestEventsForWaitersOnly(t *testing.T) {
	st, free := withCQ(t)
	defer free()
	st.mu.Lock()
	defer st.mu.Unlock()
	w := NewWaiter()
	for name, c := range map[string]struct{ begin, end func() }{
		"a reader":      {func() { st.read.waiter.on = true }, func() { st.read.waiter.on = false }},
		"a writer":      {func() { st.write.waiter.on = true }, func() { st.write.waiter.on = false }},
		"another":       {func() { st.others.add(&w) }, func() { st.others.remove(&w) }},
		"nobody at all": {func() {}, func() {}},
	} {
		c.begin()
		st.armed = true
		if st.onCQEvent(); st.armed != (name != "nobody at all") {
			t.Errorf("%s waits: the CQ is armed: %v", name, st.armed)
		}
		c.end()
	}
}

// A wait does not sleep if the CQ fails.
func TestArmOfAFailedCQ(t *testing.T) {
	st, free := withCQ(t)
	defer free()
	ok(t, st.res.cq.Close())
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.arm() || st.state != streamFailed || st.armed {
		t.Errorf("state %d, armed %v: the wait goes on", st.state, st.armed)
	}
	if st.arm() {
		t.Error("a stream that has failed is armed")
	}
}

// A stream that is not connected has nothing that the peer has not acknowledged.
func TestUnackedWithoutAConnection(t *testing.T) {
	st := NewStream(nil, Options{})
	for _, st.state = range []streamState{streamNew, streamConnecting, streamFailed, streamClosed} {
		if n := st.Unacked(); n != 0 {
			t.Errorf("state %d: %d bytes", st.state, n)
		}
	}
}

// A map that is refused has the offset -1.
func TestRefusedIOMaps(t *testing.T) {
	st := NewStream(nil, Options{})
	check := func(buf []byte, remote bool, want error) {
		t.Helper()
		if at, err := st.IOMap(buf, remote, 5); at != -1 || !errors.Is(err, want) {
			t.Errorf("offset %d, %v, want -1 and %v", at, err, want)
		}
	}
	check(make([]byte, 1), false, syscall.EINVAL) // no connection
	st.state, st.m = streamConnected, rs.New(rs.Params{SQ: 16, RQ: 16, SendBuf: 4096, RecvBuf: 4096})
	check(nil, false, syscall.EINVAL)
	check(make([]byte, 1), true, syscall.ENOMEM) // the peer has no table
	st.closed = true
	check(make([]byte, 1), false, net.ErrClosed)
}

// The parts of a stream's memory do not overlap, whatever the sizes, and the table is aligned.
func TestPartsOfTheMemory(t *testing.T) {
	id := must(hosted(t).CreateID(nil, rdmacm.PSTCP, nil))(t)
	ok(t, id.BindAddr(ownAddr))
	for send := 4094; send < 4094+70; send++ {
		for _, words := range []bool{false, true} {
			var r resources
			o := &Options{RecvBuf: 4098, SendBuf: send, RQSize: 16, IOMaps: 3}
			ok(t, r.register(id.PD(), o, words))
			begin := uintptr(unsafe.Pointer(&r.mem[0]))
			table := int(uintptr(unsafe.Pointer(&r.table[0])) - begin)
			if table < 4098+send || table >= 4098+send+64 || table%64 != 0 {
				t.Errorf("send buffer of %d bytes: the table is at %d", send, table)
			}
			recvs := 0
			if words {
				recvs = wordLen * (16 + spareRecvs)
			}
			if len(r.rbuf) != 4098 || len(r.sbuf) != send || len(r.recvs) != recvs ||
				len(r.mem) != table+len(r.table)+recvs {
				t.Errorf("send buffer of %d bytes: %d to receive, %d to send, table of %d, receives of %d; %d together", send,
					len(r.rbuf), len(r.sbuf), len(r.table), len(r.recvs), len(r.mem))
			}
			for _, mr := range r.mrs {
				if mr != nil {
					ok(t, mr.Close())
				}
			}
			r.free()
		}
	}
	ok(t, id.Close())
}

// A stream fails when its CQ does.
func TestProgressOfAFailedCQ(t *testing.T) {
	st, free := withCQ(t)
	defer free()
	ok(t, st.res.cq.Close())
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.progress() || st.state != streamFailed || st.err == nil {
		t.Errorf("state %d, %v", st.state, st.err)
	}
	if st.progress() {
		t.Error("progress of a stream that has failed")
	}
}

// Without a connection, and after Close, nothing is shut down.
func TestShutdownWithoutAConnection(t *testing.T) {
	st := NewStream(nil, Options{})
	if err := st.Shutdown(true, true); !errors.Is(err, syscall.ENOTCONN) {
		t.Errorf("a new stream: %v", err)
	}
	st.closed = true
	if err := st.Shutdown(true, true); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed stream: %v", err)
	}
}

// The event of a CQ lets a stream process what has completed, though nobody waits for it.
func TestEventWithoutWaiters(t *testing.T) {
	host := hosted(t)
	id := must(host.CreateID(nil, rdmacm.PSTCP, nil))(t)
	ok(t, id.BindAddr(ownAddr))
	st := NewStream(&Hub{Host: host, Channel: NewChannel(host), users: 1}, Options{}.WithDefaults())
	st.id = id
	st.mu.Lock()
	ok(t, st.setUp())
	st.state = streamConnected
	ok(t, st.res.cq.ReqNotify(false))
	ok(t, st.res.qp.Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, verbs.QPAttrState)) // the receives are flushed
	<-st.res.event
	if st.onCQEvent(); !st.m.Disconnected() {
		t.Error("the end of the connection was not noticed")
	}
	st.mu.Unlock()
	st.Close(0)
}

// A stream that is closed while Shutdown waits for a writer is not shut down.
func TestClosedDuringShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := NewStream(nil, Options{})
		st.state, st.established = streamConnecting, true // nothing is posted
		st.m = rs.New(rs.Params{SQ: 16, RQ: 16, SendBuf: 4096, RecvBuf: 4096})
		for _, want := range []error{nil, net.ErrClosed} {
			st.writing.lock()
			ended := make(chan error, 1)
			go func() { ended <- st.Shutdown(false, true) }()
			synctest.Wait()
			st.mu.Lock()
			st.closed = want != nil
			st.mu.Unlock()
			st.writing.unlock()
			if err := <-ended; !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		}
	})
}

// Data waits for room of the IO maps that must precede it.
func TestDataWaitsForIOMaps(t *testing.T) {
	st := NewStream(nil, Options{})
	st.state = streamConnected
	st.m = rs.New(rs.Params{SQ: 16, RQ: 16, SendBuf: 4096, RecvBuf: 4096, Table: make([]byte, 4096)})
	st.m.Connect(rs.ConnData{Credits: 16, IOMaps: 1, Table: rs.SGE{Length: rs.TableEntries}, Data: rs.SGE{Length: 4096}})
	st.mu.Lock()
	defer st.mu.Unlock()
	sent := 0
	for {
		if _, some := st.nextData(1); !some {
			break
		}
		sent++
	}
	st.m.SetMap(0, rs.IOMap{})
	if d, some := st.nextData(1); sent == 0 || some || !st.m.MapsPending() {
		t.Errorf("after %d messages without room: %+v, %v", sent, d, some)
	}
}

// A message that the QP does not take ends the connection, in each form.
func TestMessageThatCannotBePosted(t *testing.T) {
	host := hosted(t)
	for _, words := range []bool{false, true} {
		for _, data := range []string{"", "data"} {
			id := must(host.CreateID(nil, rdmacm.PSTCP, nil))(t)
			ok(t, id.BindAddr(ownAddr))
			st := NewStream(&Hub{Host: host, Channel: NewChannel(host), users: 1}, Options{}.WithDefaults())
			st.id = id
			st.mu.Lock()
			ok(t, st.setUp())
			ok(t, id.DestroyQP())
			st.state, st.words = streamConnected, words
			st.postMessage(&verbs.SendWR{Opcode: verbs.WRRDMAWriteWithImm, Flags: verbs.SendInline, Inline: []byte(data)})
			if st.state != streamFailed || st.err == nil || !st.sentOnce {
				t.Errorf("%q, as words %v: state %d, %v, sent %v", data, words, st.state, st.err, st.sentOnce)
			}
			if st.unposted = 1; !words && (st.postRecvs() == nil || st.unposted != 1) {
				t.Error("a receive was posted")
			}
			st.mu.Unlock()
			st.Close(0)
		}
	}
}

// Writes to the peer's memory wait for room of the IO maps that must precede them.
func TestIOWriteWaitsForIOMaps(t *testing.T) {
	st, free := withCQ(t)
	defer free()
	st.m = rs.New(rs.Params{SQ: 16, RQ: 16, SendBuf: 4096, RecvBuf: 4096, Table: make([]byte, 4096)})
	st.m.Connect(rs.ConnData{})
	st.opts.Inline = 64
	st.mu.Lock()
	defer st.mu.Unlock()
	if n, err := st.place(partsOfOne([]byte("x")), 0, &WaitMode{Nonblock: true}); n != 0 || err != nil {
		t.Errorf("where the peer has no map: %d bytes, %v", n, err)
	}
	st.m.SetMap(0, rs.IOMap{})
	n, err := st.place(partsOfOne([]byte("x")), 0, &WaitMode{Nonblock: true})
	if n != 0 || !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("with a map that waits: %d bytes, %v", n, err)
	}
}

// A request whose acceptor is closed meanwhile has no handshake.
func TestRequestOfAClosedAcceptor(t *testing.T) {
	host := hosted(t)
	id := must(host.CreateID(nil, rdmacm.PSTCP, nil))(t)
	ok(t, id.BindAddr(ownAddr))
	a, _ := Unserved()
	a.closed, a.shaking, a.slots = true, map[*Stream]struct{}{}, make(chan struct{}, 1)
	a.slots <- struct{}{}
	hub := &Hub{Host: host, Channel: NewChannel(host), users: 1}
	st := NewStream(hub, Options{})
	st.id, st.acceptor = id, a
	if err := st.accept(rs.ConnData{}, &rdmacm.ConnParam{}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the handshake begins: %v", err)
	}
	if len(a.slots) != 0 {
		t.Error("its slot is in use")
	}
	if _, err := hub.Channel.GetEvent(t.Context()); err == nil { // the stream is closed in the background
		t.Error("an event of the hub")
	}
}

// A SEND that is no message word ends the connection.
func TestSendThatIsNoMessageWord(t *testing.T) {
	for _, c := range []struct {
		word []byte
		n    uint32
	}{{[]byte{0xFF, 0xFF, 0xFF, 0xFF}, wordLen}, {make([]byte, wordLen), wordLen - 1}, {make([]byte, 5), wordLen + 1}} {
		st, free := withCQ(t)
		st.m = rs.New(rs.Params{SQ: 16, RQ: 16, SendBuf: 4096, RecvBuf: 4096, Table: make([]byte, 4096)})
		st.words, st.res.recvs = true, c.word
		st.mu.Lock()
		st.word(&verbs.WC{ByteLen: c.n})
		if st.state != streamFailed || !errors.Is(st.err, syscall.EPROTO) {
			t.Errorf("%d bytes, %x: state %d, %v", c.n, c.word, st.state, st.err)
		}
		st.mu.Unlock()
		free()
	}
}
