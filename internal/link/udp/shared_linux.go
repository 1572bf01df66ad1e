package udp

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/host"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// A member is the membership of the link in the group of processes that use an address.
type member struct {
	group      *host.Group
	slots      []host.Slot    // of the ports
	handedOver int            // number of slots whose sockets the ports own
	uses       map[uint64]int // number of claims of each service ID; guarded by Link.mu

	following sync.Mutex // one call of followAt at a time; before Link.mu
}

func (m *member) close() {
	m.group.Close()
	for _, s := range m.slots[m.handedOver:] {
		unix.Close(s.FD)
	}
}

// join joins the groups of all addresses and claims QPN slots for the ports: the same ones at each address.
func (l *Link) join() error {
	for _, a := range l.cfg.Addrs {
		if err := l.joinGroup(a); err != nil {
			return err
		}
	}
	var unusable []int // slots that another process owns at another address
	first := l.members[l.cfg.Addrs[0]]
	defer func() {
		for _, n := range unusable {
			first.group.Release(n)
		}
	}()
	for len(l.slots) < l.cfg.Ports {
		s, err := first.group.Claim(-1)
		if err != nil {
			if len(l.slots) > 0 {
				break // fewer ports are enough
			}
			return err
		}
		err = l.claim(s)
		switch {
		case errors.Is(err, unix.EADDRINUSE) && len(unusable) < host.Slots:
			unusable = append(unusable, s.N)
		case err != nil:
			return err
		}
	}
	l.cfg.Ports = len(l.slots)
	return nil
}

// claim claims a slot, which the link owns at its first address, at the others.
func (l *Link) claim(s host.Slot) error {
	got := []host.Slot{s}
	for _, a := range l.cfg.Addrs[1:] {
		t, err := l.members[a].group.Claim(s.N)
		if err != nil {
			unix.Close(s.FD)
			for i, t := range got[1:] {
				unix.Close(t.FD)
				l.members[l.cfg.Addrs[1+i]].group.Release(t.N)
			}
			return err
		}
		got = append(got, t)
	}
	for i, a := range l.cfg.Addrs {
		m := l.members[a]
		m.slots = append(m.slots, got[i])
	}
	l.slots = append(l.slots, s.N)
	return nil
}

// KeyOf returns the key of the group of processes at an address of an interface.
func KeyOf(port uint16, a netip.Addr, ifindex int) host.Key {
	key := host.Key{Port: port, Addr: a}
	if zoned(a) {
		key.Zone = ifindex
	}
	return key
}

// hostConfig returns the configuration of a group at an address.
func (l *Link) hostConfig(a netip.Addr) host.Config {
	return host.Config{
		Open:       func(join bool) (int, error) { return l.openRecv(a, join) },
		RecvBuffer: l.cfg.RecvBuffer,
		Loopback6:  l.loopback && a.Is6(),
		Deliver:    l.mail.put,
		Send:       func(w []host.Will) { l.sendWills(a, w) },
		Screen:     l.cfg.Screen,
	}
}

// joinGroup makes the link a member at one address, without slots.
func (l *Link) joinGroup(a netip.Addr) (err error) {
	if l.members[a] != nil {
		return nil
	}
	m := &member{uses: map[uint64]int{}}
	cfg := l.hostConfig(a)
	cfg.Lead = func(gsi, strays int) error { return l.leadAs(m, a, gsi, strays) }
	cfg.Lost = func(err error) { go l.lost(m, a, err) }
	if m.group, err = host.Join(KeyOf(l.cfg.Port, a, l.ifi.Load().Index), cfg); err != nil {
		return err
	}
	l.membersMu.Lock()
	defer l.membersMu.Unlock()
	l.members[a] = m
	return nil
}

// addShared makes the ports receive at an address of a shared link.
func (l *Link) addShared(a netip.Addr) (err error) {
	defer func() {
		if err != nil {
			l.dropAddr(a)
		}
	}()
	if l.members[a] == nil { // a new address
		if err := l.joinGroup(a); err != nil {
			return err
		}
		m := l.members[a]
		for _, n := range l.slots {
			s, err := m.group.Claim(n)
			if err != nil {
				return fmt.Errorf("link/udp: the link's QP numbers at %v: %w", a, err)
			}
			m.slots = append(m.slots, s)
		}
		l.renewClaims(a, m)
	}
	m := l.members[a]
	for i, p := range l.ports {
		s := m.slots[i]
		l.learn(s.FD)
		tx, err := l.openSend(a, 0)
		if err == nil {
			l.tryGSO(tx.fd)
			rx := rxSocket{fd: s.FD, addr: a, shared: true, index: host.FirstSlot + s.N, group: m.group}
			if err = p.add(rx, tx); err != nil {
				unix.Close(tx.fd)
			}
		}
		if err != nil {
			return err
		}
		m.handedOver++
	}
	l.enterGroups(a, m)
	m.group.Start()
	l.showBoards()
	return nil
}

// learn reads the settings of a socket that another process may have opened.
func (l *Link) learn(fd int) {
	had := l.recvBuffer.Load()
	n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err == nil && (had == 0 || int64(n) < had) {
		l.recvBuffer.Store(int64(n))
	}
	if on, err := unix.GetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO); err == nil && on != 0 {
		l.gro.Store(true)
	}
}

// leadAs is lead for a member. If the link has left the address meanwhile, the sockets are closed: they would keep the
// port from whoever gets the address next, this link included.
func (l *Link) leadAs(m *member, a netip.Addr, gsi, strays int) error {
	l.membersMu.Lock() // dropAddr deletes the member before it removes the sockets of the address
	defer l.membersMu.Unlock()
	if l.members[a] == m {
		return l.lead(m.group, a, gsi, strays)
	}
	unix.Close(gsi)
	unix.Close(strays)
	return nil
}

// lead makes port 0 read the socket of QP 1 at an address, and a goroutine that of strays. If it fails, it closes both.
func (l *Link) lead(g forwarder, a netip.Addr, gsi, strays int) error {
	rx := rxSocket{fd: gsi, addr: a, shared: true, index: host.GSI, group: g}
	if err := l.ports[0].add(rx, nil); err != nil {
		unix.Close(gsi)
		unix.Close(strays)
		return err
	}
	rx.fd, rx.index = strays, host.Strays
	l.ports[0].readStrays(rx)
	return nil
}

// lost ends receiving at an address after verbena serve has ended: no packets arrive, and the next verbena serve
// needs the port.
func (l *Link) lost(m *member, a netip.Addr, err error) {
	l.mu.Lock()
	if l.closed || l.members[a] != m {
		l.mu.Unlock()
		return
	}
	for _, p := range l.ports {
		p.remove(a)
	}
	if !l.opened {
		l.early = err
		l.mu.Unlock()
		return
	}
	l.losing.Add(1)
	l.mu.Unlock()
	defer l.losing.Done()
	if l.cfg.Lost != nil {
		l.cfg.Lost(err)
	}
}

// leave releases the claims of join.
func (l *Link) leave() {
	for a := range l.members {
		l.dropAddr(a)
	}
}

// QPNs returns the range of QP numbers of a port; see link.Capabilities.
func (l *Link) QPNs(port int) (first, last uint32, ok bool) {
	if l.slots == nil {
		return 0, 0, false
	}
	first, last = host.QPNs(l.slots[port])
	return first, last, true
}

// CommIDs returns the upper bits of communication IDs; see link.Shared.
func (l *Link) CommIDs() (prefix uint32, bits int) {
	if l.slots == nil {
		return 0, 0
	}
	return host.CommIDs(l.slots[0])
}

// enterGroups subscribes to packets for IPv6 groups that arrive at an address itself; see Join.
func (l *Link) enterGroups(a netip.Addr, m *member) {
	if !l.loopback || !a.Is6() {
		return
	}
	for g := range l.groups {
		if g.Is6() {
			_ = m.group.Enter(g)
		}
	}
}

// attempts limits the search for the multicast group of a packet, which computes a CRC for each group that any
// process has joined.
type attempts struct {
	begin time.Time
	left  int
}

const (
	attemptsPeriod = 10 * time.Millisecond
	maxAttempts    = 2000
)

// allow reports whether n more CRCs may be computed now.
func (a *attempts) allow(n int) bool {
	if now := time.Now(); now.Sub(a.begin) > attemptsPeriod {
		a.begin, a.left = now, maxAttempts
	}
	a.left -= n
	return a.left >= 0
}

// A forwarder forwards packets for other processes.
type forwarder interface {
	// Forward returns false if the caller keeps the packet.
	Forward(host.Mail) bool
	// Screen reports whether a datagram for QP 1 is a request for another process, and whether it is dropped.
	Screen(mad []byte) (foreign, drop bool)
	// Multicast returns the IPv6 groups that processes have joined.
	Multicast() []netip.Addr
	// MailDropped returns how many packets for other processes were dropped.
	MailDropped() uint64
}

// A mailQueue holds packets that other processes received for this link, until port 0 takes them.
type mailQueue struct {
	port atomic.Pointer[port]
	full atomic.Bool

	mu sync.Mutex // guards mails
	// +checklocks:mu
	mails []host.Mail
}

// maxMail is the number of packets queued; more are dropped, as in the buffer of a socket.
const maxMail = 4096

func (b *mailQueue) put(m host.Mail) {
	b.mu.Lock()
	room := len(b.mails) < maxMail
	if room {
		b.mails = append(b.mails, m)
	}
	b.full.Store(true)
	b.mu.Unlock()
	p := b.port.Load()
	if p == nil {
		return
	}
	if !room {
		p.counters.rxDropped.Add(1)
	}
	p.Wake()
}

// takeMail appends to b the packets that other processes received for the link. They were checked when they came.
func (p *port) takeMail(b *link.RxBatch) {
	queue := &p.link.mail
	queue.mu.Lock()
	mails := queue.mails
	queue.mails = nil
	queue.full.Store(false)
	queue.mu.Unlock()
	for _, m := range mails {
		p.verify.bytes += uint64(len(m.Packet) + wire.ICRCLen)
		b.Packets = append(b.Packets, link.RxPacket{
			Data: m.Packet, Src: m.Src, Dst: m.Dst, TClass: m.TClass, HopLimit: m.HopLimit,
		})
	}
}

// NewLastWill reserves a place at the processes that share the source address of the path; see link.LastWills.
func (l *Link) NewLastWill(path *link.Path) link.LastWill {
	l.membersMu.Lock()
	defer l.membersMu.Unlock()
	var m *member
	for a := range l.members {
		if a.WithZone("") == path.Src.Unmap().WithZone("") {
			m = l.members[a]
		}
	}
	if m == nil {
		return nil
	}
	if p := m.group.NewPlace(path.Dst, path.TClass, path.HopLimit, path.PKey); p != nil {
		return p
	}
	return nil
}

// Last wills are sent in bursts of willBurst, willPause apart, so that receive buffers have room.
const (
	willBurst = 32
	willPause = time.Millisecond
)

// sendWills sends the last wills of processes that have died at an address of the link.
func (l *Link) sendWills(a netip.Addr, wills []host.Will) {
	const packet = wire.BTHLen + wire.DETHLen + wire.MADLen
	b := link.NewTxBatch(willBurst, willBurst*2*packet)
	for i := range wills {
		w := &wills[i]
		path := &link.Path{Src: a, Dst: w.To, TClass: w.TClass, HopLimit: w.HopLimit}
		pkt := b.Alloc(path, wire.GSIQPN, packet)
		clear(pkt)
		wire.BTH(pkt).Put(wire.UD|wire.SendOnly, 0, cmp.Or(w.PKey, wire.DefaultPKey), wire.GSIQPN, uint32(i), 0)
		wire.DETH(pkt[wire.BTHLen:]).Put(wire.GSIQKey, wire.GSIQPN)
		copy(pkt[wire.BTHLen+wire.DETHLen:], w.MAD)
		if b.Count() == willBurst || i == len(wills)-1 {
			l.ports[0].Send(b)
			time.Sleep(willPause)
		}
	}
}
