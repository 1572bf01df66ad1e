package udp

import (
	"encoding/binary"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/host"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

const (
	ackLen       = wire.BTHLen + wire.AETHLen + wire.ICRCLen
	sendMessages = 64 // messages of one sendmmsg
	maxSegments  = 64 // segments of one GSO run; UDP_MAX_SEGMENTS of the kernel was 64 until 6.9

	// sendTimeout limits the time that one Send waits in total for a full socket buffer to drain.
	sendTimeout = time.Millisecond
)

// mmsghdr is struct mmsghdr.
type mmsghdr struct {
	unix.Msghdr
	n uint32
}

// A run is the packets of the batch that one message carries.
type run struct{ first, count int }

// A sender turns batches into messages. All of its memory is here, once for each port.
type sender struct {
	hdrs     [sendMessages]mmsghdr
	iovs     [sendMessages]unix.Iovec
	names    [sendMessages]unix.RawSockaddrInet6 // IPv4: a RawSockaddrInet4 in its first bytes
	controls [sendMessages]controlBuffer
	runs     [sendMessages]run
	sent     []bool    // packets of the batch that are in a message, or were dropped
	n        int       // messages filled
	socket   *txSocket // of all messages

	// The last path and its socket and flow.
	path *link.Path
	from *txSocket // nil: the link does not have the source address
	flow wire.Flow

	timeLeft time.Duration
}

func (s *sender) init() {
	for i := range s.hdrs {
		h := &s.hdrs[i]
		h.Name = (*byte)(unsafe.Pointer(&s.names[i]))
		h.Iov = &s.iovs[i]
		h.SetIovlen(1)
	}
}

// forget drops the state that depends on the set of sockets.
func (s *sender) forget() { s.path, s.from, s.socket = nil, nil, nil }

// Send transmits a batch; see link.Port.
func (p *port) Send(b *link.TxBatch) {
	b.AckLast = b.AckLast && p.link.gso.Load()
	p.mu.Lock()
	s := &p.sender
	s.timeLeft = sendTimeout
	s.sent = slices.Grow(s.sent[:0], len(b.Packets))[:len(b.Packets)]
	clear(s.sent)
	for i := 0; i < len(b.Packets); {
		i = p.fill(b, i)
		p.transmit(b)
	}
	p.mu.Unlock()
	b.Reset()
}

// fill makes messages of the packets from i on that leave through the same socket as packet i, with their ICRCs, as
// many as fit into one sendmmsg. It returns the index of the first packet that is left. Packets of one path, hence of
// one QP, stay in order.
func (p *port) fill(b *link.TxBatch, i int) (left int) {
	s := &p.sender
	s.n, s.socket = 0, nil
	left = len(b.Packets)
	for i < len(b.Packets) && s.n < sendMessages {
		if s.sent[i] {
			i++
			continue
		}
		p.usePath(b.Packets[i].Path)
		if s.from == nil {
			p.counters.refuse(b, i, unix.EADDRNOTAVAIL)
			s.sent[i] = true
			i++
			continue
		}
		if s.socket != nil && s.socket != s.from {
			left = min(left, i)
			i++
			continue
		}
		s.socket = s.from
		n := 1
		if p.link.gso.Load() {
			n = p.train(b, i)
		}
		for k := range n {
			b.Seal(i+k, s.flow, uint16(k))
			s.sent[i+k] = true
		}
		s.put(s.n, b, run{i, n}, p.link)
		s.n++
		i += n
	}
	return min(left, i)
}

// usePath looks up the socket and the flow of a path, unless it is the last one.
func (p *port) usePath(path *link.Path) {
	s := &p.sender
	if s.path != nil && p.alike(path, s.path) {
		return
	}
	s.path, s.from = path, nil
	if path.Src.Is4() != path.Dst.Is4() {
		return
	}
	if s.from = p.socketFor(path); s.from != nil {
		s.flow = wire.NewFlow(path.Src, path.Dst, s.from.port, p.link.cfg.Port)
	}
}

// spread is the number of sockets with other source ports that a port opens for each local address, so that the
// network sees several flows, for any number of QPs.
const spread = 8

// socketFor returns the socket for packets of a path; nil if the link does not have its source address. A path with a
// source port gets a socket bound to that port while more sockets can be opened, and later always the same one of the
// open ones.
func (p *port) socketFor(path *link.Path) *txSocket {
	var all [1 + spread]*txSocket
	n := 0
	for _, t := range p.tx {
		if t.addr != path.Src {
			continue
		}
		if path.Source == 0 || path.Source == t.port || !p.spreads(path) {
			return t
		}
		all[n] = t
		n++
	}
	switch {
	case n == 0:
		return nil
	case n < len(all) && p.more.due():
		t, err := p.link.openSend(path.Src, path.Source)
		p.more.tried(err)
		if err == nil {
			p.tx = append(p.tx, t)
			return t
		}
	}
	return all[int(path.Source)%n]
}

// another limits the attempts to open a socket. After a failure, for want of descriptors or ports, the next one is
// againAfter later, and twice as late after each further failure, up to againAtMost. An attempt may try all ports.
type another struct {
	pause time.Duration // after the last attempt; 0: it succeeded
	at    time.Time     // of the next attempt, if pause is not 0
}

const (
	againAfter  = time.Second
	againAtMost = time.Minute
)

// due reports whether an attempt may be made.
func (a *another) due() bool { return a.pause == 0 || !time.Now().Before(a.at) }

// tried records an attempt.
func (a *another) tried(err error) {
	if err == nil {
		a.pause = 0
		return
	}
	a.pause = min(max(2*a.pause, againAfter), againAtMost)
	a.at = time.Now().Add(a.pause)
}

// spreads reports whether packets of a path get the source port of the path. A loopback interface has no links to
// spread connections over, and small packets of many QPs can share messages there, unless the program has set a flow
// label.
func (p *port) spreads(path *link.Path) bool { return !p.link.loopback || path.FlowLabel != 0 }

// alike reports whether packets of two paths may share a message.
func (p *port) alike(a, b *link.Path) bool {
	if a == b || p.spreads(a) || p.spreads(b) {
		return a.Equal(b)
	}
	return a.Src == b.Src && a.Dst == b.Dst && a.TClass == b.TClass && a.HopLimit == b.HopLimit
}

// train returns the number of packets of b from i on that can go as one GSO run: packets of one path, adjacent in
// memory, of equal length except a shorter last one, and for QPs of one process, since the kernel may deliver a whole
// message to the socket of its first packet.
func (p *port) train(b *link.TxBatch, i int) int {
	pkts := b.Packets[i:]
	first := &pkts[0]
	to := wire.BTH(b.Bytes(i)).DestQPN()
	if to == wire.GSIQPN {
		return 1 // the kernel reads the communication ID
	}
	end := first.Off + first.Len
	for n := 1; n < min(len(pkts), maxSegments); n++ {
		q := &pkts[n]
		if !p.alike(q.Path, first.Path) || q.Off != end || q.Len > first.Len || q.Off+q.Len-first.Off > link.MaxTrain ||
			!sameSocket(wire.BTH(b.Bytes(i+n)).DestQPN(), to) {
			return n
		}
		if q.Len < first.Len {
			if n+1 < len(pkts) && pkts[n+1].Len == q.Len && q.Len > ackLen {
				return n // q begins its own run, as after the first packet of a WRITE
			}
			return n + 1
		}
		end += q.Len
	}
	return min(len(pkts), maxSegments)
}

// sameSocket reports whether packets for two QP numbers arrive at the same socket of any receiver.
func sameSocket(a, b uint32) bool {
	return a == b || a != wire.GSIQPN && host.SocketOf(a) == host.SocketOf(b)
}

// put fills message m with a run of packets.
func (s *sender) put(m int, b *link.TxBatch, r run, l *Link) {
	first, last := &b.Packets[r.first], &b.Packets[r.first+r.count-1]
	path := first.Path
	s.runs[m] = r
	s.iovs[m].Base = &b.Buf[first.Off]
	s.iovs[m].SetLen(last.Off + last.Len - first.Off)

	h, c := &s.hdrs[m], &s.controls[m]
	h.Namelen = putAddr(&s.names[m], path, l.cfg.Port, l.ifi.Load().Index)
	c.reset()
	if r.count > 1 {
		c.putSegment(first.Len)
	}
	if path.TClass != 0 {
		c.putTClass(path.Src.Is4(), path.TClass)
	}
	if path.HopLimit != 0 && path.HopLimit != defaultHopLimit {
		c.putHopLimit(path.Src.Is4(), path.HopLimit)
	}
	c.attach(&h.Msghdr)
}

// putAddr writes the destination of a path and returns its length.
func putAddr(sa *unix.RawSockaddrInet6, path *link.Path, port uint16, ifindex int) (length uint32) {
	if path.Dst.Is4() {
		sa4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(sa))
		*sa4 = unix.RawSockaddrInet4{Family: unix.AF_INET, Port: bigEndian(port), Addr: path.Dst.As4()}
		return unix.SizeofSockaddrInet4
	}
	*sa = unix.RawSockaddrInet6{Family: unix.AF_INET6, Port: bigEndian(port), Addr: path.Dst.As16()}
	sa.Flowinfo = bigEndian(path.FlowLabel & 0xFFFFF)
	if zoned(path.Dst) {
		sa.Scope_id = uint32(ifindex)
	}
	return unix.SizeofSockaddrInet6
}

// bigEndian returns the number whose bytes in memory are those of v in network order.
func bigEndian[T uint16 | uint32](v T) T {
	var b [4]byte
	if unsafe.Sizeof(v) == 2 {
		binary.BigEndian.PutUint16(b[:], uint16(v))
		return T(binary.NativeEndian.Uint16(b[:]))
	}
	binary.BigEndian.PutUint32(b[:], uint32(v))
	return T(binary.NativeEndian.Uint32(b[:]))
}

// transmit sends the messages of the sender.
func (p *port) transmit(b *link.TxBatch) {
	s := &p.sender
	for m := 0; m < s.n; {
		if p.lends(b, m) && p.lend(m) {
			b.Kept = true
			p.countSent(b, s.runs[m])
			m++
			continue
		}
		n, errno := sendmmsg(s.socket.fd, s.hdrs[m:p.copied(b, m)])
		switch {
		case errno == 0:
			for _, r := range s.runs[m : m+n] {
				p.countSent(b, r)
			}
			m += n
		case s.retry(errno), p.toSelf(b, m, errno), p.reported(errno):
		case s.runs[m].count > 1 && (errno == unix.EIO || errno == unix.EINVAL || errno == unix.EMSGSIZE):
			p.sendSingly(b, m)
			m++
		default:
			for i := range s.runs[m].count {
				p.counters.refuse(b, s.runs[m].first+i, errno)
			}
			m++
		}
	}
}

// copied returns the end of the messages from m on that are sent with one sendmmsg.
func (p *port) copied(b *link.TxBatch, m int) (end int) {
	for end = m + 1; end < p.sender.n && !p.lends(b, end); end++ {
	}
	return end
}

// toSelf changes the destination of message m to the address of the sender, if it is for an IPv6 group that cannot be
// reached on the loopback interface; see Join. It reports whether it did.
func (p *port) toSelf(b *link.TxBatch, m int, errno unix.Errno) bool {
	s := &p.sender
	path := b.Packets[s.runs[m].first].Path
	if errno != unix.ENETUNREACH || !p.link.loopback || !path.Dst.Is6() || !path.Dst.IsMulticast() {
		return false
	}
	sa, self := &s.names[m], path.Src.As16()
	if sa.Addr == self {
		return false
	}
	sa.Addr, sa.Scope_id = self, 0
	return true
}

func (p *port) countSent(b *link.TxBatch, r run) {
	if p.unreached != nil {
		p.markUnreached(b, r)
	}
	p.counters.txPackets.Add(uint64(r.count))
	first, last := &b.Packets[r.first], &b.Packets[r.first+r.count-1]
	p.counters.txBytes.Add(uint64(last.Off + last.Len - first.Off))
}

// retry waits if another try after errno may succeed, and reports whether it may.
func (s *sender) retry(errno unix.Errno) bool {
	if errno == unix.EINTR {
		return true
	}
	if s.timeLeft <= 0 || errno != unix.EAGAIN && errno != unix.ENOBUFS {
		return false
	}
	began := time.Now()
	fds := [1]unix.PollFd{{Fd: int32(s.socket.fd), Events: unix.POLLOUT}}
	limit := s.timeLeft
	if errno == unix.ENOBUFS {
		// The kernel is short of memory. No event ends that, so this is a pause.
		fds[0].Events = 0
		limit = min(limit, 100*time.Microsecond)
	}
	ts := unix.NsecToTimespec(int64(limit))
	unix.Ppoll(fds[:], &ts, nil)
	s.timeLeft -= max(time.Since(began), time.Microsecond)
	return true
}

// sendSingly sends each packet of message m, a GSO run that the kernel refused, in its own message. If that succeeds,
// the device or the kernel does not support GSO, and no more runs are sent.
func (p *port) sendSingly(b *link.TxBatch, m int) {
	s := &p.sender
	r := s.runs[m]
	works := true
	p.usePath(b.Packets[r.first].Path)
	for i := r.first; i < r.first+r.count; i++ {
		b.Seal(i, s.flow, 0)
		s.put(m, b, run{i, 1}, p.link)
		for {
			_, errno := sendmmsg(s.socket.fd, s.hdrs[m:m+1])
			if errno != 0 && (s.retry(errno) || p.reported(errno)) {
				continue
			}
			if errno == 0 {
				p.countSent(b, run{i, 1})
			} else {
				works = false
				p.counters.refuse(b, i, errno)
			}
			break
		}
	}
	if works {
		p.link.gso.Store(false)
	}
}

// sendmmsg does not block; see recvmmsg.
func sendmmsg(fd int, hdrs []mmsghdr) (int, unix.Errno) {
	if refused.sendmmsg {
		return oneByOne(unix.SYS_SENDMSG, fd, hdrs, 0)
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&hdrs[0])),
		uintptr(len(hdrs)), 0, 0, 0)
	return int(n), errno
}
