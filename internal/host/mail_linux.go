package host

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// Mail is a packet that another process has received for us: one for QP 1 or for a multicast group, or one that was merged with its own.
type Mail struct {
	Packet   []byte // BTH to pad
	Src, Dst netip.Addr
	TClass   uint8
	HopLimit uint8
	ToAll    bool // it went to each lane; a process with several takes it once
}

// mailHeader is what stands before the packet in a mailbox: 1 for ToAll, traffic class, hop limit, source and destination in 16 bytes each.
const (
	mailHeader = 3 + 2*16
	maxMail    = 8 << 10
)

// Mailbox is a claim, to a lane or a service ID, and takes what is addressed to it.
type Mailbox struct {
	conn *net.UnixConn
	lock *os.File // of a folder's name
	done sync.WaitGroup
}

// ClaimLane claims a lane: EADDRINUSE if another process, or this one, has it. deliver is called, by another goroutine, with what
// comes to it; it may keep it.
func (g *Group) ClaimLane(lane int, deliver func(Mail)) (*Mailbox, error) {
	return g.names.open(laneName(lane), deliver)
}

// ClaimService claims a service ID at the group's address, in the same way.
func (g *Group) ClaimService(id uint64, deliver func(Mail)) (*Mailbox, error) {
	return g.names.open(serviceName(id), deliver)
}

const leaderName = "leader"

func laneName(lane int) string     { return fmt.Sprintf("lane-%d", lane) }
func serviceName(id uint64) string { return fmt.Sprintf("svc-%016x", id) }

// inUse tells whether some process has a lane.
func (n names) inUse() bool {
	for lane := range Lanes {
		if c, err := net.DialUnix("unixgram", nil, n.addr("unixgram", laneName(lane))); err == nil {
			c.Close()
			return true
		}
	}
	return false
}

func (n names) open(what string, deliver func(Mail)) (*Mailbox, error) {
	lock, err := n.lock(what)
	if err != nil {
		return nil, err
	}
	m := &Mailbox{lock: lock}
	if m.conn, err = net.ListenUnixgram("unixgram", n.addr("unixgram", what)); err != nil {
		m.unlock()
		return nil, err
	}
	if err = n.openUp(what); err == nil {
		err = passCredentials(m.conn)
	}
	if err != nil {
		m.conn.Close()
		m.unlock()
		return nil, err
	}
	m.done.Go(func() { m.read(n, deliver) })
	return m, nil
}

func passCredentials(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	e := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1) })
	return errors.Join(err, e)
}

// read takes mail of processes that may be in the group; anybody could write to an abstract socket.
func (m *Mailbox) read(names names, deliver func(Mail)) {
	buf, oob := make([]byte, maxMail), make([]byte, unix.CmsgSpace(unix.SizeofUcred))
	for {
		n, oobn, _, _, err := m.conn.ReadMsgUnix(buf, oob)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n < mailHeader || !admitted(names, oob[:oobn]) {
			continue
		}
		deliver(Mail{
			ToAll: buf[0] != 0, TClass: buf[1], HopLimit: buf[2],
			Src: netip.AddrFrom16([16]byte(buf[3:])).Unmap(), Dst: netip.AddrFrom16([16]byte(buf[19:])).Unmap(),
			Packet: append([]byte(nil), buf[mailHeader:n]...),
		})
	}
}

func admitted(n names, oob []byte) bool {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(msgs) != 1 {
		return false
	}
	cred, err := unix.ParseUnixCredentials(&msgs[0])
	return err == nil && n.admit(cred)
}

// Close gives up the claim.
func (m *Mailbox) Close() {
	m.conn.Close()
	m.done.Wait()
	m.unlock()
}

func (m *Mailbox) unlock() {
	if m.lock != nil {
		m.lock.Close()
	}
}

// Sorter is the post office of a process: it forwards packets that came to it and are not its own. Those for QP 1 come to the leader, and so
// do multicast packets where a loopback interface has no groups: they go to all.
type Sorter struct {
	group *Group
	mine  func(a Address) bool
	keep  func(Mail)
	queue chan Mail
	done  sync.WaitGroup
	end   chan struct{}
}

// queued bounds the packets that wait to be forwarded; more are lost, and their senders try again.
const queued = 1024

// NewSorter makes one. mine tells what this process has claimed, and keep, called by another goroutine, takes back
// what was addressed to nobody.
func (g *Group) NewSorter(mine func(Address) bool, keep func(Mail)) *Sorter {
	s := &Sorter{group: g, mine: mine, keep: keep, queue: make(chan Mail, queued), end: make(chan struct{})}
	s.done.Go(s.run)
	return s
}

// Forward takes a packet that is for another process, which it copies, and returns false for one that is ours.
func (s *Sorter) Forward(m Mail) bool {
	if len(m.Packet) > maxMail-mailHeader {
		return false
	}
	m.ToAll = wire.BTH(m.Packet).DestQPN() == wire.MulticastQPN
	if a, ok := addressOf(m.Packet); !m.ToAll && (!ok || s.mine(a)) {
		return false
	}
	m.Packet = append([]byte(nil), m.Packet...)
	select {
	case s.queue <- m:
	default:
	}
	return !m.ToAll
}

func (s *Sorter) run() {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		defer unix.Close(fd)
		t := unix.NsecToTimeval(int64(100 * time.Millisecond))
		_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &t)
	}
	for {
		select {
		case m := <-s.queue:
			switch {
			case m.ToAll:
				s.sendToAll(fd, m)
			case err != nil || s.send(fd, m):
				s.keep(m)
			}
		case <-s.end:
			return
		}
	}
}

// send brings mail to its address, and tells whether nobody is there.
func (s *Sorter) send(fd int, m Mail) (nobody bool) {
	a, _ := addressOf(m.Packet)
	name := laneName(a.Lane)
	if a.Lane < 0 {
		name = serviceName(a.Service)
	}
	err := s.put(fd, name, m.frame())
	return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOENT)
}

// sendToAll brings a multicast packet to the other processes. This one has it already.
func (s *Sorter) sendToAll(fd int, m Mail) {
	frame := m.frame()
	for lane := range Lanes {
		if !s.mine(Address{Lane: lane}) {
			_ = s.put(fd, laneName(lane), frame)
		}
	}
}

func (s *Sorter) put(fd int, name string, frame []byte) error {
	return unix.Sendto(fd, frame, 0, &unix.SockaddrUnix{Name: s.group.names.name(name)})
}

func (m *Mail) frame() []byte {
	src, dst := m.Src.As16(), m.Dst.As16()
	f := []byte{0, m.TClass, m.HopLimit}
	if m.ToAll {
		f[0] = 1
	}
	return append(append(append(f, src[:]...), dst[:]...), m.Packet...)
}

// Close ends forwarding.
func (s *Sorter) Close() {
	close(s.end)
	s.done.Wait()
}
