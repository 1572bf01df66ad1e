package iwtcp

import (
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/engine"
	"github.com/verbena-rdma/verbena/internal/fdset"
)

// Device runs the QPs of a device. The zero value is ready.
type Device struct {
	taps tapped

	loop atomic.Pointer[loop] // nil while there is no QP; written under mu

	mu sync.Mutex
	// +checklocks:mu
	qps map[uint32]*QP // by number
	// +checklocks:mu
	gone Counters // sums of destroyed QPs
}

// Find returns the QP of a number, nil if there is none.
func (d *Device) Find(num uint32) *QP {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.qps[num]
}

// enter adds a QP. The first one starts the loop.
func (d *Device) enter(q *QP) (*loop, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.loop.Load()
	if l == nil {
		var err error
		if l, err = newLoop(); err != nil {
			return nil, err
		}
		d.qps = map[uint32]*QP{}
		d.loop.Store(l)
	}
	d.qps[q.Num] = q
	return l, nil
}

// leave ends the loop with the last QP.
func (d *Device) leave(q *QP) {
	v := q.View()
	d.mu.Lock()
	l := d.loop.Load()
	delete(d.qps, q.Num)
	engine.AddCounters(&d.gone, &v.Counters)
	last := len(d.qps) == 0
	if last {
		d.loop.Store(nil)
	}
	d.mu.Unlock()
	if last {
		l.stop()
	}
}

// Poll runs the QPs for a poller of a CQ, unless the goroutine or another poller does. If the program polls, the
// goroutine sleeps for a while.
func (d *Device) Poll(active bool) {
	if l := d.loop.Load(); l != nil {
		l.poll(active)
	}
}

// Await is Poll of a poller that has time: it waits for at most limit until a socket is ready. It returns false at once
// if another goroutine runs the QPs.
func (d *Device) Await(limit time.Duration) bool {
	l := d.loop.Load()
	return l != nil && l.await(limit)
}

// HandOver makes the goroutine run the QPs, because a poller is about to sleep.
func (d *Device) HandOver() {
	if l := d.loop.Load(); l != nil {
		l.handOver()
	}
}

// loop runs the QPs of a device. The goroutine that has the turn receives from the sockets that are ready, and
// continues to send where there is room again. It is a poller of a CQ, or the loop's goroutine while no program polls.
//
// The sockets are in the epoll set ready. That set is in the set parked, which Go's poller watches, so that waiting
// takes no thread (decision 6). ready is armed there only while the goroutine waits: a program that polls causes no
// wake-up.
type loop struct {
	ready  int      // the epoll set of the sockets
	parked *os.File // the epoll set of ready and wakeFD
	wakeFD int      // an eventfd
	raw    syscall.RawConn
	done   sync.WaitGroup
	ended  atomic.Bool
	polled atomic.Bool // a program has polled since the goroutine looked
	state  atomic.Uint32
	undoze chan struct{} // ends a sleep of the goroutine

	turn sync.Mutex
	// +checklocks:turn
	closed bool
	// +checklocks:turn
	buf []byte // for what is received
	// +checklocks:turn
	events [maxEvents]unix.EpollEvent
	// +checklocks:turn
	waits [1]unix.PollFd // of await
	// +checklocks:turn
	limit unix.Timespec // of await
	// +checklocks:turn
	hot []warmQP // whose memory pollers look at
	// +checklocks:turn
	looks uint // of pollers

	warm atomic.Bool // hot is not empty: the goroutine does not wait for sockets
	some atomic.Bool // todo is not empty
	mu   sync.Mutex
	// +checklocks:mu
	qps map[int32]*QP // by socket
	// +checklocks:mu
	todo []*QP // to run without an event
}

// States of the goroutine. It stores its new state before it looks at ended, some and polled for the last time; what
// others store there they store before they look at its state. So no wake-up is lost.
const (
	running uint32 = iota
	dozing         // a program polls
	parking        // it waits for a socket
)

// Bounds of a turn: sockets that the goroutine and a poller read.
const (
	rxBuffer   = 128 << 10
	maxEvents  = 64
	pollEvents = 4
)

// The goroutine sleeps for minDoze at first while programs poll, and then for up to maxDoze. Tests change minDoze.
var minDoze = time.Millisecond

const maxDoze = 2 * time.Millisecond

func newLoop() (*loop, error) {
	l := &loop{ready: -1, wakeFD: -1, undoze: make(chan struct{}, 1), qps: map[int32]*QP{}}
	if err := l.open(); err != nil {
		l.close()
		return nil, err
	}
	l.done.Go(l.run)
	return l, nil
}

// open makes the descriptors.
func (l *loop) open() error {
	l.turn.Lock()
	l.buf = make([]byte, rxBuffer)
	l.turn.Unlock()
	var err error
	if l.ready, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	if l.wakeFD, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return os.NewSyscallError("eventfd", err)
	}
	l.ready, l.wakeFD = fdset.Raise(l.ready), fdset.Raise(l.wakeFD)
	set, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	set = fdset.Raise(set)
	_ = unix.SetNonblock(set, true) // so that os.NewFile gives it to Go's poller
	l.parked = os.NewFile(uintptr(set), "epoll")
	for fd, events := range map[int]uint32{l.wakeFD: unix.EPOLLIN, l.ready: unix.EPOLLONESHOT} {
		if err := unix.EpollCtl(set, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)}); err != nil {
			return os.NewSyscallError("epoll_ctl", err)
		}
	}
	l.raw, err = l.parked.SyscallConn()
	return err
}

// close closes the descriptors.
func (l *loop) close() {
	l.turn.Lock()
	defer l.turn.Unlock()
	l.closed = true
	if l.parked != nil {
		_ = l.parked.Close()
	}
	for _, fd := range []int{l.ready, l.wakeFD} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

func (l *loop) stop() {
	l.ended.Store(true)
	l.rouse()
	l.done.Wait()
	l.close()
}

// rouse ends the goroutine's wait or sleep, because ended or some was set.
func (l *loop) rouse() {
	switch l.state.Load() {
	case dozing:
		l.wake()
	case parking:
		_, _ = unix.Write(l.wakeFD, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // a full counter wakes too
	}
}

// wake ends a sleep of the goroutine.
func (l *loop) wake() {
	select {
	case l.undoze <- struct{}{}:
	default:
	}
}

func (l *loop) handOver() {
	if l.polled.Load() {
		l.polled.Store(false)
	}
	if l.state.Load() == dozing {
		l.wake()
	}
}

// add puts the socket of a QP into the set.
func (l *loop) add(q *QP, fd int) error {
	l.mu.Lock()
	l.qps[int32(fd)] = q
	l.mu.Unlock()
	err := unix.EpollCtl(l.ready, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
	if err != nil {
		l.remove(fd)
		return os.NewSyscallError("epoll_ctl", err)
	}
	return nil
}

// watch sets whether data to read and room for writing are events of the socket.
func (l *loop) watch(fd int, data, room bool) {
	e := unix.EpollEvent{Fd: int32(fd)}
	if data {
		e.Events = unix.EPOLLIN
	}
	if room {
		e.Events |= unix.EPOLLOUT
	}
	_ = unix.EpollCtl(l.ready, unix.EPOLL_CTL_MOD, fd, &e)
}

// remove takes a socket that is about to be closed out of the set.
func (l *loop) remove(fd int) {
	l.mu.Lock()
	delete(l.qps, int32(fd))
	l.mu.Unlock()
	_ = unix.EpollCtl(l.ready, unix.EPOLL_CTL_DEL, fd, nil)
}

// again makes the loop run a QP soon.
func (l *loop) again(q *QP) {
	l.mu.Lock()
	l.todo = append(l.todo, q)
	l.some.Store(true)
	l.mu.Unlock()
	if l.state.Load() != dozing || !l.polled.Load() { // else the poller runs it, or the goroutine soon
		l.rouse()
	}
}

// poll is a turn of a poller.
//
// +checklocksignore: the analyzer does not know TryLock
func (l *loop) poll(active bool) {
	if active && !l.polled.Load() {
		l.polled.Store(true)
	}
	if !l.turn.TryLock() {
		return
	}
	defer l.turn.Unlock()
	if l.closed || l.lookAll() {
		return
	}
	l.step(pollEvents, active)
}

// await is a turn of a poller that waits. Its thread waits in the kernel: that is one change of threads less than if
// the goroutine waited and then woke the poller.
//
// +checklocksignore: the analyzer does not know TryLock
func (l *loop) await(limit time.Duration) bool {
	if !l.turn.TryLock() {
		return false
	}
	defer l.turn.Unlock()
	if l.closed {
		return false
	}
	if l.coolAll() && !l.some.Load() {
		l.limit, l.waits[0] = unix.NsecToTimespec(int64(limit)), unix.PollFd{Fd: int32(l.ready), Events: unix.POLLIN}
		_, _ = unix.Ppoll(l.waits[:], &l.limit, nil)
	}
	l.step(pollEvents, false)
	return true
}

// step runs the QPs that have something to do, at most max of those with events. It reports whether there were any. If
// a program polls, it looks at the memory of those that received something by it.
//
// +checklocks:l.turn
func (l *loop) step(max int, polls bool) (busy bool) {
	n, _ := unix.EpollWait(l.ready, l.events[:max], 0)
	for i := range n {
		e := &l.events[i]
		l.mu.Lock()
		q := l.qps[e.Fd]
		l.mu.Unlock()
		if q != nil { // if another QP has the socket's number meanwhile, its sockets report that they have nothing
			q.onEvent(l.buf, int(e.Fd), e.Events&^unix.EPOLLOUT != 0)
			if polls && q.nearby.Load() {
				l.heat(q)
			}
		}
	}
	if !l.some.Load() {
		return n > 0
	}
	l.mu.Lock()
	todo := l.todo
	l.todo = nil
	l.some.Store(false)
	l.mu.Unlock()
	for _, q := range todo {
		q.onEvent(l.buf, -1, false)
	}
	return true
}

// run is the loop's goroutine.
func (l *loop) run() {
	clock := time.NewTimer(0)
	defer clock.Stop()
	for doze := minDoze; !l.ended.Load(); {
		if l.doze(clock, doze) {
			doze = min(2*doze, maxDoze)
			continue
		}
		doze = minDoze
		l.turn.Lock()
		busy := l.step(maxEvents, false) || !l.coolAll()
		l.turn.Unlock()
		if !busy {
			l.park()
		}
	}
}

// doze sleeps for d if a program has polled since the last call.
func (l *loop) doze(clock *time.Timer, d time.Duration) bool {
	l.state.Store(dozing)
	defer l.state.Store(running)
	if !l.polled.Swap(false) || l.ended.Load() {
		return false
	}
	clock.Reset(d)
	select {
	case <-clock.C:
	case <-l.undoze:
	}
	return true
}

// park waits until a socket is ready, a program polls or rouse is called.
func (l *loop) park() {
	l.state.Store(parking)
	defer l.state.Store(running)
	var events [2]unix.EpollEvent
	n, armed, set := 0, false, 0
	err := l.raw.Read(func(fd uintptr) bool {
		set = int(fd)
		if !armed { // a modification reports what is ready already
			armed = true
			l.arm(set, unix.EPOLLIN)
		}
		n, _ = unix.EpollWait(set, events[:], 0)
		return n > 0 || l.polled.Load() || l.some.Load() || l.warm.Load() || l.ended.Load()
	})
	if err != nil {
		return
	}
	for i := range max(n, 0) {
		if int(events[i].Fd) == l.wakeFD {
			var count [8]byte
			_, _ = unix.Read(l.wakeFD, count[:])
		} else {
			armed = false
		}
	}
	if armed {
		l.arm(set, 0)
	}
}

// arm sets which event of the sockets' set ends the wait, once; none if events is 0.
func (l *loop) arm(set int, events uint32) {
	e := unix.EpollEvent{Events: events | unix.EPOLLONESHOT, Fd: int32(l.ready)}
	_ = unix.EpollCtl(set, unix.EPOLL_CTL_MOD, l.ready, &e)
}
