package fault

import (
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
)

// Config of a wrapped link.
type Config struct {
	Seed uint64
	// Send and Recv are what happens to packets on their way out and in.
	Send, Recv Faults
	// Now is the time in nanoseconds by which delays are kept, never negative; nil is real time.
	Now func() int64
}

// Link is a link with faults. A damaged packet is one whose ICRC is wrong when it comes to a link: it is lost, and
// counted in RxICRCErrors if it was on its way in.
type Link struct {
	link.Link
	ports []*port
}

// Wrap puts faults before and behind inner. Closing the result closes inner.
func Wrap(inner link.Link, cfg Config) *Link {
	if cfg.Now == nil {
		epoch := time.Now()
		cfg.Now = func() int64 { return int64(time.Since(epoch)) }
	}
	l := &Link{Link: inner}
	for i, p := range inner.Ports() {
		l.ports = append(l.ports, newPort(p, cfg, uint64(i)))
	}
	return l
}

// Unwrap is the other link.
func (l *Link) Unwrap() link.Link { return l.Link }

// Ports lists the ports.
func (l *Link) Ports() []link.Port {
	ports := make([]link.Port, len(l.ports))
	for i, p := range l.ports {
		ports[i] = p
	}
	return ports
}

// SetFaults changes what happens from now on, at all ports. What is held back already stays so until its time.
func (l *Link) SetFaults(send, recv Faults) {
	for _, p := range l.ports {
		p.mu.Lock()
		p.send.SetFaults(send)
		p.recv.SetFaults(recv)
		p.mu.Unlock()
	}
}

// Prepare is that of the inner link; see link.Neighbours.
func (l *Link) Prepare(path *link.Path, qpn uint32) (near bool) {
	n, ok := l.Link.(link.Neighbours)
	return ok && n.Prepare(path, qpn)
}

// OnLost is that of the inner link; see link.Neighbours.
func (l *Link) OnLost(f func()) {
	if n, ok := l.Link.(link.Neighbours); ok {
		n.OnLost(f)
	}
}

// Lost is that of the inner link; see link.Neighbours.
func (l *Link) Lost(path *link.Path) link.Loss {
	if n, ok := l.Link.(link.Neighbours); ok {
		return n.Lost(path)
	}
	return link.NotLost
}

// RecvBuffer is that of the inner link; 0 if it does not tell.
func (l *Link) RecvBuffer() int {
	if b, ok := l.Link.(interface{ RecvBuffer() int }); ok {
		return b.RecvBuffer()
	}
	return 0
}
