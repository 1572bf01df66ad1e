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

// held is a packet, BTH to pad, that is held back.
type held struct {
	data []byte
	path *link.Path    // of a sent packet
	rx   link.RxPacket // of a received packet; without Data
}

// port is one shard's end. mu serialises SetFaults with the shard; otherwise it is uncontended.
type port struct {
	link.Port
	now func() int64

	mu         sync.Mutex
	send, recv *Injector
	out, in    Queue[*held]
	late       *link.TxBatch // copies of packets to be sent now
	free       []*held

	due     atomic.Int64 // time of the first held packet, or never
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
	p.due.Store(never)
	return p
}

// lent is attached to a batch: the inner link's buffers, and the held packets that the batch contains.
type lent struct {
	inner   any
	packets []*held
}

// Send transmits the packets that pass the faults; see link.Port.
func (p *port) Send(b *link.TxBatch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.send.Active() {
		p.thin(b)
	}
	p.Port.Send(b)
	p.sendLate()
}

// Capabilities returns those of the inner port, which are used while the port injects no faults into what is sent.
func (p *port) Capabilities() link.PortCapabilities {
	c := p.Port.Capabilities()
	if c.Direct != nil {
		c.Direct = direct{c.Direct, p}
	}
	if c.ByReference != nil {
		c.ByReference = byReference{c.ByReference, p}
	}
	return c
}

// direct is the inner port's link.Direct, as long as the port injects no faults.
type direct struct {
	link.Direct
	port *port
}

func (d direct) Place(path *link.Path, qpn uint32, n int, train bool) (b []byte, mine bool) {
	if d.port.faulty() {
		return nil, train
	}
	return d.Direct.Place(path, qpn, n, train)
}

func (d direct) PlaceCounted(path *link.Path, qpn uint32, n int, a link.Ack) (b []byte, mine bool) {
	if d.port.faulty() {
		return nil, false
	}
	if d.port.loses() {
		return d.Direct.Place(path, qpn, n, false)
	}
	return d.Direct.PlaceCounted(path, qpn, n, a)
}

func (d direct) Publish() {
	d.port.mu.Lock()
	defer d.port.mu.Unlock()
	d.Direct.Publish()
	d.port.sendLate()
}

func (d direct) Train(path *link.Path, qpn uint32) int {
	if d.port.faulty() {
		return 0
	}
	return d.Direct.Train(path, qpn)
}

// byReference is the inner port's link.ByReference, as long as the port injects no faults.
type byReference struct {
	link.ByReference
	port *port
}

func (r byReference) Reads(path *link.Path, qpn uint32, s *link.Share) bool {
	return !r.port.faulty() && r.ByReference.Reads(path, qpn, s)
}

func (r byReference) PlaceRef(path *link.Path, qpn uint32, head int, s *link.Share, off int64, n int) []byte {
	if r.port.faulty() {
		return nil
	}
	return r.ByReference.PlaceRef(path, qpn, head, s, off, n)
}

// faulty reports whether the port injects faults into sent packets now.
func (p *port) faulty() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.send.Active()
}

// loses reports whether the port injects faults into received packets now.
func (p *port) loses() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.recv.Active()
}

// thin removes lost and delayed packets from b, and queues copies.
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
		t.Path = v.Path(t.Path)
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

// hold queues a copy of a packet; about is the rest of the entry.
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
		p.Port.Wake() // the goroutine in Wait uses an older deadline
	}
}

// sendLate sends the held packets that are due.
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

// Recv returns the packets that pass the faults; see link.Port.
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
		if p.send.Active() { // which applies to acknowledgements too
			for i := range b.Packets {
				b.Packets[i].Counter = nil
			}
		}
		if len(b.Packets) > 0 || len(b.Acks) > 0 {
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
	return len(b.Packets) + len(b.Acks)
}

// filter removes lost and delayed packets from b, and queues copies.
func (p *port) filter(b *link.RxBatch) {
	now := p.now()
	left := b.Packets[:0]
	for _, r := range b.Packets {
		v := p.recv.Judge(r.Src, r.Dst, r.Data)
		if v.Drop {
			continue
		}
		r.TClass = v.Class(r.TClass)
		about := held{rx: r}
		about.rx.Data, about.rx.Body, about.rx.Away, about.rx.Counter = nil, nil, nil, nil
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

// Wait parks the caller, at most until the first held packet is due; see link.Port.
func (p *port) Wait(d time.Duration) {
	if due := p.due.Load(); due != never {
		left := max(0, time.Duration(due-p.now()))
		if d < 0 || left < d {
			d = left
		}
	}
	p.Port.Wait(d)
}

// Counters returns those of the inner port, with the damaged packets.
func (p *port) Counters() link.Counters {
	c := p.Port.Counters()
	c.RxICRCErrors += p.badICRC.Load()
	return c
}
