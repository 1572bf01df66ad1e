//go:build linux && cgo

package main

import (
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/verbena-rdma/verbena/rsocket/socket"
)

// socketCell is what C points to for an rsocket. Its memory always holds a socket: a thread may enter with the handle
// of a socket that another thread has just closed.
type socketCell struct {
	socket atomic.Pointer[socket.Socket]
}

var sockets struct {
	mu sync.Mutex
	// +checklocks:mu
	pin runtime.Pinner
	// +checklocks:mu
	free []*socketCell
	// The first socket that was closed: it answers EBADF to each call, and stands in the free cells.
	closed atomic.Pointer[socket.Socket]
}

// rs returns the socket of a handle.
func rs(h unsafe.Pointer) *socket.Socket { return (*socketCell)(h).socket.Load() }

// addSocket returns the handle of a socket, which is valid until dropSocket.
func addSocket(s *socket.Socket) unsafe.Pointer {
	sockets.mu.Lock()
	defer sockets.mu.Unlock()
	var c *socketCell
	if last := len(sockets.free) - 1; last >= 0 {
		c, sockets.free = sockets.free[last], sockets.free[:last]
	} else {
		c = new(socketCell)
		sockets.pin.Pin(c)
	}
	c.socket.Store(s)
	return unsafe.Pointer(c)
}

// dropSocket closes the socket of a handle; EBADF if it is closed.
func dropSocket(h unsafe.Pointer) error {
	c := (*socketCell)(h)
	s := c.socket.Load()
	if s == sockets.closed.Load() {
		return syscall.EBADF
	}
	if err := s.Close(); err != nil {
		return err
	}
	sockets.closed.CompareAndSwap(nil, s)
	c.socket.Store(sockets.closed.Load())
	sockets.mu.Lock()
	defer sockets.mu.Unlock()
	sockets.free = append(sockets.free, c)
	return nil
}
