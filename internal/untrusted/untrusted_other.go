//go:build !linux

package untrusted

import (
	"io"
	"net"
)

// Close closes a socket.
func Close(c io.Closer) error { return c.Close() }

// Read reads from a socket.
func Read(c *net.UnixConn, b []byte) (int, error) { return c.Read(b) }

// A Listener is a listener.
type Listener struct{ *net.UnixListener }

// Keep makes a listener one of this package.
func Keep(l *net.UnixListener) *Listener { return &Listener{l} }
