package udp

import (
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// waiter parks a goroutine until one of a set of sockets is readable, a time has come or
// somebody wakes it.
//
//	Go's network poller -> park (an epoll) -> sockets (an epoll) -> the receive sockets
//	                                       -> timer (a timerfd)
//
// The set of sockets is watched by park with EPOLLONESHOT: while nobody waits it is disarmed, and
// packets wake nothing. The timer is there because Go's own are up to a millisecond late.
// wake goes through the deadline of the file, which costs no system call.
type waiter struct {
	sockets int // epoll; Recv asks it too when there are several
	timer   int
	file    *os.File // park
	raw     syscall.RawConn

	state atomic.Uint32

	// Of the goroutine in wait:
	start    time.Time // of the waiter; times below count from it
	armed    bool      // sockets are watched
	deadline time.Duration
	fires    time.Duration // no later than this the timer fires; 0 if it does not
	woken    bool          // the file's deadline has been set
	try      func(fd uintptr) bool
	settle   func(fd uintptr)
}

// States of a waiter.
const (
	idle    = iota
	waiting // a goroutine is in wait, or about to be
	woken   // wake has been called since wait returned, or the goroutine in wait is to return
)

// What an event of park is about.
const (
	eventSockets = iota
	eventTimer
)

func newWaiter() (w *waiter, err error) {
	w = &waiter{sockets: -1, timer: -1, start: time.Now()}
	w.try, w.settle = w.ready, w.disarm
	park := -1
	defer func() {
		if err != nil {
			closeFDs(w.sockets, w.timer, park)
		}
	}()
	if w.sockets, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("link/udp: epoll_create1: %w", err)
	}
	if park, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("link/udp: epoll_create1: %w", err)
	}
	if w.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK); err != nil {
		return nil, fmt.Errorf("link/udp: timerfd_create: %w", err)
	}
	if err = unix.EpollCtl(park, unix.EPOLL_CTL_ADD, w.sockets, &unix.EpollEvent{Fd: eventSockets}); err != nil {
		return nil, fmt.Errorf("link/udp: epoll_ctl: %w", err)
	}
	timer := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: eventTimer}
	if err = unix.EpollCtl(park, unix.EPOLL_CTL_ADD, w.timer, &timer); err != nil {
		return nil, fmt.Errorf("link/udp: epoll_ctl: %w", err)
	}
	// Only a non-blocking file goes to the network poller.
	if err = unix.SetNonblock(park, true); err != nil {
		return nil, fmt.Errorf("link/udp: %w", err)
	}
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

// watch adds a socket. Closing it removes it.
func (w *waiter) watch(fd int) error {
	return unix.EpollCtl(w.sockets, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
}

// unwatch takes out a socket that others have open too, so that closing it would not.
func (w *waiter) unwatch(fd int) {
	_ = unix.EpollCtl(w.sockets, unix.EPOLL_CTL_DEL, fd, nil)
}

// wait is link.Port's Wait.
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
		w.raw.Control(w.settle)
	}
	w.woken = w.state.Swap(idle) == woken
}

// wake is link.Port's Wake.
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

// ready looks whether wait is over, and otherwise sees to it that the poller will call again. The file
// cannot be closed in the meantime, so all descriptors are valid.
func (w *waiter) ready(park uintptr) bool {
	if !w.armed {
		w.arm(int(park), unix.EPOLLIN|unix.EPOLLONESHOT)
		w.armed = true
	}
	now := time.Since(w.start)
	// The state is looked at here because wait may clear the file's deadline, after a wake that came late to an earlier
	// wait, just when a new one has set it.
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
		left := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(w.deadline - now))}
		unix.TimerfdSettime(w.timer, 0, &left, nil)
		w.fires = w.deadline
	}
	return over
}

func (w *waiter) arm(park int, events uint32) {
	unix.EpollCtl(park, unix.EPOLL_CTL_MOD, w.sockets, &unix.EpollEvent{Events: events, Fd: eventSockets})
}

func (w *waiter) disarm(park uintptr) {
	w.arm(int(park), 0)
	w.armed = false
}

// close ends wait, now and for ever.
func (w *waiter) close() {
	w.wake()
	w.file.Close() // returns when nobody is in ready or disarm
	closeFDs(w.sockets, w.timer)
}
