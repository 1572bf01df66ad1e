package shm

import (
	"net"
	"slices"
	"sync"
)

// Sockets are those of a Directory: what it listens at, by name, and how it reaches others. The zero value is ready for use.
type Sockets struct {
	mu        sync.Mutex
	listeners map[string]*net.UnixListener
}

// Dial connects to a process.
func (s *Sockets) Dial(name string) (*net.UnixConn, error) {
	return net.DialUnix("unix", nil, &net.UnixAddr{Name: name, Net: "unix"})
}

// Listen listens at these names and no others. One that is taken is left out: its packets go over the other link.
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
		if s.listeners == nil {
			s.listeners = make(map[string]*net.UnixListener)
		}
		s.listeners[name] = l
		go acceptAll(l, accept)
	}
}

func acceptAll(l *net.UnixListener, accept func(*net.UnixConn)) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return
		}
		accept(c)
	}
}
