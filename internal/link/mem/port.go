package mem

import (
	"slices"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/fault"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// recvMax bounds the packets of one Recv.
const recvMax = 256

// port is one shard's end. The fabric's mu guards it, except signal.
type port struct {
	link     *Link
	source   uint16 // UDP source port, for the ICRC
	queue    fault.Queue[*packet]
	woken    bool
	counters link.Counters

	signal chan struct{} // holds one token after a change
	timer  *time.Timer   // of the goroutine in Wait
}

// lent is attached to a batch: the packets that it contains.
type lent struct {
	fabric  *Fabric
	packets []*packet
}

// Send delivers the packets of a batch; see link.Port.
func (p *port) Send(b *link.TxBatch) {
	f := p.link.fabric
	f.mu.Lock()
	now := f.now()
	for i := range b.Packets {
		t := &b.Packets[i]
		c := &p.counters
		if p.link.closed || t.Len > f.cfg.MTU || t.Path.Src.Is4() != t.Path.Dst.Is4() ||
			!slices.Contains(p.link.addrs, t.Path.Src) {
			c.TxDropped++
			if t.Len > f.cfg.MTU {
				c.TxTooLong++
				t.Path.Refuse(syscall.EMSGSIZE, t.Len)
			}
			continue
		}
		c.TxPackets++
		c.TxBytes += uint64(t.Len)
		f.send(now, p, b, i)
	}
	f.mu.Unlock()
	b.Reset()
}

// Recv returns the packets that are due; see link.Port.
func (p *port) Recv(b *link.RxBatch) int {
	f := p.link.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	held := f.reclaim(b)
	now := f.now()
	for len(b.Packets) < recvMax {
		pkt, ok := p.queue.Pop(now)
		if !ok {
			break
		}
		held.packets = append(held.packets, pkt)
		p.take(b, pkt)
	}
	return len(b.Packets)
}

// reclaim empties a batch and reuses its packets.
func (f *Fabric) reclaim(b *link.RxBatch) *lent {
	b.Packets = b.Packets[:0]
	held, ok := b.Buffers.(*lent)
	if !ok || held.fabric != f {
		held = &lent{fabric: f}
		b.Buffers = held
	}
	f.free = append(f.free, held.packets...)
	held.packets = held.packets[:0]
	return held
}

// take checks a packet and appends it to b.
func (p *port) take(b *link.RxBatch, pkt *packet) {
	c := &p.counters
	if len(pkt.buf) < wire.BTHLen+wire.ICRCLen {
		c.RxMalformed++
		return
	}
	body := pkt.buf[:len(pkt.buf)-wire.ICRCLen]
	if _, err := wire.Parse(body); err != nil {
		c.RxMalformed++
		return
	}
	// The identification is always 0 here: all 32 bits of the CRC count.
	if id, ok := pkt.flow.Verify(pkt.buf, 0); !ok || id != 0 {
		c.RxICRCErrors++
		return
	}
	c.RxPackets++
	c.RxBytes += uint64(len(pkt.buf))
	p.link.fabric.stats.Delivered++
	hops := pkt.path.HopLimit
	if hops == 0 {
		hops = 64
	}
	b.Packets = append(b.Packets, link.RxPacket{
		Data: body, Src: pkt.path.Src, Dst: pkt.path.Dst, TClass: pkt.path.TClass, HopLimit: hops,
	})
}

// poke makes Wait check again.
func (p *port) poke() {
	select {
	case p.signal <- struct{}{}:
	default:
	}
}

// Wait parks the caller; see link.Port. With Config.Now it checks the time at each Tick.
func (p *port) Wait(d time.Duration) {
	f := p.link.fabric
	deadline := int64(-1)
	if d >= 0 {
		deadline = f.now() + int64(d)
	}
	for {
		left, over := p.left(deadline)
		if over {
			return
		}
		if f.cfg.Now != nil || left < 0 {
			<-p.signal
			continue
		}
		if p.timer == nil {
			p.timer = time.NewTimer(left)
		} else {
			p.timer.Reset(left)
		}
		select {
		case <-p.signal:
			p.timer.Stop()
		case <-p.timer.C:
		}
	}
}

// left reports whether Wait is over, and if not, how long it may sleep; negative: until a signal.
func (p *port) left(deadline int64) (left time.Duration, over bool) {
	f := p.link.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.woken {
		p.woken = false
		return 0, true
	}
	now := f.now()
	until := deadline
	if at, ok := p.queue.Next(); ok && (until < 0 || at < until) {
		until = at
	}
	if p.link.closed || until >= 0 && until <= now {
		return 0, true
	}
	if until < 0 {
		return -1, false
	}
	return time.Duration(until - now), false
}

// Wake ends a Wait; see link.Port.
func (p *port) Wake() {
	p.link.fabric.mu.Lock()
	p.woken = true
	p.link.fabric.mu.Unlock()
	p.poke()
}

// Capabilities returns the empty set.
func (*port) Capabilities() link.PortCapabilities { return link.PortCapabilities{} }

// Counters returns the counters.
func (p *port) Counters() link.Counters {
	p.link.fabric.mu.Lock()
	defer p.link.fabric.mu.Unlock()
	return p.counters
}
