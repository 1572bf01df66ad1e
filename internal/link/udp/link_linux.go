package udp

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/link"
)

// Link is the link of Linux, which batches.
type Link struct {
	cfg   Config
	ifi   *net.Interface
	ports []*port

	loopback bool
	mtu      int         // largest packet
	gso      atomic.Bool // UDP_SEGMENT works as far as we know
	gro      atomic.Bool // UDP_GRO does

	// groups6 are the joined IPv6 groups on a loopback interface; see Join.
	groups6 atomic.Pointer[[]netip.Addr]

	mu         sync.Mutex // guards what follows, and the order of changes to the ports' sockets
	recvBuffer int
	addrs      []netip.Addr
	groups     map[netip.Addr]int // times joined
	closed     bool
	members    map[netip.Addr]*member // of the groups of processes at our addresses, if the link is shared
	wild       map[uint64]int         // service IDs claimed at all addresses, how often

	lanes []int   // of the ports, if the link is shared
	mail  mailbag // packets for QP 1 that came through other processes
}

func openBatched(cfg Config) (link.Link, error) {
	cfg, ifi, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	l := &Link{cfg: cfg, ifi: ifi, loopback: ifi.Flags&net.FlagLoopback != 0, mtu: mtuOf(ifi), groups: map[netip.Addr]int{}}
	l.members, l.wild = map[netip.Addr]*member{}, map[uint64]int{}
	l.gso.Store(!cfg.NoGSO)
	l.gro.Store(!cfg.NoGRO && trustGRO())
	if cfg.Shared {
		if err := l.join(); err != nil {
			l.leave()
			return nil, err
		}
	}
	for i := range l.cfg.Ports {
		p, err := newPort(l, i)
		if err != nil {
			l.Close()
			return nil, err
		}
		l.ports = append(l.ports, p)
	}
	l.mail.port.Store(l.ports[0])
	if err := l.SetAddrs(cfg.Addrs); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// Ports lists the ports.
func (l *Link) Ports() []link.Port {
	ports := make([]link.Port, len(l.ports))
	for i, p := range l.ports {
		ports[i] = p
	}
	return ports
}

// MTU is the largest packet, BTH to ICRC.
func (l *Link) MTU() int { return l.mtu }

// RecvBuffer is the size in bytes of the kernel's buffer of each receive socket. A
// packet takes its length and some hundred bytes more, up to twice its length.
func (l *Link) RecvBuffer() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.recvBuffer
}

// SetAddrs replaces the local addresses. When it fails they are as they were.
func (l *Link) SetAddrs(addrs []netip.Addr) error {
	addrs, err := checkAddrs(addrs)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errClosed
	}
	old := l.addrs
	for i, a := range addrs {
		if slices.Contains(old, a) {
			continue
		}
		if err := l.addAddr(a); err != nil {
			for _, b := range addrs[:i] {
				if !slices.Contains(old, b) {
					l.dropAddr(b)
				}
			}
			return err
		}
	}
	for _, a := range old {
		if !slices.Contains(addrs, a) {
			l.dropAddr(a)
		}
	}
	l.addrs = addrs
	return nil
}

// addAddr opens the sockets of one address at every port, or none of them.
func (l *Link) addAddr(a netip.Addr) (err error) {
	var rx []rxSocket
	var tx []*txSocket
	defer func() {
		if err != nil {
			closeAll(rx, tx)
		}
	}()
	if l.cfg.Shared {
		return l.addShared(a)
	}
	for i := range l.ports {
		// The first socket is bound alone: nothing shares the port, or this fails. Only then may
		// the others join it, so no other process of this user can join unnoticed.
		fd, err := l.openRecv(a, i > 0)
		if err != nil {
			return err
		}
		rx = append(rx, rxSocket{fd: fd, addr: a})
		if i == 0 && len(l.ports) > 1 {
			o := options{fd: fd}
			if o.set("SO_REUSEPORT", unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); o.err != nil {
				return o.err
			}
		}
		s, err := l.openSend(a, 0)
		if err != nil {
			return err
		}
		tx = append(tx, s)
	}
	if len(rx) > 1 {
		if err := steer(rx[0].fd, len(rx)); err != nil {
			return err
		}
	}
	if l.gso.Load() && !segmentable(tx[0].fd) {
		l.gso.Store(false)
	}
	for i, p := range l.ports {
		if err := p.add(rx[i], tx[i]); err != nil {
			l.dropAddr(a)
			rx, tx = rx[i:], tx[i:]
			return err
		}
	}
	return nil
}

func closeAll(rx []rxSocket, tx []*txSocket) {
	for _, s := range rx {
		unix.Close(s.fd)
	}
	for _, s := range tx {
		unix.Close(s.fd)
	}
}

func (l *Link) dropAddr(a netip.Addr) {
	m := l.members[a]
	if m != nil {
		m.group.Stop()
	}
	for _, p := range l.ports {
		p.remove(a)
	}
	if m != nil {
		m.close()
		delete(l.members, a)
	}
}

// segmentable tells whether the kernel knows UDP_SEGMENT (4.18 and later).
func segmentable(fd int) bool {
	_, err := unix.GetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT)
	return err == nil
}

// trustGRO tells whether the kernel is new enough for UDP_GRO: before 5.12 it could merge what it should not.
func trustGRO() bool { return kernelAtLeast(5, 12) }

func kernelAtLeast(major, minor int) bool {
	var u unix.Utsname
	return unix.Uname(&u) == nil && versionAtLeast(unix.ByteSliceToString(u.Release[:]), major, minor)
}

// versionAtLeast reads a kernel release such as 6.1.0-56-amd64.
func versionAtLeast(release string, major, minor int) bool {
	var a, b int
	if n, _ := fmt.Sscanf(release, "%d.%d", &a, &b); n < 2 {
		return false
	}
	return a > major || a == major && b >= minor
}

// Close closes the sockets and ends a Wait.
func (l *Link) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errClosed
	}
	l.closed = true
	l.leave()
	for _, p := range l.ports {
		p.close()
	}
	return nil
}
