package shm

import (
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/verbena-rdma/verbena/internal/fdset"
	"github.com/verbena-rdma/verbena/internal/untrusted"
)

// Sockets are the listeners of a Directory, by name. The zero value is ready for use.
type Sockets struct {
	mu sync.Mutex
	// +checklocks:mu
	listeners map[string]*untrusted.Listener
}

// Dial connects to a process.
func (s *Sockets) Dial(name string) (*net.UnixConn, error) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: name, Net: "unix"})
	if err == nil {
		fdset.AddConn(c)
	}
	return c, err
}

// Listen listens at these names and no others. It skips a name that is in use: its packets go over the other link. On
// Linux accept gets no connections of other users.
func (s *Sockets) Listen(names []string, accept func(*net.UnixConn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, l := range s.listeners {
		if !slices.Contains(names, name) {
			l.Close()
			delete(s.listeners, name)
		}
	}
	for _, name := range names {
		if s.listeners[name] != nil {
			continue
		}
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
		if err != nil {
			continue
		}
		fdset.AddConn(l)
		if s.listeners == nil {
			s.listeners = make(map[string]*untrusted.Listener)
		}
		u := untrusted.Keep(l)
		ownOnly(u)
		s.listeners[name] = u
		go acceptAll(u, accept)
	}
}

func acceptAll(l *untrusted.Listener, accept func(*net.UnixConn)) {
	for {
		c, err := l.AcceptUnix()
		switch {
		case err == nil:
			fdset.AddConn(c)
			accept(c)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			time.Sleep(acceptPause) // no descriptor is free
		}
	}
}

// acceptPause is the pause after an error of Accept.
const acceptPause = 20 * time.Millisecond
