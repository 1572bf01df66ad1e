package udp

import (
	"errors"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
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
	return portable(errno)
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
	lent, _ := b.Buffers.([]*plainPacket)
	lent = p.ring.pop(lent, plainBatch)
	b.Buffers, b.Packets = lent, b.Packets[:0]
	for _, pkt := range lent {
		f := p.verify.flowOf(pkt.src, pkt.source, pkt.dst, p.link.cfg.Port)
		if body, ok := p.verify.check(f, pkt.buf[:pkt.n], f.guess(0, false)); ok {
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

// A ring holds the packets queued in a port, up to a bound, and parks the goroutine of the port.
type ring struct {
	mu sync.Mutex
	// +checklocks:mu
	packets []*plainPacket
	// +checklocks:mu
	free []*plainPacket
	// +checklocks:mu
	woken bool
	// +checklocks:mu
	closed bool

	signal chan struct{} // holds one token after a change
	timer  *time.Timer   // of the goroutine in wait
}

// buffer returns a packet to read into.
func (r *ring) buffer() *plainPacket {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.free); n > 0 {
		pkt := r.free[n-1]
		r.free = r.free[:n-1]
		return pkt
	}
	return &plainPacket{buf: make([]byte, maxReceived)}
}

func (r *ring) release(pkt *plainPacket) {
	r.mu.Lock()
	r.keep(pkt)
	r.mu.Unlock()
}

// keep keeps packets to read into, up to a bound: buffer takes them from the ring of port 0 only.
//
// +checklocks:r.mu
func (r *ring) keep(list ...*plainPacket) {
	if len(r.free) < plainRing {
		r.free = append(r.free, list...)
	}
}

func (r *ring) push(pkt *plainPacket) {
	r.mu.Lock()
	if len(r.packets) < plainRing {
		r.packets = append(r.packets, pkt)
	} else {
		r.keep(pkt)
	}
	r.mu.Unlock()
	r.notify()
}

// pop takes back the packets that were lent and lends up to n others.
func (r *ring) pop(lent []*plainPacket, n int) []*plainPacket {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keep(lent...)
	n = min(n, len(r.packets))
	lent = append(lent[:0], r.packets[:n]...)
	rest := copy(r.packets, r.packets[n:])
	clear(r.packets[rest:])
	r.packets = r.packets[:rest]
	return lent
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
