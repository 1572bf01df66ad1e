package udp

import (
	"errors"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/winsock"
	"github.com/verbena-rdma/verbena/internal/wire"
)

const (
	plainRing   = 4096 // packets queued in a port; more are dropped
	plainBatch  = 256  // packets of one Recv
	maxReceived = 4096 + 256
)

// A plainPacket is a received packet, not yet checked.
type plainPacket struct {
	buf      []byte
	n        int
	src, dst netip.Addr
	source   uint16
}

// A plainPort is the port of one shard.
type plainPort struct {
	link *plainLink
	ring ring

	// Of the shard:
	verify verifier
	path   *link.Path
	flow   wire.Flow
	source uint16 // source port of flow

	counters counters
}

func newPlainPort(l *plainLink) *plainPort {
	return &plainPort{link: l, ring: ring{signal: make(chan struct{}, 1)}}
}

// Send transmits a batch; see link.Port.
func (p *plainPort) Send(b *link.TxBatch) {
	l := p.link
	l.mu.RLock()
	for i := range b.Packets {
		path := b.Packets[i].Path
		s := l.socketOf(path.Src)
		if s == nil || path.Src.Is4() != path.Dst.Is4() {
			p.counters.refuse(b, i, syscall.EADDRNOTAVAIL)
			continue
		}
		if path != p.path || s.source != p.source {
			p.path, p.source = path, s.source
			p.flow = wire.NewFlow(path.Src, path.Dst, s.source, l.cfg.Port)
		}
		pkt := b.Bytes(i)
		b.Seal(i, p.flow, 0)
		if _, err := s.tx.WriteToUDPAddrPort(pkt, l.udpAddr(path.Dst, l.cfg.Port)); err != nil {
			p.counters.refuse(b, i, errnoOf(err))
			continue
		}
		p.counters.txPackets.Add(1)
		p.counters.txBytes.Add(uint64(len(pkt)))
	}
	l.mu.RUnlock()
	b.Reset()
}

// errnoOf returns the errno of a failed write.
func errnoOf(err error) syscall.Errno {
	errno := syscall.EIO
	errors.As(err, &errno)
	return winsock.Portable(errno)
}

func (l *plainLink) socketOf(a netip.Addr) *plainSocket {
	for i := range l.socks {
		if l.socks[i].addr == a {
			return &l.socks[i]
		}
	}
	return nil
}

// Recv fetches packets; see link.Port.
func (p *plainPort) Recv(b *link.RxBatch) int {
	lent, _ := b.Buffers.(*[]*plainPacket)
	if lent == nil {
		lent = new([]*plainPacket)
		b.Buffers = lent
	}
	p.link.pool.put(*lent...)
	*lent = p.ring.pop((*lent)[:0], plainBatch)
	b.Packets = b.Packets[:0]
	for _, pkt := range *lent {
		f := p.verify.flowOf(pkt.src, pkt.source, pkt.dst, p.link.cfg.Port)
		if body, ok := p.verify.check(f, pkt.buf[:pkt.n], f.guess(0, false)); ok {
			p.verify.bytes += uint64(pkt.n)
			b.Packets = append(b.Packets, link.RxPacket{Data: body, Src: pkt.src, Dst: pkt.dst, HopLimit: defaultHopLimit})
		}
	}
	p.verify.flush(&p.counters, len(b.Packets))
	return len(b.Packets)
}

// Wait parks the caller; see link.Port.
func (p *plainPort) Wait(d time.Duration) { p.ring.wait(d) }

// Wake ends a Wait; see link.Port.
func (p *plainPort) Wake() { p.ring.wake() }

// Capabilities returns no optional interfaces.
func (p *plainPort) Capabilities() link.PortCapabilities { return link.PortCapabilities{} }

// Counters returns the counters.
func (p *plainPort) Counters() link.Counters { return p.counters.read() }

// A pool has packets to read into, which the ports of a link share: a packet arrives at any of them.
type pool struct {
	mu sync.Mutex
	// +checklocks:mu
	free []*plainPacket
}

func (l *pool) get() *plainPacket {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.free); n > 0 {
		pkt := l.free[n-1]
		l.free = l.free[:n-1]
		return pkt
	}
	return &plainPacket{buf: make([]byte, maxReceived)}
}

// put takes packets back. Those that exceed a bound are left to the garbage collector.
func (l *pool) put(list ...*plainPacket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free = append(l.free, list[:min(len(list), max(plainRing-len(l.free), 0))]...)
}

// A ring holds the packets queued in a port, up to a bound, and parks the goroutine of the port.
type ring struct {
	mu sync.Mutex
	// +checklocks:mu
	packets []*plainPacket
	// +checklocks:mu
	woken bool
	// +checklocks:mu
	closed bool

	signal chan struct{} // holds one token after a change
	timer  *time.Timer   // of the goroutine in wait
}

// push queues a packet and reports whether there was room.
func (r *ring) push(pkt *plainPacket) bool {
	r.mu.Lock()
	room := len(r.packets) < plainRing
	if room {
		r.packets = append(r.packets, pkt)
	}
	r.mu.Unlock()
	r.notify()
	return room
}

// pop moves up to n packets to a list.
func (r *ring) pop(list []*plainPacket, n int) []*plainPacket {
	r.mu.Lock()
	defer r.mu.Unlock()
	n = min(n, len(r.packets))
	list = append(list, r.packets[:n]...)
	rest := copy(r.packets, r.packets[n:])
	clear(r.packets[rest:])
	r.packets = r.packets[:rest]
	return list
}

func (r *ring) notify() {
	select {
	case r.signal <- struct{}{}:
	default:
	}
}

func (r *ring) wake() {
	r.mu.Lock()
	r.woken = true
	r.mu.Unlock()
	r.notify()
}

func (r *ring) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.notify()
}

// done reports whether wait must return.
func (r *ring) done() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	over := r.woken || r.closed || len(r.packets) > 0
	r.woken = false
	return over
}

func (r *ring) wait(d time.Duration) {
	var expired <-chan time.Time
	if d >= 0 {
		if r.timer == nil {
			r.timer = time.NewTimer(d)
		} else {
			r.timer.Reset(d)
		}
		defer r.timer.Stop()
		expired = r.timer.C
	}
	for !r.done() {
		select {
		case <-r.signal:
		case <-expired:
			return
		}
	}
}
