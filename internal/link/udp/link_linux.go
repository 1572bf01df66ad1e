package udp

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/board"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// A Link is the batching link of Linux.
type Link struct {
	cfg   Config
	ifi   atomic.Pointer[net.Interface] // see renewed
	ports []*port

	loopback bool
	serves   bool        // the link of a verbena serve
	gso      atomic.Bool // UDP_SEGMENT is not known to fail
	gro      atomic.Bool // UDP_GRO is in use

	screen atomic.Pointer[link.Screen] // see SetScreen

	// groups6 are the joined IPv6 groups on a loopback interface; see Join.
	groups6 atomic.Pointer[[]netip.Addr]

	recvBuffer atomic.Int64 // length of the shortest receive buffer in bytes

	// mu guards the following, and the order of changes to the sockets of the ports. A request to the process that leads
	// at an address is made with mu held, and so for up to 5 s if that is stopped; those about groups are made without,
	// and so is the wait of SetAddrs for the end of a membership.
	mu sync.Mutex
	// +checklocks:mu
	addrs     []netip.Addr
	departing []*member          // of addresses that the link has left
	groups    map[netip.Addr]int // number of joins
	// +checklocks:mu
	opened bool // Open succeeds
	// +checklocks:mu
	early error // why Open fails: verbena serve ended before
	// +checklocks:mu
	closed bool
	claims map[*serviceClaim]struct{} // of service IDs, that are not released

	changing sync.Mutex // one call of SetAddrs at a time; before mu

	// membersMu guards members, and the use of each by a goroutine that does not hold mu. A change needs both locks.
	membersMu sync.Mutex
	members   map[netip.Addr]*member // of the groups of processes at our addresses, if the link is shared

	slots []int     // QPN slots of the ports, if the link is shared
	mail  mailQueue // packets that other processes forwarded

	losing sync.WaitGroup // calls of Config.Lost; they begin with mu held, while the link is open
}

func openBatched(cfg Config) (link.Link, error) {
	cfg, ifi, err := cfg.withDefaults()
	if err == nil {
		err = probe()
	}
	if err != nil {
		return nil, err
	}
	l := &Link{cfg: cfg, loopback: ifi.Flags&net.FlagLoopback != 0, groups: map[netip.Addr]int{}}
	l.ifi.Store(ifi)
	l.members, l.claims = map[netip.Addr]*member{}, map[*serviceClaim]struct{}{}
	l.gso.Store(!cfg.NoGSO)
	l.gro.Store(!cfg.NoGRO && trustGRO())
	if cfg.Shared {
		if err := l.join(); err != nil {
			l.leave()
			l.endDeparting()
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
	err = l.SetAddrs(cfg.Addrs)
	if err == nil {
		err = l.open()
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// open is the end of Open, from which on Lost is called. It fails if verbena serve has ended at one of the addresses
// already.
func (l *Link) open() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.opened = l.early == nil
	return l.early
}

// Ports lists the ports.
func (l *Link) Ports() []link.Port {
	ports := make([]link.Port, len(l.ports))
	for i, p := range l.ports {
		ports[i] = p
	}
	return ports
}

// RecvBuffer returns the size of the kernel buffer of each receive socket in bytes. A packet takes up to twice its
// length of it.
func (l *Link) RecvBuffer() int { return int(l.recvBuffer.Load()) }

// Capabilities returns the size of the buffer and, if the link is shared, the interfaces for sharing.
func (l *Link) Capabilities() link.Capabilities {
	c := link.Capabilities{RecvBuffer: l.RecvBuffer(), Screener: l}
	if l.slots != nil {
		c.Shared, c.LastWills = l, l
		for i := range l.slots {
			first, last, _ := l.QPNs(i)
			c.QPNs = append(c.QPNs, link.QPNRange{First: first, Last: last})
		}
	}
	return c
}

// SetScreen sets what drops management packets early; see link.Screener.
func (l *Link) SetScreen(s link.Screen) {
	if s == nil {
		l.screen.Store(nil)
		return
	}
	l.screen.Store(&s)
	l.showBoards()
}

// showBoards gives the screen the boards of all addresses.
func (l *Link) showBoards() {
	l.membersMu.Lock()
	defer l.membersMu.Unlock()
	s := l.screen.Load()
	if s == nil {
		return
	}
	var boards []*board.Board
	for _, m := range l.members {
		if b := m.group.Board(); b != nil {
			boards = append(boards, b)
		}
	}
	(*s).Show(boards)
}

// screened reports whether a packet of a socket, BTH to ICRC, is dropped: by the screen, or if it is a request for
// another process by that of the process.
func (l *Link) screened(s *rxSocket, pkt []byte) bool {
	const mads = wire.BTHLen + wire.DETHLen
	if len(pkt) != mads+wire.MADLen+wire.ICRCLen || wire.BTH(pkt).DestQPN() != wire.GSIQPN {
		return false
	}
	mad := pkt[mads:][:wire.MADLen]
	if s.gsi() {
		if foreign, drop := s.group.Screen(mad); foreign {
			return drop
		}
	}
	screen := l.screen.Load()
	return screen != nil && (*screen).Drop(mad)
}

// SetAddrs replaces the local addresses. If it fails, they are unchanged. If another interface has the name of the
// link's one now, it opens all sockets again, and the link has no address if it fails.
func (l *Link) SetAddrs(addrs []netip.Addr) error {
	addrs, err := checkAddrs(addrs)
	if err != nil {
		return err
	}
	l.changing.Lock()
	defer l.changing.Unlock()
	again := l.renewed()
	if again {
		_ = l.change(nil)
		l.depart()
	}
	err = l.change(addrs)
	l.depart()
	if again {
		l.rejoin()
	}
	return err
}

// renewed reports whether another interface has the name of the link's one, which was deleted, and takes it over:
// sockets of link-local addresses, memberships in groups and the interface for multicast are those of one interface.
func (l *Link) renewed() bool {
	was := l.ifi.Load()
	now, err := net.InterfaceByName(was.Name)
	if err != nil || now.Index == was.Index {
		return false
	}
	l.ifi.Store(now)
	return true
}

// depart ends the members of addresses that the link has left, whose processes that lead have released them then.
func (l *Link) depart() {
	for _, m := range l.takeDeparting() {
		m.group.Depart() // the link may get the address again
		m.close()
	}
}

// change is SetAddrs, without the wait for the processes that lead at addresses that the link leaves.
func (l *Link) change(addrs []netip.Addr) error {
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
		// The first socket is bound alone, which fails if another program has the port. The others join it
		// afterwards, so no other process of this user can join unnoticed.
		fd, err := l.openRecv(a, i > 0)
		if err != nil {
			return err
		}
		rx = append(rx, rxSocket{fd: fd, addr: a})
		l.learn(fd)
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
	l.tryGSO(tx[0].fd)
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
		l.membersMu.Lock()
		delete(l.members, a)
		l.membersMu.Unlock()
		l.forgetMember(m)
		l.departing = append(l.departing, m)
	}
	for _, p := range l.ports {
		p.remove(a)
	}
}

// takeDeparting returns the members of addresses that the link has left. The caller, without mu, ends them.
func (l *Link) takeDeparting() []*member {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.departing
	l.departing = nil
	return all
}

// tryGSO makes the link send no GSO runs if the kernel does not support UDP_SEGMENT (4.18 and later) at a socket.
func (l *Link) tryGSO(fd int) {
	if _, err := unix.GetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT); err != nil {
		l.gso.Store(false)
	}
}

// trustGRO reports whether the kernel is new enough for UDP_GRO: before 5.12 it merged packets that it must not
// merge.
func trustGRO() bool { return kernelAtLeast(5, 12) }

func kernelAtLeast(major, minor int) bool { return versionAtLeast(kernelRelease(), major, minor) }

// kernelRelease returns the release of the kernel, empty if it does not say. Tests replace it.
var kernelRelease = func() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// versionAtLeast parses a kernel release such as 6.1.0-56-amd64.
func versionAtLeast(release string, major, minor int) bool {
	var a, b int
	if n, _ := fmt.Sscanf(release, "%d.%d", &a, &b); n < 2 {
		return false
	}
	return a > major || a == major && b >= minor
}

// Close closes the sockets and ends a Wait. It returns after Config.Lost.
func (l *Link) Close() error {
	l.stopMembers()
	if !l.shut() {
		return errClosed
	}
	l.endDeparting()
	l.losing.Wait()
	return nil
}

// shut closes the ports, and reports whether the link was open.
func (l *Link) shut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.closed = true
	l.leave()
	for _, p := range l.ports {
		p.close()
	}
	return true
}

// endDeparting ends the members of addresses that the link has left, without a wait.
func (l *Link) endDeparting() {
	for _, m := range l.takeDeparting() {
		m.close()
	}
}

// stopMembers ends the requests to processes that lead, whose callers hold mu.
func (l *Link) stopMembers() {
	l.membersMu.Lock()
	all := slices.Collect(maps.Values(l.members))
	l.membersMu.Unlock()
	for _, m := range all {
		m.group.Stop()
	}
}

// Open opens a link. It returns EADDRINUSE if another program, or rdma_rxe in this network namespace, holds the port
// at one of the addresses, and EADDRNOTAVAIL if an address does not belong to this machine.
func Open(cfg Config) (link.Link, error) {
	if os.Getenv("VERBENA_UDP") == "plain" {
		return openPlain(cfg)
	}
	return openBatched(cfg)
}
