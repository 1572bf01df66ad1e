package shm

import (
	"net"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"
)

// A Surveyor is a Directory that knows the addresses of this host. Without one, a sender may use any source.
type Surveyor interface {
	// Local reports whether a process of this host can send from addr over UDP, without privileges.
	Local(addr netip.Addr) bool
}

// Local reports whether addr is an address of the network namespace, from which each of its processes can send over
// UDP; see Surveyor. It binds a socket to the address and connects it. Binding alone is no proof:
// net.ipv4.ip_nonlocal_bind allows it for all addresses, and any process may bind to a broadcast address.
func (s *Sockets) Local(addr netip.Addr) bool {
	switch {
	case !addr.IsValid(), addr.IsUnspecified(), addr.IsMulticast():
		return false
	case addr.Is6() && addr.IsLinkLocalUnicast():
		return ofInterface(addr)
	}
	family, to := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: 9, Addr: addr.As16()})
	if addr.Is4() {
		family, to = unix.AF_INET, &unix.SockaddrInet4{Port: 9, Addr: addr.As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	// The source that the kernel chooses for 127.0.0.2 is 127.0.0.1, so an IPv4 socket is bound to the address.
	// For IPv6 the kernel chooses the destination itself if it is local.
	if addr.Is4() && unix.Bind(fd, &unix.SockaddrInet4{Addr: addr.As4()}) != nil || unix.Connect(fd, to) != nil {
		return false
	}
	from, err := unix.Getsockname(fd)
	if err != nil {
		return false
	}
	switch from := from.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(from.Addr) == addr
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(from.Addr) == addr
	}
	return false
}

// ofInterface reports whether an interface has addr.
func ofInterface(addr netip.Addr) bool {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr() == addr {
			return true
		}
	}
	return false
}

// sources caches which addresses senders may send from.
type sources struct {
	local func(netip.Addr) bool // nil: all addresses are admitted

	mu sync.Mutex // guards the following
	// +checklocks:mu
	known map[netip.Addr]source
	// +checklocks:mu
	checked int64 // time of the last check beyond freeChecks, ns
}

type source struct {
	local bool
	at    int64 // time of the check, ns
}

const (
	// An address that was not local is checked again after sourceAge, ns.
	sourceAge = int64(1e9)
	maxSource = 1024
	// Each ring set may make freeChecks checks at once, and all ring sets together one in each checkPause, ns: a
	// check makes system calls. An address that may not be checked counts as not local.
	freeChecks = 16
	checkPause = int64(1e6)
)

// admit reports whether the sender of l may send from addr.
func (s *sources) admit(l *rxRings, addr netip.Addr, now int64) bool {
	if s.local == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if k, ok := s.known[addr]; ok && (k.local || now-k.at < sourceAge) {
		return k.local
	}
	if l.checks >= freeChecks {
		if now-s.checked < checkPause {
			return false
		}
		s.checked = now
	}
	l.checks++
	if s.known == nil || len(s.known) >= maxSource {
		s.known = make(map[netip.Addr]source)
	}
	ok := s.local(addr)
	s.known[addr] = source{ok, now}
	return ok
}
