package iwtcp

import (
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Device runs the QPs of a device. The zero value is ready.
type Device struct {
	taps tapped

	mu sync.Mutex
	// +checklocks:mu
	loop *loop // nil while there is no QP
	// +checklocks:mu
	qps map[uint32]*QP // by number
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
	if d.loop == nil {
		l, err := newLoop()
		if err != nil {
			return nil, err
		}
		d.loop, d.qps = l, map[uint32]*QP{}
	}
	d.qps[q.Num] = q
	return d.loop, nil
}

// leave ends the loop with the last QP.
func (d *Device) leave(q *QP) {
	d.mu.Lock()
	l := d.loop
	delete(d.qps, q.Num)
	last := len(d.qps) == 0
	if last {
		d.loop = nil
	}
	d.mu.Unlock()
	if last {
		l.stop()
	}
}

// loop is the goroutine of a device. Its epoll set is in the set of Go's poller, so that waiting takes no thread
// (decision 6). An eventfd in the set wakes it.
type loop struct {
	set    *os.File
	fd     int // of set
	wakeFD int
	done   sync.WaitGroup
	ended  atomic.Bool
	buf    []byte // for what is received

	mu sync.Mutex
	// +checklocks:mu
	qps map[int32]*QP // by socket
	// +checklocks:mu
	todo []*QP // to run without an event
}

const (
	rxBuffer  = 128 << 10
	maxEvents = 64
)

func newLoop() (*loop, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("eventfd", err)
	}
	err = unix.SetNonblock(fd, true) // so that os.NewFile gives it to Go's poller
	if err == nil {
		err = unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, wake, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(wake)})
	}
	if err != nil {
		_ = unix.Close(wake)
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("epoll_ctl", err)
	}
	l := &loop{fd: fd, wakeFD: wake, buf: make([]byte, rxBuffer), qps: map[int32]*QP{}}
	l.set = os.NewFile(uintptr(fd), "epoll")
	raw, err := l.set.SyscallConn()
	if err != nil {
		_ = unix.Close(wake)
		_ = l.set.Close()
		return nil, err
	}
	l.done.Go(func() { l.run(raw) })
	return l, nil
}

func (l *loop) stop() {
	l.ended.Store(true)
	l.wake()
	l.done.Wait()
	_ = l.set.Close()
	_ = unix.Close(l.wakeFD)
}

func (l *loop) wake() {
	_, _ = unix.Write(l.wakeFD, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // a full counter wakes too
}

// add puts the socket of a QP into the set.
func (l *loop) add(q *QP, fd int) error {
	l.mu.Lock()
	l.qps[int32(fd)] = q
	l.mu.Unlock()
	err := unix.EpollCtl(l.fd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
	if err != nil {
		l.remove(fd)
		return os.NewSyscallError("epoll_ctl", err)
	}
	return nil
}

// watch sets whether room for writing is an event of the socket.
func (l *loop) watch(fd int, room bool) {
	e := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
	if room {
		e.Events |= unix.EPOLLOUT
	}
	_ = unix.EpollCtl(l.fd, unix.EPOLL_CTL_MOD, fd, &e)
}

// remove takes a socket that is about to be closed out of the set.
func (l *loop) remove(fd int) {
	l.mu.Lock()
	delete(l.qps, int32(fd))
	l.mu.Unlock()
	_ = unix.EpollCtl(l.fd, unix.EPOLL_CTL_DEL, fd, nil)
}

// again has the loop run a QP soon.
func (l *loop) again(q *QP) {
	l.mu.Lock()
	l.todo = append(l.todo, q)
	l.mu.Unlock()
	l.wake()
}

func (l *loop) run(raw syscall.RawConn) {
	events := make([]unix.EpollEvent, maxEvents)
	for {
		n := 0
		err := raw.Read(func(fd uintptr) bool {
			n, _ = unix.EpollWait(int(fd), events, 0)
			return n > 0
		})
		if err != nil || l.ended.Load() {
			return
		}
		for i := range events[:max(n, 0)] {
			e := &events[i]
			if int(e.Fd) == l.wakeFD {
				var count [8]byte
				_, _ = unix.Read(l.wakeFD, count[:])
				continue
			}
			l.mu.Lock()
			q := l.qps[e.Fd]
			l.mu.Unlock()
			if q != nil { // if another QP has the socket's number meanwhile, its sockets report that they have nothing
				q.onEvent(l.buf, e.Events&^unix.EPOLLOUT != 0)
			}
		}
		l.mu.Lock()
		todo := l.todo
		l.todo = nil
		l.mu.Unlock()
		for _, q := range todo {
			q.onEvent(l.buf, false)
		}
	}
}
