//go:build !linux

package xrcd

import "net"

// A Member is the place of this process in a domain. There is none on this system.
type Member struct{}

// Join returns ErrUnsupported.
func Join(Domain, How) (*Member, error) { return nil, ErrUnsupported }

// Number returns 0.
func (*Member) Number() int { return 0 }

// Dial returns ErrGone.
func (*Member) Dial(int) (*Conn, error) { return nil, ErrGone }

// Accept returns net.ErrClosed.
func (*Member) Accept() (*Conn, error) { return nil, net.ErrClosed }

// Close does nothing.
func (*Member) Close() {}
