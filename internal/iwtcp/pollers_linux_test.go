package iwtcp

import (
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/iwarp"
	"github.com/verbena-rdma/verbena/internal/link/shm"
	wire "github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// still is a device without a goroutine: only the test runs its QPs.
func still(t *testing.T) (*Device, *loop) {
	t.Helper()
	l := stillLoop(t)
	d := &Device{qps: map[uint32]*QP{}}
	d.loop.Store(l)
	return d, l
}

func stillLoop(t *testing.T) *loop {
	t.Helper()
	l := &loop{ready: -1, wakeFD: -1, undoze: make(chan struct{}, 1), qps: map[int32]*QP{}}
	if err := l.open(); err != nil {
		t.Fatal(err)
	}
	return l
}

// stillRaw makes a connection through memory of a device without a goroutine. The peer has switched.
func stillRaw(t *testing.T, d *Device, num uint32) *raw {
	t.Helper()
	q, peer, key := responderOf(t, d, num, func(bool) {})
	p := &raw{TCPConn: peer, t: t, q: q, key: key}
	l, err := shm.ListenDuplex()
	if err != nil {
		t.Fatal(err)
	}
	p.token = l.Token
	p.send(signal(iwarp.Offer, l.Token))
	until(t, "the QP has seen the offer", func() bool {
		d.Poll(false)
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.near.asked
	})
	if p.d, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.d.Close)
	until(t, "the QP has its memory", func() bool {
		ready, _ := p.d.OnEvent()
		return ready
	})
	p.send(signal(iwarp.Switch, p.token))
	until(t, "the QP reads the memory", func() bool {
		d.Poll(false)
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.near.in
	})
	return p
}

// requests is the number of READ requests that the QP has received.
func (p *raw) requests() uint64 { return p.q.View().Counters.QP.RxReadRequests }

// ask writes READ request number msn to the memory.
func (p *raw) ask(msn uint32) {
	p.t.Helper()
	b := readRequest(p.key, 8)
	wire.PutUntagged(b[wire.LengthLen:], wire.ReadRequest, true, 0, msn, 0)
	p.write(b)
}

// isHot reports whether pollers look at the memory of a QP.
func (q *QP) isHot() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.near.hot
}

// A poller receives what has come by TCP, unless another one has the turn. A device without QPs has nothing to run.
func TestPollsOfADevice(t *testing.T) {
	new(Device).Poll(true)
	new(Device).HandOver()
	if new(Device).Await(time.Hour) {
		t.Error("a wait for a device without QPs")
	}
	d, l := still(t)
	q, peer, key := responderOf(t, d, 1, func(bool) {})
	p := &raw{TCPConn: peer, t: t, q: q, key: key}
	p.send(readRequest(key, 8))
	until(t, "the socket has data", func() bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(q.fd), Events: unix.POLLIN}}, 0)
		return n == 1 && err == nil
	})
	l.turn.Lock()
	d.Poll(true)
	if d.Await(time.Hour) || p.requests() != 0 {
		t.Error("a second poller has the turn")
	}
	l.turn.Unlock()
	if !l.polled.Load() {
		t.Error("the goroutine does not know that a program polls")
	}
	d.HandOver()
	if l.polled.Load() {
		t.Error("the goroutine does not know that the program sleeps")
	}
	if d.Poll(false); p.requests() != 1 || l.polled.Load() {
		t.Errorf("%d requests after a poll; active: %v", p.requests(), l.polled.Load())
	}
	p.receive(responseLength())
	p.send([]byte{0, 1, 0, 0}) // the length of no ULPDU
	if !d.Await(time.Hour) {
		t.Error("a wait for data has no turn")
	}
	if n := q.View().Counters.QP.TxTerminates; n != 1 {
		t.Errorf("%d Terminates", n)
	}
	other, peer, key := responderOf(t, d, 2, func(bool) {})
	waited := make(chan struct{})
	go func() {
		for !d.Await(time.Hour) { // the test looks who has the turn, and has it meanwhile
		}
		close(waited)
	}()
	until(t, "a poller waits", func() bool {
		if l.turn.TryLock() {
			l.turn.Unlock()
			return false
		}
		return true
	})
	if _, err := peer.Write(readRequest(key, 8)); err != nil {
		t.Fatal(err)
	}
	if <-waited; other.View().Counters.QP.RxReadRequests != 1 {
		t.Error("a wait did not receive what ended it")
	}
	l.again(q)
	if !d.Await(time.Hour) || l.some.Load() {
		t.Error("a wait while a QP has something to do")
	}
	if !d.Await(0) {
		t.Error("a wait of no time has no turn")
	}
}

// A QP that has something to do runs once without an event.
func TestRunsWithoutAnEvent(t *testing.T) {
	d, l := still(t)
	q, _, _ := responderOf(t, d, 1, func(bool) {})
	l.turn.Lock()
	defer l.turn.Unlock()
	if l.step(pollEvents, false) {
		t.Error("there is something to do at first")
	}
	l.again(q)
	if !l.some.Load() || !l.step(pollEvents, false) {
		t.Error("the QP did not run")
	}
	if l.some.Load() || len(l.todo) != 0 || l.step(pollEvents, false) {
		t.Error("it runs again")
	}
	q.Reset()
	l.again(q)
	if !l.step(pollEvents, false) {
		t.Error("a QP without a connection did not run")
	}
}

// An event of a socket that no QP has any more is ignored.
func TestEventOfASocketWithoutAQP(t *testing.T) {
	d, l := still(t)
	q, peer, _ := responderOf(t, d, 1, func(bool) {})
	_ = peer.CloseWrite()
	until(t, "an event", func() bool {
		n, _ := unix.Poll([]unix.PollFd{{Fd: int32(l.ready), Events: unix.POLLIN}}, 0)
		return n == 1
	})
	delete(l.qps, int32(q.fd))
	l.turn.Lock()
	defer l.turn.Unlock()
	if !l.step(pollEvents, true) {
		t.Error("there was no event")
	}
}

// socketPair returns two connected sockets.
func socketPair(t *testing.T) [2]int {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = unix.Close(pair[0]), unix.Close(pair[1]) })
	return pair
}

// Data to read and room for writing are events as far as the QP wants them.
func TestEventsOfASocket(t *testing.T) {
	l := stillLoop(t)
	defer l.close()
	pair := socketPair(t)
	if _, err := unix.Write(pair[1], []byte{1}); err != nil {
		t.Fatal(err)
	}
	if err := l.add(new(QP), pair[0]); err != nil || l.qps[int32(pair[0])] == nil {
		t.Fatal(err)
	}
	const in, out = unix.EPOLLIN, unix.EPOLLOUT
	check := func(want uint32) {
		t.Helper()
		var e [1]unix.EpollEvent
		n, err := unix.EpollWait(l.ready, e[:], 0)
		if err != nil || e[0].Events != want || n != min(1, int(want)) || n == 1 && int(e[0].Fd) != pair[0] {
			t.Errorf("%d events, %x, want %x, %v", n, e[0].Events, want, err)
		}
	}
	check(in)
	for _, c := range []struct {
		data, room bool
		want       uint32
	}{{true, true, in | out}, {false, true, out}, {false, false, 0}, {true, false, in}} {
		l.watch(pair[0], c.data, c.room)
		check(c.want)
	}
	l.remove(pair[0])
	check(0)
	if len(l.qps) != 0 {
		t.Error("the QP is left")
	}
}

// The goroutine's wait ends with a socket that is ready, a wake-up or a poll. Otherwise sockets cause no event while it
// does not wait.
func TestEndsOfTheWait(t *testing.T) {
	l := stillLoop(t)
	defer l.close()
	pair := socketPair(t)
	if err := l.add(new(QP), pair[0]); err != nil {
		t.Fatal(err)
	}
	quiet := func(what string) {
		t.Helper()
		if s := l.state.Load(); s != running {
			t.Errorf("%s: state %d", what, s)
		}
		raw, err := l.parked.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		_ = raw.Control(func(fd uintptr) {
			var e [2]unix.EpollEvent
			if n, err := unix.EpollWait(int(fd), e[:], 0); n != 0 || err != nil {
				t.Errorf("%s: %d events are left, %v", what, n, err)
			}
		})
	}
	l.state.Store(parking)
	l.rouse()
	l.park()
	quiet("a wake-up")
	l.polled.Store(true)
	l.park()
	quiet("a poll")
	if _, err := unix.Write(pair[1], []byte{1}); err != nil {
		t.Fatal(err)
	}
	quiet("a poll, then data")
	l.polled.Store(false)
	for range 2 { // until the data is read
		l.park()
		quiet("data")
	}
	if _, err := unix.Read(pair[0], make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	for name, flag := range map[string]interface{ Store(bool) }{"work": &l.some, "memory that is polled": &l.warm,
		"the end": &l.ended} {
		flag.Store(true)
		l.park()
		quiet(name)
		flag.Store(false)
	}
}

// The goroutine sleeps only if a program has polled since it looked, and the device has not ended.
func TestSleepsOfTheGoroutine(t *testing.T) {
	l := stillLoop(t)
	defer l.close()
	clock := time.NewTimer(time.Hour)
	defer clock.Stop()
	if l.doze(clock, time.Hour) {
		t.Error("it sleeps without a poll")
	}
	l.polled.Store(true)
	if !l.doze(clock, 1) || l.polled.Load() || l.state.Load() != running {
		t.Errorf("after a poll: polled %v, state %d", l.polled.Load(), l.state.Load())
	}
	l.polled.Store(true)
	l.wake()
	l.wake()
	if !l.doze(clock, time.Hour) {
		t.Error("it does not sleep after a poll")
	}
	l.polled.Store(true)
	l.ended.Store(true)
	if l.doze(clock, time.Hour) {
		t.Error("it sleeps after the end")
	}
}

// The loop ends with the last QP of the device, and the next QP starts another one.
func TestLoopEndsWithTheLastQP(t *testing.T) {
	d := new(Device)
	a, b := newEnd(t, d, 1, 8), newEnd(t, d, 2, 8)
	l := a.loop
	if b.loop != l || d.Find(2) != b.QP || d.Find(3) != nil {
		t.Error("the QPs of a device have two loops, or not their numbers")
	}
	a.Destroy()
	a.Destroy()
	if d.loop.Load() != l || l.ended.Load() || d.Find(1) != nil {
		t.Error("the loop has ended with the first QP")
	}
	b.Destroy()
	if d.loop.Load() != nil || !l.ended.Load() {
		t.Error("the loop has not ended with the last QP")
	}
	if c := newEnd(t, d, 3, 8); c.loop == l {
		t.Error("a QP has a loop that has ended")
	}
}

// A poll by a program has later polls look at the memory of the QPs that received something by it.
func TestPollsHeat(t *testing.T) {
	d, l := still(t)
	p := stillRaw(t, d, 1)
	p.ask(1)
	until(t, "a request", func() bool { d.Poll(false); return p.requests() == 1 })
	if len(l.hot) != 0 || p.q.isHot() {
		t.Error("a program that does not poll looks at memory")
	}
	p.ask(2)
	until(t, "a request", func() bool { d.Poll(true); return p.requests() == 2 })
	if len(l.hot) != 1 || !p.q.isHot() || !l.warm.Load() {
		t.Fatalf("%d QPs are polled", len(l.hot))
	}
	p.ask(3) // without a wake-up
	if d.Poll(true); p.requests() != 3 {
		t.Error("a poll does not look at the memory")
	}
	if !d.Await(0) || len(l.hot) != 0 || p.q.isHot() || l.warm.Load() {
		t.Errorf("%d QPs are polled after a wait", len(l.hot))
	}
	p.ask(4)
	if !d.Await(time.Hour) || p.requests() != 4 || len(l.hot) != 0 {
		t.Errorf("a wait: %d requests, %d QPs are polled after it", p.requests(), len(l.hot))
	}
}

// Each 16th poll looks at the sockets. Each poll does if a QP has something to do. A poll receives what is in the
// memory of a QP. Memory that was empty 4,097 times in sequence is not looked at any more, nor is that of a connection
// that has ended.
func TestLooksAtMemory(t *testing.T) {
	d, l := still(t)
	p, other := stillRaw(t, d, 1), stillRaw(t, d, 2)
	l.turn.Lock()
	defer l.turn.Unlock()
	if l.lookAll() {
		t.Error("enough without memory to look at")
	}
	l.heat(p.q)
	l.heat(p.q)
	l.heat(other.q)
	if len(l.hot) != 2 {
		t.Fatalf("%d QPs are hot", len(l.hot))
	}
	l.looks = 0
	for i := 1; i <= 2*socketsEvery; i++ {
		if enough := l.lookAll(); enough == (i%socketsEvery == 0) {
			t.Errorf("look %d: enough %v", i, enough)
		}
	}
	l.some.Store(true)
	if l.lookAll() {
		t.Error("enough while a QP has something to do")
	}
	l.some.Store(false)
	p.ask(1)
	if l.lookAll(); p.requests() != 1 || l.hot[0].idle != 0 || l.hot[1].idle != 2*socketsEvery+2 {
		t.Errorf("%d requests, %+v", p.requests(), l.hot)
	}
	for range maxLooks {
		l.lookAll()
	}
	if len(l.hot) != 1 || l.hot[0].q != p.q || other.q.isHot() || l.hot[0].idle != maxLooks {
		t.Fatalf("after %d looks: %+v", maxLooks, l.hot)
	}
	if l.lookAll(); len(l.hot) != 0 || p.q.isHot() || l.warm.Load() {
		t.Errorf("one look later: %+v", l.hot)
	}
	l.heat(p.q)
	l.heat(other.q)
	l.hot[0].idle = maxLooks
	if l.lookAll(); len(l.hot) != 1 || l.hot[0].q != other.q || l.hot[0].idle != 1 {
		t.Errorf("a look at the QP after the one that is dropped: %+v", l.hot)
	}
	other.q.Fail()
	if l.lookAll(); len(l.hot) != 0 {
		t.Error("the memory of a connection that has ended is looked at")
	}
	if l.heat(other.q); len(l.hot) != 0 {
		t.Error("so is that of a QP without memory")
	}
}

// Pollers look at the memory of at most 16 QPs. The others sleep.
func TestMostHotQPs(t *testing.T) {
	d, l := still(t)
	p := stillRaw(t, d, 1)
	l.turn.Lock()
	defer l.turn.Unlock()
	l.hot = make([]warmQP, 16)
	if l.heat(p.q); len(l.hot) != 16 || p.q.isHot() {
		t.Errorf("%d QPs are hot", len(l.hot))
	}
	l.hot = l.hot[:15]
	if l.heat(p.q); len(l.hot) != 16 || !p.q.isHot() {
		t.Errorf("%d QPs are hot", len(l.hot))
	}
	l.hot = l.hot[15:]
	p.ask(1)
	if l.coolAll() || p.requests() != 1 || !p.q.isHot() || !l.warm.Load() {
		t.Error("a QP with something in its memory sleeps")
	}
	if !l.coolAll() || p.q.isHot() || l.warm.Load() {
		t.Error("a QP with nothing in its memory does not sleep")
	}
}

// A look at a QP that another goroutine uses, or whose peer has ended, finds nothing.
func TestLookAtAQPInUse(t *testing.T) {
	d, l := still(t)
	p := stillRaw(t, d, 1)
	l.turn.Lock()
	defer l.turn.Unlock()
	if p.q.look(l.buf) {
		t.Error("empty memory has something")
	}
	p.ask(1)
	p.q.mu.Lock()
	if p.q.look(l.buf) {
		t.Error("a QP in use was run")
	}
	p.q.mu.Unlock()
	if p.q.cool() {
		t.Error("a QP with something to receive sleeps")
	}
	if !p.q.look(l.buf) || p.requests() != 1 {
		t.Errorf("%d requests", p.requests())
	}
	p.ask(2)
	p.q.mu.Lock()
	p.q.eof = true
	p.q.mu.Unlock()
	if p.q.look(l.buf) || !p.q.cool() {
		t.Error("a direction that has ended has something")
	}
	e := newEnd(t, d, 3, 8)
	if e.look(l.buf) || !e.cool() || e.warm() {
		t.Error("a QP without memory has something in it")
	}
}

// again tells the goroutine of work, unless a program that polls will do it.
func TestWorkWakesTheGoroutine(t *testing.T) {
	for _, c := range []struct {
		state        uint32
		polled       bool
		event, sleep int // wake-ups of either kind
	}{{running, false, 0, 0}, {parking, false, 1, 0}, {parking, true, 1, 0}, {dozing, false, 0, 1}, {dozing, true, 0, 0}} {
		l := stillLoop(t)
		l.state.Store(c.state)
		l.polled.Store(c.polled)
		l.again(new(QP))
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(l.wakeFD), Events: unix.POLLIN}}, 0)
		if n != c.event || err != nil || len(l.undoze) != c.sleep || len(l.todo) != 1 {
			t.Errorf("%+v: %d events, %d ends of sleep, %v", c, n, len(l.undoze), err)
		}
		if l.handOver(); len(l.undoze) != min(1, int(c.state&dozing)) {
			t.Errorf("%+v: %d ends of sleep after the program sleeps", c, len(l.undoze))
		}
		l.close()
	}
}

// watched is a RawConn that asks once whether the wait has ended.
type watched struct {
	syscall.RawConn
	over bool
}

func (w *watched) Read(f func(fd uintptr) bool) error {
	return w.RawConn.Control(func(fd uintptr) { w.over = f(fd) })
}

// The wait of the goroutine goes on while there is nothing to do.
func TestWaitGoesOn(t *testing.T) {
	l := stillLoop(t)
	defer l.close()
	w := &watched{RawConn: l.raw}
	l.raw = w
	if l.park(); w.over {
		t.Error("the wait ends without a reason")
	}
	l.state.Store(parking)
	l.rouse()
	if l.park(); !w.over {
		t.Error("the wait does not end with a wake-up")
	}
	if l.park(); w.over {
		t.Error("a wake-up ends two waits")
	}
}

// The descriptors of a loop close at exec, its eventfd does not block, and none is left after its end.
func TestDescriptorsOfALoop(t *testing.T) {
	before := len(descriptors(t))
	l, err := newLoop()
	if err != nil {
		t.Fatal(err)
	}
	set := -1
	_ = l.raw.Control(func(fd uintptr) { set = int(fd) })
	for _, fd := range []int{l.ready, l.wakeFD, set} {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("descriptor %d: flags %x, %v", fd, flags, err)
		}
	}
	if flags, err := unix.FcntlInt(uintptr(l.wakeFD), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK == 0 {
		t.Errorf("the eventfd: flags %x, %v", flags, err)
	}
	l.stop()
	if after := len(descriptors(t)); after > before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}
