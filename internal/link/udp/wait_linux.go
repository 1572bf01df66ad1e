package udp

import (
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/fdset"
)

// A waiter parks a goroutine until one of a set of sockets is readable, a time has come or another goroutine wakes
// it.
//
//	Go's network poller -> park (an epoll) -> sockets (an epoll) -> the receive sockets
//	                                       -> timer (a timerfd)
//
// park watches a single socket directly, and the timer is created at its first use, to need few descriptors for each
// shard.
//
// park watches the set of sockets with EPOLLONESHOT: while no goroutine waits it is disarmed, and packets wake
// nothing. There is a timer because Go's timers are up to a millisecond late. wake sets the deadline of the file,
// which needs no system call.
type waiter struct {
	sockets int          // epoll, -1 while there is one socket; Recv uses it too when there are several
	target  atomic.Int32 // the descriptor that park watches for packets: sockets, the only socket, or -1
	park    int          // of file
	timer   int          // of the goroutine in wait, created at its first use; -1: not yet, noTimer: never
	file    *os.File     // park
	raw     syscall.RawConn

	state atomic.Uint32

	// Of the goroutine in wait:
	start    time.Time // of the waiter; the following times are relative to it
	armed    bool      // sockets are watched
	deadline time.Duration
	fires    time.Duration // the timer fires at this time at the latest; 0 if it does not
	woken    bool          // the file's deadline has been set
	try      func(fd uintptr) bool
	disarmFD func(fd uintptr)
}

// States of a waiter.
const (
	idle    = iota
	waiting // a goroutine is in wait, or about to be
	woken   // wake has been called since wait returned, or the goroutine in wait is to return
)

// Data of the events of park.
const (
	eventSockets = iota
	eventTimer
)

func newWaiter() (_ *waiter, err error) {
	w := &waiter{sockets: -1, timer: -1, start: time.Now()}
	w.target.Store(-1)
	w.try, w.disarmFD = w.ready, w.disarm
	park := -1
	defer func() {
		if err != nil {
			if w.file != nil {
				w.file.Close()
			} else {
				closeFDs(park)
			}
		}
	}()
	if park, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("link/udp: epoll_create1: %w", err)
	}
	park = fdset.Raise(park)
	// Only a non-blocking file goes to the network poller.
	if err = unix.SetNonblock(park, true); err != nil {
		return nil, fmt.Errorf("link/udp: %w", err)
	}
	w.park = park
	w.file = os.NewFile(uintptr(park), "epoll")
	if w.raw, err = w.file.SyscallConn(); err != nil {
		return nil, fmt.Errorf("link/udp: %w", err)
	}
	if err = w.file.SetReadDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("link/udp: the network poller does not take an epoll descriptor: %w", err)
	}
	return w, nil
}

func closeFDs(fds ...int) {
	for _, fd := range fds {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// watch adds a socket. The lock of the port is held, here and in unwatch.
func (w *waiter) watch(fd int) error {
	only := int(w.target.Load())
	switch {
	case w.sockets >= 0:
		return w.watchAmong(fd)
	case only < 0:
		if err := unix.EpollCtl(w.park, unix.EPOLL_CTL_ADD, fd, parked(0)); err != nil {
			return err
		}
		w.rearm(fd)
		return nil
	}
	sockets, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("epoll_create1: %w", err)
	}
	sockets = fdset.Raise(sockets)
	w.sockets = sockets
	if err = w.watchAmong(only); err == nil {
		err = w.watchAmong(fd)
	}
	if err == nil {
		err = unix.EpollCtl(w.park, unix.EPOLL_CTL_ADD, sockets, parked(0))
	}
	if err != nil {
		unix.Close(sockets)
		w.sockets = -1
		return err
	}
	_ = unix.EpollCtl(w.park, unix.EPOLL_CTL_DEL, only, nil)
	w.rearm(sockets)
	return nil
}

// rearm makes park watch another descriptor. A goroutine may be waiting already.
func (w *waiter) rearm(fd int) {
	w.target.Store(int32(fd))
	if w.state.Load() != idle {
		_ = unix.EpollCtl(w.park, unix.EPOLL_CTL_MOD, fd, parked(unix.EPOLLIN|unix.EPOLLONESHOT))
	}
}

// parked returns the event of park for sockets, or for the only socket.
func parked(events uint32) *unix.EpollEvent {
	return &unix.EpollEvent{Events: events, Fd: eventSockets}
}

func (w *waiter) watchAmong(fd int) error {
	return unix.EpollCtl(w.sockets, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
}

// unwatch removes a socket that is about to be closed; other processes may have it open too.
func (w *waiter) unwatch(fd int) {
	if w.sockets >= 0 {
		_ = unix.EpollCtl(w.sockets, unix.EPOLL_CTL_DEL, fd, nil)
		return
	}
	_ = unix.EpollCtl(w.park, unix.EPOLL_CTL_DEL, fd, nil)
	w.target.Store(-1)
}

// wait implements Wait of link.Port.
func (w *waiter) wait(d time.Duration) {
	if w.woken {
		w.woken = false
		w.file.SetReadDeadline(time.Time{})
	}
	if !w.state.CompareAndSwap(idle, waiting) {
		w.state.Store(idle)
		return
	}
	w.deadline = -1
	if d >= 0 {
		w.deadline = time.Since(w.start) + d
	}
	for {
		// The only errors are those of the deadline, from wake, and of a closed file.
		err := w.raw.Read(w.try)
		if err == nil || w.state.Load() != waiting || !os.IsTimeout(err) {
			break
		}
		w.file.SetReadDeadline(time.Time{}) // by a wake that came late to an earlier wait
	}
	if w.armed {
		w.raw.Control(w.disarmFD)
	}
	w.woken = w.state.Swap(idle) == woken
}

// wake implements Wake of link.Port.
func (w *waiter) wake() {
	for {
		switch s := w.state.Load(); {
		case s == woken, s == idle && w.state.CompareAndSwap(idle, woken):
			return
		case s == waiting && w.state.CompareAndSwap(waiting, woken):
			w.file.SetReadDeadline(time.Unix(1, 0))
			return
		}
	}
}

// ready reports whether wait must return, and otherwise arms the poller so that it is called again. The file cannot
// be closed meanwhile, so all descriptors are valid.
func (w *waiter) ready(park uintptr) bool {
	if !w.armed {
		w.arm(int(park), unix.EPOLLIN|unix.EPOLLONESHOT)
		w.armed = true
	}
	now := time.Since(w.start)
	// The state is read here because wait may clear the deadline of the file, after a late wake for an earlier
	// wait, just when a new wake has set it.
	over := w.state.Load() == woken || w.deadline >= 0 && now >= w.deadline
	var events [2]unix.EpollEvent
	n, _ := unix.EpollWait(int(park), events[:], 0)
	for _, e := range events[:max(n, 0)] {
		switch e.Fd {
		case eventSockets:
			w.armed = false
			over = true
		case eventTimer:
			w.fires = 0
		}
	}
	if !over && w.deadline >= 0 && (w.fires == 0 || w.fires <= now || w.fires > w.deadline) {
		w.fire(int(park), now)
		over = w.state.Load() == woken // fire may have replaced the deadline that wake has set
	}
	return over
}

const noTimer = -2

// fire sets the timer to the deadline. If there is no timer, because descriptors have run out or a sandbox refuses
// it, it uses Go's.
func (w *waiter) fire(park int, now time.Duration) {
	if w.timer == -1 {
		w.timer = openTimer(park)
	}
	if w.timer == noTimer {
		w.file.SetReadDeadline(time.Now().Add(w.deadline - now))
		return
	}
	left := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(w.deadline - now))}
	unix.TimerfdSettime(w.timer, 0, &left, nil)
	w.fires = w.deadline
}

// openTimer returns a timerfd that park watches, or noTimer.
func openTimer(park int) int {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return noTimer
	}
	fd = fdset.Raise(fd)
	e := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: eventTimer}
	if unix.EpollCtl(park, unix.EPOLL_CTL_ADD, fd, &e) != nil {
		unix.Close(fd)
		return noTimer
	}
	return fd
}

func (w *waiter) arm(park int, events uint32) {
	if fd := w.target.Load(); fd >= 0 {
		unix.EpollCtl(park, unix.EPOLL_CTL_MOD, int(fd), parked(events))
	}
}

func (w *waiter) disarm(park uintptr) {
	w.arm(int(park), 0)
	w.armed = false
}

// close ends the current wait and all later ones.
func (w *waiter) close() {
	w.wake()
	w.file.Close() // returns when no goroutine is in ready or disarm
	closeFDs(w.sockets, w.timer)
}
