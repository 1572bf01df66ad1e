package udp

import (
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/host"
	"github.com/verbena-rdma/verbena/internal/link"
)

const (
	// With UDP_GRO a message is a train of packets, up to 64 KiB.
	trainSlots    = 16
	trainSlotSize = 64 << 10
	// Without, it is one packet. No RoCEv2 packet is longer than its slot: 4096 bytes of payload, headers, ICRC.
	packetSlots    = 64
	packetSlotSize = 4096 + 256
)

// gsiTurns is how many times the only other socket is read, without asking which ones have something, before the one of QP 1.
const gsiTurns = 16

// buffers is what a batch receives into: slots for messages, and what recvmmsg wants with each.
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

// prepare sets what the kernel changes in a header that it has used.
func (m *buffers) prepare(i int) {
	m.hdrs[i].Namelen = unix.SizeofSockaddrInet6
	m.hdrs[i].SetControllen(len(m.controls[i].buf))
}

// buffersOf returns the buffers that hang on a batch, or hangs new ones on it.
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
	if p.only >= 0 && (len(p.rx) == 1 || p.turn%gsiTurns != 0) {
		p.recvFrom(&p.rx[p.only], b, m, 0)
	} else if len(p.rx) > 1 {
		slot := 0
		n, _ := unix.EpollWait(p.wait.sockets, p.events[:], 0)
		for _, e := range p.events[:max(n, 0)] {
			for i := range p.rx {
				if p.rx[i].fd == int(e.Fd) && slot < len(m.hdrs) {
					slot = p.recvFrom(&p.rx[i], b, m, slot)
				}
			}
		}
	}
	p.verify.flush(&p.counters, len(b.Packets))
	return len(b.Packets)
}

// recvFrom fetches what is in one socket into the slots from slot on, and returns the first free one.
func (p *port) recvFrom(s *rxSocket, b *link.RxBatch, m *buffers, slot int) int {
	n, errno := recvmmsg(s.fd, m.hdrs[slot:])
	if errno != 0 {
		return slot
	}
	for i := slot; i < slot+n; i++ {
		p.take(s, b, m, i)
		m.prepare(i)
	}
	return slot + n
}

// take appends the packets of the message in slot i to b.
func (p *port) take(s *rxSocket, b *link.RxBatch, m *buffers, i int) {
	h, v := &m.hdrs[i], &p.verify
	data := m.data[i*m.slotSize:][:h.n]
	if h.Flags&unix.MSG_TRUNC != 0 || len(data) == 0 {
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
		if g, ok := p.link.groupOf(data[:min(segment, len(data))], src, srcPort); ok {
			dst = g
		}
	}
	f := v.flowOf(src, srcPort, dst, p.link.cfg.Port)
	for k := 0; len(data) > 0; k++ {
		pkt := data[:min(segment, len(data))]
		data = data[len(pkt):]
		if body, ok := v.check(f, pkt, f.guess(k, meta.segment > 0)); ok {
			if s.foreign(body) && s.sorter.Forward(host.Mail{Packet: body, Src: src, Dst: dst, TClass: meta.tclass, HopLimit: meta.hopLimit}) {
				continue
			}
			b.Packets = append(b.Packets, link.RxPacket{
				Data: body, Src: src, Dst: dst, TClass: meta.tclass, HopLimit: meta.hopLimit,
			})
		}
	}
}

// addrOf reads the sender's address.
func addrOf(name *unix.RawSockaddrInet6) (a netip.Addr, port uint16) {
	port = bigEndian(name.Port) // at the same place in both forms
	if name.Family == unix.AF_INET {
		return netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(name)).Addr), port
	}
	return netip.AddrFrom16(name.Addr), port
}

// recvmmsg does not block, and so does not tell Go's runtime, which hands the P of a thread in a system call to another thread when that takes
// longer than 20 µs: of two that are busy then each pushes the other off its core.
func recvmmsg(fd int, hdrs []mmsghdr) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&hdrs[0])), uintptr(len(hdrs)),
		unix.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}
