package fault

import (
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
)

// Config configures a wrapped link.
type Config struct {
	Seed uint64
	// Send and Recv are the faults of sent and of received packets.
	Send, Recv Faults
	// Now returns the time in nanoseconds for delays, never negative; nil: real time.
	Now func() int64
}

// Link is a link with faults. A corrupted packet is dropped, as a receiver drops a packet with a wrong ICRC. A packet
// that is corrupted after it was received is counted in RxICRCErrors.
type Link struct {
	link.Link
	ports []*port
}

// Wrap makes a link that injects faults into the packets of inner. Closing it closes inner.
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

// Ports lists the ports.
func (l *Link) Ports() []link.Port {
	ports := make([]link.Port, len(l.ports))
	for i, p := range l.ports {
		ports[i] = p
	}
	return ports
}

// SetFaults replaces the faults of all ports. Packets that are already held back keep their delay.
func (l *Link) SetFaults(send, recv Faults) {
	for _, p := range l.ports {
		p.mu.Lock()
		p.send.SetFaults(send)
		p.recv.SetFaults(recv)
		p.mu.Unlock()
	}
}
