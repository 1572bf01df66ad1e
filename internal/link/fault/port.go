package fault

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

const (
	lateBatch  = 64
	latePacket = 4096 + 256

	never = int64(1<<63 - 1)
)

// held is a packet that waits for its time, BTH to pad.
type held struct {
	data []byte
	path *link.Path    // on its way out
	rx   link.RxPacket // on its way in; without Data
}

// port is one shard's end. The shard finds the lock free: it is for SetFaults.
type port struct {
	link.Port
	direct link.Direct // the inner port, if it is one
	now    func() int64

	mu         sync.Mutex
	send, recv *Injector
	out, in    Queue[*held]
	late       *link.TxBatch // copies of packets, to go out now
	free       []*held

	due     atomic.Int64 // when the first held packet's time comes, or never
	badICRC atomic.Uint64
}

func newPort(inner link.Port, cfg Config, i uint64) *port {
	p := &port{
		Port: inner,
		now:  cfg.Now,
		send: NewInjector(cfg.Seed+2*i, cfg.Send),
		recv: NewInjector(cfg.Seed+2*i+1, cfg.Recv),
		late: link.NewTxBatch(lateBatch, lateBatch*latePacket),
	}
	p.direct, _ = inner.(link.Direct)
	p.due.Store(never)
	return p
}

// lent hangs on a batch: what the inner link hangs there, and the held packets that the batch shows.
type lent struct {
	inner   any
	packets []*held
}

// Send transmits what the faults leave of a batch; see link.Port.
func (p *port) Send(b *link.TxBatch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.send.Active() {
		p.thin(b)
	}
	p.Port.Send(b)
	p.sendLate()
}

// Place gives a packet to which nothing will happen a place in the inner link; see link.Direct.
func (p *port) Place(path *link.Path, qpn uint32, n int, train bool) (b []byte, mine bool) {
	if p.direct == nil || p.faulty() {
		return nil, train
	}
	return p.direct.Place(path, qpn, n, train)
}

// Train is that of the inner link as long as nothing happens to packets; see link.Direct.
func (p *port) Train(path *link.Path, qpn uint32) int {
	if p.direct == nil || p.faulty() {
		return 0
	}
	return p.direct.Train(path, qpn)
}

// Reads is that of the inner link as long as nothing happens to packets; see link.Referrer.
func (p *port) Reads(path *link.Path, qpn uint32, s *link.Share) bool {
	r, ok := p.direct.(link.Referrer)
	return ok && !p.faulty() && r.Reads(path, qpn, s)
}

// PlaceRef is that of the inner link; see link.Referrer.
func (p *port) PlaceRef(path *link.Path, qpn uint32, head int, s *link.Share, off int64, n int) []byte {
	r, ok := p.direct.(link.Referrer)
	if !ok || p.faulty() {
		return nil
	}
	return r.PlaceRef(path, qpn, head, s, off, n)
}

// Revoke is that of the inner link; see link.Referrer.
func (p *port) Revoke(path *link.Path) {
	if r, ok := p.direct.(link.Referrer); ok {
		r.Revoke(path)
	}
}

// Lend is that of the inner link; see link.Lender.
func (p *port) Lend(n, size int) []byte { return link.Lend(p.Port, n, size) }

// faulty tells whether something may happen to packets that are sent now.
func (p *port) faulty() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.send.Active()
}

// thin takes out of b what is lost or held back, and puts copies into the queue.
func (p *port) thin(b *link.TxBatch) {
	now := p.now()
	left := b.Packets[:0]
	for i := range b.Packets {
		t := b.Packets[i]
		data := b.Buf[t.Off : t.Off+t.Len-wire.ICRCLen]
		v := p.send.Judge(t.Path.Src, t.Path.Dst, data)
		if v.Drop {
			continue
		}
		for range v.Extra {
			p.hold(&p.out, now+int64(v.Delay), data, held{path: t.Path})
		}
		switch {
		case v.Flip > 0:
		case v.Delay > 0:
			p.hold(&p.out, now+int64(v.Delay), data, held{path: t.Path})
		default:
			left = append(left, t)
		}
	}
	b.Packets = left
}

// hold queues a copy of a packet. about says the rest of it.
func (p *port) hold(q *Queue[*held], at int64, data []byte, about held) {
	var h *held
	if n := len(p.free); n > 0 {
		h, p.free = p.free[n-1], p.free[:n-1]
	} else {
		h = new(held)
	}
	about.data = append(h.data[:0], data...)
	*h = about
	q.Push(at, h)
	if at < p.due.Load() {
		p.due.Store(at)
		p.Port.Wake() // whoever is in Wait has not heard of this time
	}
}

// sendLate sends the held packets whose time has come.
func (p *port) sendLate() {
	now := p.now()
	for {
		h, ok := p.out.Pop(now)
		if !ok {
			break
		}
		qpn := wire.BTH(h.data).DestQPN()
		data := p.late.Alloc(h.path, qpn, len(h.data))
		if data == nil {
			p.Port.Send(p.late)
			data = p.late.Alloc(h.path, qpn, len(h.data))
		}
		copy(data, h.data)
		p.free = append(p.free, h)
	}
	if !p.late.Empty() {
		p.Port.Send(p.late)
	}
	p.setDue()
}

func (p *port) setDue() {
	due := never
	for _, q := range []*Queue[*held]{&p.out, &p.in} {
		if at, ok := q.Next(); ok && at < due {
			due = at
		}
	}
	p.due.Store(due)
}

// Recv fetches what the faults leave; see link.Port.
func (p *port) Recv(b *link.RxBatch) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	own, ok := b.Buffers.(*lent)
	if !ok {
		own = new(lent)
	}
	p.free = append(p.free, own.packets...)
	own.packets = own.packets[:0]

	b.Buffers = own.inner
	for p.Port.Recv(b) > 0 {
		if p.recv.Active() {
			p.filter(b)
		}
		if len(b.Packets) > 0 {
			break
		}
	}
	own.inner, b.Buffers = b.Buffers, own

	now := p.now()
	for {
		h, ok := p.in.Pop(now)
		if !ok {
			break
		}
		h.rx.Data = h.data
		b.Packets = append(b.Packets, h.rx)
		own.packets = append(own.packets, h)
	}
	p.sendLate()
	return len(b.Packets)
}

// filter takes out of b what is lost or held back, and puts copies into the queue.
func (p *port) filter(b *link.RxBatch) {
	now := p.now()
	left := b.Packets[:0]
	for _, r := range b.Packets {
		v := p.recv.Judge(r.Src, r.Dst, r.Data)
		if v.Drop {
			continue
		}
		about := held{rx: r}
		about.rx.Data, about.rx.Body = nil, nil
		for range v.Extra {
			p.hold(&p.in, now+int64(v.Delay), r.Append(nil), about)
		}
		switch {
		case v.Flip > 0:
			p.badICRC.Add(1)
		case v.Delay > 0:
			p.hold(&p.in, now+int64(v.Delay), r.Append(nil), about)
		default:
			left = append(left, r)
		}
	}
	b.Packets = left
}

// Wait parks the caller until then at the latest when a held packet's time comes; see link.Port.
func (p *port) Wait(d time.Duration) {
	if due := p.due.Load(); due != never {
		left := max(0, time.Duration(due-p.now()))
		if d < 0 || left < d {
			d = left
		}
	}
	p.Port.Wait(d)
}

// Counters are those of the inner port, and the damaged packets.
func (p *port) Counters() link.Counters {
	c := p.Port.Counters()
	c.RxICRCErrors += p.badICRC.Load()
	return c
}
