package udp

import (
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/errqueue"
	"github.com/verbena-rdma/verbena/internal/link"
)

// ICMP messages about packets of a transmit socket are in the socket's error queue, and make its next call fail with
// their errno whatever that call sends. The call is then repeated, and packets to the address of the message count as
// refused for a while: they are sent all the same, because the message may be forged or out of date.

// unreached has the errno of the last ICMP message about each address.
type unreached map[netip.Addr]notice

// notice is an errno and the time until which it counts.
type notice struct {
	errno unix.Errno
	until time.Time
}

const (
	noticeAge  = 5 * time.Second
	maxNotices = 256
	// errorRoom is the receive buffer of a transmit socket in bytes, which holds its error queue.
	errorRoom = 16 << 10
	// maxErrors bounds the messages read at once: the socket may get new ones as fast.
	maxErrors = 16
)

// reportErrors makes the socket keep ICMP messages.
func (l *Link) reportErrors(o *options, a netip.Addr) {
	level, opt := unix.IPPROTO_IP, unix.IP_RECVERR
	if a.Is6() {
		level, opt = unix.IPPROTO_IPV6, unix.IPV6_RECVERR
	}
	if o.try(level, opt, 1) {
		o.set("SO_RCVBUF", unix.SOL_SOCKET, unix.SO_RCVBUF, errorRoom)
	}
}

// reported reads the error queue of the sender's socket after errno. It reports whether an ICMP message was the cause,
// so that the call is to be repeated.
func (p *port) reported(errno unix.Errno) (again bool) {
	switch errno { // of the messages that Linux translates
	case unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EACCES, unix.EMSGSIZE, unix.ENOPROTOOPT,
		unix.EOPNOTSUPP, unix.EHOSTDOWN, unix.ENONET, unix.EPROTO:
	default:
		return false
	}
	for range maxErrors {
		m, ok := errqueue.Read(p.sender.socket.fd)
		if !ok {
			break
		}
		if !m.ICMP {
			continue
		}
		again = true
		if counts(&m) {
			p.note(m.To, m.Errno)
		}
	}
	return again
}

// counts reports whether an ICMP message says that packets to their destination do not arrive: no host has the address,
// or the host itself says that no program has the port. Other messages are about the way, which may change.
func counts(m *errqueue.Entry) bool {
	return m.Errno == unix.EHOSTUNREACH || m.Errno == unix.ECONNREFUSED && m.From == m.To
}

// note remembers a message about an address.
func (p *port) note(to netip.Addr, errno unix.Errno) {
	if p.unreached == nil || len(p.unreached) >= maxNotices {
		p.unreached = unreached{}
	}
	p.unreached[to] = notice{errno, time.Now().Add(noticeAge)}
}

// markUnreached marks the packets of a message for addresses that an ICMP message is about as refused.
func (p *port) markUnreached(b *link.TxBatch, r run) {
	first := &b.Packets[r.first] // a run has one destination
	n, ok := p.unreached[first.Path.Dst]
	if !ok {
		return
	}
	if time.Now().After(n.until) {
		delete(p.unreached, first.Path.Dst)
		if len(p.unreached) == 0 {
			p.unreached = nil
		}
		return
	}
	for i := r.first; i < r.first+r.count; i++ {
		b.Packets[i].Path.Refuse(n.errno, b.Packets[i].Len)
	}
}
