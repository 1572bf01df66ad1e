package udp

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/host"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// member is our part in the group of processes that use an address.
type member struct {
	group *host.Group
	boxes []*host.Mailbox // of our lanes
	left  []host.Bequest  // by those that had our lanes before
	mine  sync.Map        // service IDs that this link has claimed, and their *service

	sorter *host.Sorter
}

// dropLane gives back the lane that was claimed last.
func (m *member) dropLane() {
	last := len(m.boxes) - 1
	m.boxes[last].Close()
	m.boxes = m.boxes[:last]
}

func (m *member) close() {
	m.group.Stop()
	m.sorter.Close()
	for _, b := range m.boxes {
		b.Close()
	}
	m.mine.Range(func(_, b any) bool {
		b.(*service).box.Close()
		return true
	})
	m.group.Close()
}

// join joins the groups of all addresses and claims the lanes of the ports: the same ones at each address.
func (l *Link) join() error {
	for _, a := range l.cfg.Addrs {
		if err := l.joinGroup(a); err != nil {
			return err
		}
	}
	// A new process begins anywhere, so that the numbers of one that died are not used again soon.
	first := rand.IntN(host.Lanes)
	for i := range host.Lanes {
		if len(l.lanes) == l.cfg.Ports || i >= host.Lanes/2 && len(l.lanes) > 0 {
			break // few are left: one shard must do
		}
		if err := l.claim((first + i) % host.Lanes); err != nil && !errors.Is(err, unix.EADDRINUSE) {
			return err
		}
	}
	if len(l.lanes) == 0 {
		return fmt.Errorf("link/udp: the programs of this host use all %d shards that there are at %v; a program takes one for each of its GOMAXPROCS: %w", host.Lanes, l.cfg.Addrs[0], unix.EUSERS)
	}
	l.cfg.Ports = len(l.lanes)
	return nil
}

// KeyOf names the group of processes at an address of an interface.
func KeyOf(port uint16, a netip.Addr, ifindex int) host.Key {
	key := host.Key{Port: port, Addr: a}
	if zoned(a) {
		key.Zone = ifindex
	}
	return key
}

// joinGroup makes us a member at one address, without lanes.
func (l *Link) joinGroup(a netip.Addr) error {
	if l.members[a] != nil {
		return nil
	}
	g, err := host.Join(KeyOf(l.cfg.Port, a, l.ifi.Index), func() ([]int, error) { return l.openGroup(a) })
	if err != nil {
		return err
	}
	m := &member{group: g}
	g.Send = func(left []host.Bequest) { l.speakFor(a, left) }
	m.sorter = g.NewSorter(func(to host.Address) bool { return l.owns(m, to) }, l.mail.put)
	l.members[a] = m
	// Another process may have opened the sockets, with other settings.
	fd := g.FD(host.GSI)
	if n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF); err == nil && (l.recvBuffer == 0 || n < l.recvBuffer) {
		l.recvBuffer = n
	}
	if on, err := unix.GetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO); err == nil && on != 0 {
		l.gro.Store(true)
	}
	return nil
}

// openGroup opens the sockets of an address, as its first process.
func (l *Link) openGroup(a netip.Addr) (fds []int, err error) {
	defer func() {
		if err != nil {
			closeFDs(fds...)
			fds = nil
		}
	}()
	for i := range host.Lanes + 1 {
		fd, err := l.openRecv(a, i > 0)
		if err != nil {
			return fds, err
		}
		fds = append(fds, fd)
		if i == 0 { // as in addAddr: alone first
			o := options{fd: fd}
			if o.set("SO_REUSEPORT", unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); o.err != nil {
				return fds, o.err
			}
		}
	}
	return fds, steerLanes(fds[0])
}

// claim claims a lane at all addresses, or at none.
func (l *Link) claim(lane int) (err error) {
	l.lanes = append(l.lanes, lane)
	defer func() {
		if err != nil {
			l.lanes = l.lanes[:len(l.lanes)-1]
		}
	}()
	for i, a := range l.cfg.Addrs {
		m := l.members[a]
		b, err := m.group.ClaimLane(lane, l.deliverer(lane))
		if err != nil {
			for _, a := range l.cfg.Addrs[:i] {
				l.members[a].dropLane()
			}
			return err
		}
		m.boxes = append(m.boxes, b)
		m.left = append(m.left, m.group.Left(lane)...)
	}
	return nil
}

// deliverer takes what comes to the mailbox of a lane. What goes to all lanes is taken from our first one.
func (l *Link) deliverer(lane int) func(host.Mail) {
	first := lane == l.lanes[0]
	return func(m host.Mail) {
		if !m.ToAll || first {
			l.mail.put(m)
		}
	}
}

// addShared lets the ports receive at an address of a shared link.
func (l *Link) addShared(a netip.Addr) (err error) {
	if l.members[a] == nil { // a new address
		if err := l.joinGroup(a); err != nil {
			return err
		}
		m := l.members[a]
		for _, lane := range l.lanes {
			b, err := m.group.ClaimLane(lane, l.deliverer(lane))
			if err != nil {
				l.dropAddr(a)
				return fmt.Errorf("link/udp: another process has our QP numbers at %v: %w", a, err)
			}
			m.boxes = append(m.boxes, b)
			m.left = append(m.left, m.group.Left(lane)...)
		}
		for id := range l.wild { // as far as nobody was quicker
			_ = m.claim(l, id)
		}
	}
	m := l.members[a]
	for i, p := range l.ports {
		fd := m.group.FD(l.lanes[i])
		discard(fd)
		tx, err := l.openSend(a, 0)
		if err == nil {
			if i == 0 && l.gso.Load() && !segmentable(tx.fd) {
				l.gso.Store(false)
			}
			if err = p.add(rxSocket{fd: fd, addr: a, shared: true, index: l.lanes[i], sorter: m.sorter}, tx); err != nil {
				unix.Close(tx.fd)
			}
		}
		if err != nil {
			l.dropAddr(a)
			return err
		}
	}
	m.group.Start(func() { l.lead(m, a) })
	l.speakFor(a, m.left)
	m.left = nil
	return nil
}

// discard throws away what has come for the process that had the lane before.
func discard(fd int) {
	var buf [1]byte
	for {
		if _, _, err := unix.Recvfrom(fd, buf[:], unix.MSG_DONTWAIT|unix.MSG_TRUNC); err != nil && err != unix.EINTR {
			return
		}
	}
}

// lead makes us read the socket of QP 1 at an address.
func (l *Link) lead(m *member, a netip.Addr) {
	_ = l.ports[0].add(rxSocket{fd: m.group.FD(host.GSI), addr: a, shared: true, index: host.GSI, sorter: m.sorter}, nil)
}

// owns tells whether mail is for this link.
func (l *Link) owns(m *member, to host.Address) bool {
	if to.Lane < 0 {
		_, ok := m.mine.Load(to.Service)
		return ok
	}
	for _, lane := range l.lanes {
		if lane == to.Lane {
			return true
		}
	}
	return false
}

// leave gives up what join has claimed.
func (l *Link) leave() {
	for a := range l.members {
		l.dropAddr(a)
	}
}

// QPNs is the range of QP numbers whose packets come to a port; see link.Numbered.
func (l *Link) QPNs(port int) (first, last uint32, ok bool) {
	if l.lanes == nil {
		return 0, 0, false
	}
	first, last = host.QPNs(l.lanes[port])
	return first, last, true
}

// CommIDs is what communication IDs begin with; see link.Shared.
func (l *Link) CommIDs() (prefix uint32, bits int) {
	if l.lanes == nil {
		return 0, 0
	}
	return host.CommIDs(l.lanes[0])
}

// service is a claim to a service ID.
type service struct {
	box  *host.Mailbox
	uses int
}

// claim claims a service ID at the member's address once more. Link.mu is held, here and in unclaim.
func (m *member) claim(l *Link, id uint64) error {
	if s, ok := m.mine.Load(id); ok {
		s.(*service).uses++
		return nil
	}
	b, err := m.group.ClaimService(id, l.mail.put)
	if err != nil {
		return fmt.Errorf("link/udp: another process listens on service ID 0x%x: %w", id, err)
	}
	m.mine.Store(id, &service{box: b, uses: 1})
	return nil
}

func (m *member) unclaim(id uint64) {
	v, ok := m.mine.Load(id)
	if !ok {
		return // the address has gone meanwhile
	}
	s := v.(*service)
	if s.uses--; s.uses == 0 {
		m.mine.Delete(id)
		s.box.Close()
	}
}

// ClaimService claims a service ID; see link.Shared.
func (l *Link) ClaimService(id uint64, at netip.Addr) (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var claimed []*member
	giveBack := func() {
		for _, m := range claimed {
			m.unclaim(id)
		}
	}
	for a, m := range l.members {
		if at.IsValid() && a != at {
			continue
		}
		if err := m.claim(l, id); err != nil {
			giveBack()
			return nil, err
		}
		claimed = append(claimed, m)
	}
	if !at.IsValid() {
		l.wild[id]++
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !at.IsValid() {
			if l.wild[id]--; l.wild[id] == 0 {
				delete(l.wild, id)
			}
		}
		giveBack()
	}, nil
}

// mailbag holds packets for QP 1 until port 0 takes them.
type mailbag struct {
	port atomic.Pointer[port]
	full atomic.Bool

	mu    sync.Mutex
	mails []host.Mail
}

// mostMail bounds what waits; more is lost, as in a socket's buffer.
const mostMail = 4096

func (b *mailbag) put(m host.Mail) {
	b.mu.Lock()
	if len(b.mails) < mostMail {
		b.mails = append(b.mails, m)
	}
	b.full.Store(true)
	b.mu.Unlock()
	if p := b.port.Load(); p != nil {
		p.Wake()
	}
}

// takeMail appends to b what other processes have received for us.
func (p *port) takeMail(b *link.RxBatch) {
	bag := &p.link.mail
	bag.mu.Lock()
	mails := bag.mails
	bag.mails = nil
	bag.full.Store(false)
	bag.mu.Unlock()
	for _, m := range mails {
		if _, err := wire.Parse(m.Packet); err != nil {
			p.verify.malformed++
			continue
		}
		b.Packets = append(b.Packets, link.RxPacket{Data: m.Packet, Src: m.Src, Dst: m.Dst, TClass: m.TClass, HopLimit: m.HopLimit})
	}
}
