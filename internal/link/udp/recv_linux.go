package udp

import (
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/host"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

const (
	// With UDP_GRO a message is a GSO run of up to 64 KiB.
	trainSlots    = 16
	trainSlotSize = 64 << 10
	// Without UDP_GRO it is one packet. No RoCEv2 packet is longer than its slot: 4096 bytes of payload, headers,
	// ICRC.
	packetSlots    = 64
	packetSlotSize = 4096 + 256
)

// gsiTurns is the number of reads from one epoll_wait to the next if there is only one socket besides that of QP 1. If
// there are several it is someTurns after an epoll_wait that found packets in another one, and twice as many after each
// that did not. In between one socket is read directly: epoll_wait before each read takes as long as the read.
const (
	gsiTurns  = 16
	someTurns = 4
)

// gsiMany is the number of messages in the socket of QP 1 after which the next turn reads it again.
const gsiMany = trainSlots / 2

// buffers are the receive buffers of a batch: slots for messages, and the arguments of recvmmsg for each.
type buffers struct {
	slotSize int
	data     []byte
	hdrs     []mmsghdr
	iovs     []unix.Iovec
	names    []unix.RawSockaddrInet6 // IPv4: a RawSockaddrInet4 in its first bytes
	controls []controlBuffer
}

func newBuffers(slots, slotSize int) *buffers {
	m := &buffers{
		slotSize: slotSize,
		data:     make([]byte, slots*slotSize),
		hdrs:     make([]mmsghdr, slots),
		iovs:     make([]unix.Iovec, slots),
		names:    make([]unix.RawSockaddrInet6, slots),
		controls: make([]controlBuffer, slots),
	}
	for i := range m.hdrs {
		m.iovs[i].Base = &m.data[i*slotSize]
		m.iovs[i].SetLen(slotSize)
		h := &m.hdrs[i]
		h.Name = (*byte)(unsafe.Pointer(&m.names[i]))
		h.Iov = &m.iovs[i]
		h.SetIovlen(1)
		h.Control = &m.controls[i].buf[0]
		m.prepare(i)
	}
	return m
}

// prepare restores the fields of a header that the kernel has changed.
func (m *buffers) prepare(i int) {
	m.hdrs[i].Namelen = unix.SizeofSockaddrInet6
	m.hdrs[i].SetControllen(len(m.controls[i].buf))
}

// buffersOf returns the buffers of a batch, which it allocates the first time.
func (p *port) buffersOf(b *link.RxBatch) *buffers {
	slots, size := packetSlots, packetSlotSize
	if p.link.gro.Load() {
		slots, size = trainSlots, trainSlotSize
	}
	m, ok := b.Buffers.(*buffers)
	if !ok || m.slotSize < size {
		m = newBuffers(slots, size)
		b.Buffers = m
	}
	return m
}

// Recv fetches packets; see link.Port.
func (p *port) Recv(b *link.RxBatch) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	b.Packets = b.Packets[:0]
	m := p.buffersOf(b)
	if p.index == 0 && p.link.mail.full.Load() {
		p.takeMail(b)
	}
	p.turn++
	woken := p.woken.Load() && p.woken.Swap(false)
	if len(p.rx) == 1 {
		p.recvDirect(&p.rx[0], b, m)
	} else if p.direct >= 0 && !woken && !b.All && p.turn%p.scans != 0 && !p.gsiMore {
		p.recvDirect(&p.rx[p.direct], b, m)
	} else if len(p.rx) > 1 {
		slot := 0
		p.gsiMore = false
		p.scans = min(2*p.scans, gsiTurns)
		n, _ := unix.EpollWait(p.wait.sockets, p.events[:], 0)
		for _, e := range p.events[:max(n, 0)] {
			for i := range p.rx {
				s := &p.rx[i]
				if s.fd != int(e.Fd) || slot == len(m.hdrs) {
					continue
				}
				if slot = p.recvFrom(s, b, m, slot, len(m.hdrs)-slot); !s.gsi() && p.direct != i {
					p.direct, p.scans = i, someTurns
				}
			}
		}
	}
	b.Screened = p.verify.screened > 0
	p.verify.flush(&p.counters, len(b.Packets))
	return len(b.Packets)
}

// recvDirect receives from the only socket, or the one that is read without epoll_wait.
func (p *port) recvDirect(s *rxSocket, b *link.RxBatch, m *buffers) {
	most := 1
	if p.filled || b.All {
		most = len(m.hdrs)
	}
	p.filled = p.recvFrom(s, b, m, 0, most) == most
}

// recvFrom receives at most most messages from one socket into the slots from slot on, and returns the first free one.
func (p *port) recvFrom(s *rxSocket, b *link.RxBatch, m *buffers, slot, most int) int {
	n, errno := recvmmsg(s.fd, m.hdrs[slot:slot+most])
	if errno != 0 {
		return slot
	}
	for i := slot; i < slot+n; i++ {
		p.take(s, b, m, i)
		m.prepare(i)
	}
	if s.gsi() {
		p.gsiMore = n >= gsiMany
	}
	return slot + n
}

// take appends the packets of the message in slot i to b.
func (p *port) take(s *rxSocket, b *link.RxBatch, m *buffers, i int) {
	h, v := &m.hdrs[i], &p.verify
	data := m.data[i*m.slotSize:][:h.n]
	if h.Flags&unix.MSG_TRUNC != 0 || len(data) == 0 {
		v.seen++
		v.malformed++
		return
	}
	meta := m.controls[i].parse(int(h.Controllen))
	segment := meta.segment
	if segment <= 0 {
		segment = len(data)
	}
	src, srcPort := addrOf(&m.names[i])
	dst := s.addr
	if p.link.loopback && dst.Is6() {
		if g, ok := p.groupOf(s, data[:min(segment, len(data))], src, srcPort); ok {
			dst = g
		}
	}
	first := len(b.Packets)
	var f *rxFlow
	for k := 0; len(data) > 0; k++ {
		pkt := data[:min(segment, len(data))]
		data = data[len(pkt):]
		v.seen++
		if p.link.screened(s, pkt) {
			v.screened++
			continue
		}
		if f == nil {
			f = v.flowOf(src, srcPort, dst, p.link.cfg.Port)
		}
		if body, ok := v.check(f, pkt, f.guess(k, meta.segment > 0)); ok {
			if s.foreign(body) && s.group.Forward(host.Mail{Packet: body, Src: src, Dst: dst, TClass: meta.tclass,
				HopLimit: meta.hopLimit}) {
				continue
			}
			v.bytes += uint64(len(pkt))
			b.Packets = append(b.Packets, link.RxPacket{
				Data: body, Src: src, Dst: dst, TClass: meta.tclass, HopLimit: meta.hopLimit,
			})
		}
	}
	if p.link.loopback && len(b.Packets)-first >= 2 {
		ackFirst(b.Packets[len(b.Packets)-2:])
	}
}

// ackFirst exchanges the last two packets of a GSO run if they are a request and an acknowledgement of one QP; see
// link.PortCapabilities.
func ackFirst(last []link.RxPacket) {
	a, b := wire.BTH(last[0].Data), wire.BTH(last[1].Data)
	if b.Opcode().Operation() == wire.Ack && a.DestQPN() == b.DestQPN() && a.Opcode().Info().Flags&wire.Response == 0 {
		last[0], last[1] = last[1], last[0]
	}
}

// addrOf returns the address of the sender.
func addrOf(name *unix.RawSockaddrInet6) (a netip.Addr, port uint16) {
	port = bigEndian(name.Port) // at the same place in both forms
	if name.Family == unix.AF_INET {
		return netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(name)).Addr), port
	}
	return netip.AddrFrom16(name.Addr), port
}

// recvmmsg does not block, so it does not inform Go's runtime, which moves the P of a thread in a system call to
// another thread after 20 µs: two busy threads would then take the core from each other.
func recvmmsg(fd int, hdrs []mmsghdr) (int, unix.Errno) {
	if refused.recvmmsg {
		return oneByOne(unix.SYS_RECVMSG, fd, hdrs, unix.MSG_DONTWAIT)
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&hdrs[0])), uintptr(len(hdrs)),
		unix.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}
