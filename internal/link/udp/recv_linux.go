package udp

import (
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

const (
	// With UDP_GRO a message is a train of packets, up to 64 KiB.
	trainSlots    = 16
	trainSlotSize = 64 << 10
	// Without, it is one packet. No RoCEv2 packet is longer than its slot: 4096 bytes of payload, headers, ICRC.
	packetSlots    = 64
	packetSlotSize = 4096 + 256

	rxFlows = 64 // a power of two
)

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

// rxFlow is what is known of packets from one socket somewhere to one of ours.
type rxFlow struct {
	src, dst netip.Addr
	port     uint16
	id       uint16 // the last IPv4 identification
	flow     wire.Flow
}

// receiver is the part of a port that turns messages into packets.
type receiver struct {
	flows  [rxFlows]rxFlow // by source port: a cache
	events [16]unix.EpollEvent

	// Counted in the current Recv.
	bytes, badICRC, malformed uint64
}

// Recv fetches packets; see link.Port.
func (p *port) Recv(b *link.RxBatch) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	b.Packets = b.Packets[:0]
	m := p.buffersOf(b)
	r := &p.recver
	if len(p.rx) == 1 {
		p.recvFrom(&p.rx[0], b, m, 0)
	} else if len(p.rx) > 1 {
		slot := 0
		n, _ := epollWait(p.wait.sockets, r.events[:])
		for _, e := range r.events[:n] {
			for i := range p.rx {
				if p.rx[i].fd == int(e.Fd) && slot < len(m.hdrs) {
					slot = p.recvFrom(&p.rx[i], b, m, slot)
				}
			}
		}
	}
	p.countReceived(len(b.Packets))
	return len(b.Packets)
}

func (p *port) countReceived(n int) {
	r, c := &p.recver, &p.counters
	if n > 0 {
		c.rxPackets.Add(uint64(n))
		c.rxBytes.Add(r.bytes)
	}
	if r.badICRC|r.malformed != 0 {
		c.rxICRC.Add(r.badICRC)
		c.rxMalformed.Add(r.malformed)
	}
	r.bytes, r.badICRC, r.malformed = 0, 0, 0
}

// recvFrom fetches what is in one socket into the slots from slot on, and returns the first free one.
func (p *port) recvFrom(s *rxSocket, b *link.RxBatch, m *buffers, slot int) int {
	n, errno := recvmmsg(s.fd, m.hdrs[slot:])
	if errno != 0 {
		return slot
	}
	for i := slot; i < slot+n; i++ {
		p.recver.take(s, b, m, i)
		m.prepare(i)
	}
	return slot + n
}

// take appends the packets of the message in slot i to b.
func (r *receiver) take(s *rxSocket, b *link.RxBatch, m *buffers, i int) {
	h := &m.hdrs[i]
	data := m.data[i*m.slotSize:][:h.n]
	if h.Flags&unix.MSG_TRUNC != 0 || len(data) == 0 {
		r.malformed++
		return
	}
	meta := m.controls[i].parse(int(h.Controllen))
	segment := meta.segment
	if segment <= 0 {
		segment = len(data)
	}
	f := r.flowOf(s, &m.names[i])
	for k := 0; len(data) > 0; k++ {
		pkt := data[:min(segment, len(data))]
		data = data[len(pkt):]
		body := pkt[:max(0, len(pkt)-wire.ICRCLen)]
		if _, err := wire.Parse(body); err != nil {
			r.malformed++
			continue
		}
		id, ok := f.flow.Verify(pkt, f.guess(k, meta.segment > 0))
		if !ok {
			r.badICRC++
			continue
		}
		f.id = id
		r.bytes += uint64(len(pkt))
		b.Packets = append(b.Packets, link.RxPacket{
			Data: body, Src: f.src, Dst: f.dst, TClass: meta.tclass, HopLimit: meta.hopLimit,
		})
	}
}

// guess is the identification that packet k of a message probably has: k in a train, as the
// package comment says; 0 for one of our kind alone; for others, who count, the next.
func (f *rxFlow) guess(k int, train bool) uint16 {
	if train || f.id == 0 {
		return uint16(k)
	}
	return f.id + 1
}

// flowOf finds the flow of a message that came from the address in name.
func (r *receiver) flowOf(s *rxSocket, name *unix.RawSockaddrInet6) *rxFlow {
	var src netip.Addr
	if name.Family == unix.AF_INET {
		src = netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(name)).Addr)
	} else {
		src = netip.AddrFrom16(name.Addr)
	}
	port := bigEndian(name.Port) // at the same place in both forms
	f := &r.flows[port%rxFlows]
	if f.port != port || f.src != src || f.dst != s.addr {
		*f = rxFlow{src: src, dst: s.addr, port: port, flow: wire.NewFlow(src, s.addr, port, s.port)}
	}
	return f
}

func recvmmsg(fd int, hdrs []mmsghdr) (int, unix.Errno) {
	n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&hdrs[0])), uintptr(len(hdrs)),
		unix.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}

// epollWait is epoll_wait without waiting.
func epollWait(fd int, events []unix.EpollEvent) (int, error) {
	n, err := unix.EpollWait(fd, events, 0)
	return max(n, 0), err
}
