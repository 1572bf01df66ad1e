package shm

import (
	"fmt"
	"math/bits"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// errNonsense says that the sender of a lane has put something into a ring that no correct one does.
var errNonsense = fmt.Errorf("link/shm: a record that makes no sense: %w", syscall.EPROTO)

// port is one shard's end. Its fields are those of the goroutine that holds the shard, but for sleep, full and what Counters reads.
type port struct {
	link  *Link
	index int
	inner link.Port

	dirty  []*outRing
	routes map[routeKey]*route // of paths without one of their own
	last   routeKey
	lastTo *route
	turn   int    // of the lanes: the first one that the next Recv looks at
	junk   []byte // the place of packets that are lost

	sleep     *atomic.Uint64 // in status
	full      atomic.Bool    // the next Recv looks everywhere
	lastShm   int64          // when packets came through lanes
	lastInner int64          // when the other link was asked
	pause     int64          // until it is asked again
	idle      int            // Recvs since then

	counters link.Counters
}

type routeKey struct {
	dst netip.Addr
	qpn uint32
}

const (
	// recvMax bounds the packets of one Recv. The shard answers them before it takes more, so that the sender goes on meanwhile.
	recvMax = 16
	// A Recv asks the other link too, which costs a system call, if no packet came through lanes for laneQuiet, or if it was
	// not asked for maxIdle Recvs, or for a time that is innerSoon after it had something, and doubles up to innerLate while it has
	// nothing.
	laneQuiet = int64(time.Millisecond)
	innerSoon = int64(8 * time.Microsecond)
	innerLate = int64(64 * time.Microsecond)
	maxIdle   = 1024

	maxRoutes = 4096
	// A path without a route of its own is looked up again after a while, if its packets go over the other link.
	routeAge = time.Second
)

func newPort(l *Link, index int, inner link.Port) *port {
	return &port{link: l, index: index, inner: inner, sleep: l.status.word(sleepAt(index)), lastShm: -laneQuiet, pause: innerSoon}
}

// routeOf is where packets along a path go.
func (p *port) routeOf(path *link.Path, qpn uint32) *route {
	if r, ok := path.Route.(*route); ok {
		return r
	}
	k := routeKey{path.Dst, qpn}
	if k == p.last && p.lastTo.fresh() {
		return p.lastTo
	}
	r := p.routes[k]
	if r == nil || !r.fresh() {
		if p.routes == nil || len(p.routes) >= maxRoutes {
			p.routes = make(map[routeKey]*route)
		}
		r = p.link.route(path.Dst, qpn)
		p.routes[k] = r
	}
	p.last, p.lastTo = k, r
	return r
}

// fresh tells whether a route need not be looked up again.
func (r *route) fresh() bool {
	switch r.state.Load() {
	case routeLane:
		return r.lane.Load().end.Load() == laneLives
	case routeOther, routeDead:
		return time.Since(r.begun) < routeAge
	}
	return true
}

// Place gives packets to processes of this host a place in a ring; see link.Direct.
func (p *port) Place(path *link.Path, qpn uint32, n int, train bool) (b []byte, mine bool) {
	kind := kindPacket
	if train {
		kind = kindTrain
	}
	return p.place(path, qpn, n, kind)
}

func (p *port) place(path *link.Path, qpn uint32, n int, kind ring.Kind) (b []byte, mine bool) {
	train := kind != kindPacket
	r := p.routeOf(path, qpn)
	lane := r.lane.Load()
	if lane == nil {
		return nil, train || r.state.Load() == routeWaits && (path.InOrder || time.Since(r.begun) < p.link.hold)
	}
	if lane.end.Load() != laneLives {
		return nil, train
	}
	to := lane.tx[p.index][lane.table.find(qpn)]
	b, lost := to.place(path, n, kind)
	switch {
	case lost:
		p.counters.TxDropped++
		if len(p.junk) < n {
			p.junk = make([]byte, n)
		}
		return p.junk[:n], true
	case b == nil:
		return nil, true
	}
	p.counters.TxPackets++
	p.counters.TxBytes += uint64(n)
	p.counters.ShmTxPackets++
	if !to.dirty {
		to.dirty = true
		if to.bit.Load()&to.from == 0 {
			to.bit.Or(to.from)
		}
		p.dirty = append(p.dirty, to)
	}
	return b, true
}

// Train is the most payload of one packet beyond the path MTU; see link.Direct.
func (p *port) Train(path *link.Path, qpn uint32) int {
	if l := p.routeOf(path, qpn).lane.Load(); l != nil && l.end.Load() == laneLives {
		return maxTrain
	}
	return 0
}

// Lend is that of the other link; see link.Lender.
func (p *port) Lend(n, size int) []byte { return link.Lend(p.inner, n, size) }

// Send publishes what was placed, and sends the rest; see link.Port.
func (p *port) Send(b *link.TxBatch) {
	if b.Direct != link.Direct(p) && len(b.Packets) > 0 {
		p.divert(b)
	}
	for i, r := range p.dirty {
		r.publish()
		r.dirty = false
		p.dirty[i] = nil
	}
	p.dirty = p.dirty[:0]
	if len(b.Packets) > 0 {
		p.inner.Send(b)
	} else {
		b.Reset()
	}
}

// divert takes out of a batch what goes through lanes. What finds no place now is lost: nobody could send it later. What would wait for
// its lane goes the other way.
func (p *port) divert(b *link.TxBatch) {
	left := b.Packets[:0]
	for i := range b.Packets {
		t := b.Packets[i]
		data := b.Buf[t.Off : t.Off+t.Len-wire.ICRCLen]
		qpn := wire.BTH(data).DestQPN()
		place, mine := p.Place(t.Path, qpn, len(data), false)
		switch {
		case !mine, place == nil && p.routeOf(t.Path, qpn).state.Load() == routeWaits:
			left = append(left, t)
		case place == nil:
			p.counters.TxDropped++
		default:
			copy(place, data)
		}
	}
	b.Packets = left
}

// buffers hang on a batch.
type buffers struct {
	inner  link.RxBatch
	lanes  []*inLane // whose memory the batch shows
	shares []*memory // the same
	open   []*inRing
	small  [recvMax * smallPacket]byte
	used   int
}

// Recv fetches packets; see link.Port.
func (p *port) Recv(b *link.RxBatch) int {
	m, ok := b.Buffers.(*buffers)
	if !ok {
		m = new(buffers)
		b.Buffers = m
	}
	for i, r := range m.open {
		r.cons.Release(false)
		r.open = false
		m.open[i] = nil
	}
	clear(m.shares)
	m.open, m.shares, m.used = m.open[:0], m.shares[:0], 0
	b.Packets = b.Packets[:0]
	full := p.full.Load() && p.full.Swap(false)
	if m.lanes = *p.link.in.Load(); len(m.lanes) > 0 {
		p.fromLanes(b, m)
		if len(b.Packets) > 0 {
			p.lastShm = b.Now
		}
		p.idle++
		if !full && b.Now-p.lastShm < laneQuiet && b.Now-p.lastInner < p.pause && p.idle < maxIdle {
			return len(b.Packets)
		}
	}
	p.idle, p.lastInner = 0, b.Now
	m.inner.Now = b.Now
	p.pause = min(2*p.pause, innerLate)
	if p.inner.Recv(&m.inner) > 0 {
		p.pause = innerSoon
		if len(b.Packets) == 0 {
			b.Packets, m.inner.Packets = m.inner.Packets, b.Packets
		} else {
			b.Packets = append(b.Packets, m.inner.Packets...)
		}
	}
	return len(b.Packets)
}

// fromLanes takes packets out of the rings until the batch is full. Who has filled it comes last the next time.
func (p *port) fromLanes(b *link.RxBatch, m *buffers) {
	if p.turn >= len(m.lanes) {
		p.turn = 0
	}
	for i := range m.lanes {
		k := p.turn + i
		if k >= len(m.lanes) {
			k -= len(m.lanes)
		}
		if p.fromLane(m.lanes[k], b, m); len(b.Packets) == recvMax {
			p.turn = k + 1
			return
		}
	}
}

func (p *port) fromLane(l *inLane, b *link.RxBatch, m *buffers) {
	over := l.over.Load() // before the last look
	turn := &l.turns[p.index]
	first := *turn
	for ports := bits.RotateLeft64(l.active(p.index), -first); ports != 0; ports &= ports - 1 {
		i := (first + bits.TrailingZeros64(ports)) % 64
		r, err := l.ringOf(p.index, i)
		if err == nil && r.cons.Ready() {
			err = p.drain(l, r, b, m)
		}
		if err != nil {
			p.counters.ShmBroken++
			l.stop()
			over = true
		}
		if len(b.Packets) == recvMax {
			*turn = i + 1
			return
		}
	}
	if over && len(b.Packets) == 0 && l.drained.Load()>>p.index&1 == 0 {
		if l.drained.Or(1<<p.index)|1<<p.index == 1<<l.m-1 {
			p.link.remove(l)
		}
	}
}

// drain takes packets out of one ring until the batch is full.
func (p *port) drain(l *inLane, r *inRing, b *link.RxBatch, m *buffers) error {
	if !r.open {
		r.open = true
		m.open = append(m.open, r)
	}
	defer func() { r.seen.Store(r.cons.Position()) }()
	for len(b.Packets) < recvMax {
		rec, ok := r.cons.Next()
		if !ok {
			return r.cons.Err()
		}
		switch rec.Kind {
		case kindFlow:
			f, ok := parseFlow(rec.Data)
			if !ok || rec.Aux >= maxFlows {
				return errNonsense
			}
			r.flows[rec.Aux] = f
		case kindPacket, kindTrain:
			if rec.Aux >= maxFlows || !r.flows[rec.Aux].src.IsValid() {
				return errNonsense
			}
			most := wire.MaxPayload
			if rec.Kind == kindTrain {
				most = maxTrain
			}
			p.take(b, m, &r.flows[rec.Aux], rec.Data, most)
		case kindRef:
			if rec.Aux >= maxFlows || !r.flows[rec.Aux].src.IsValid() {
				return errNonsense
			}
			if err := p.takeRef(b, m, l, &r.flows[rec.Aux], rec.Data); err != nil {
				return err
			}
		default:
			return errNonsense
		}
	}
	return nil
}

// take checks a packet, which may carry most bytes, and appends it to the batch. Its headers are copied first, and small packets as a whole.
func (p *port) take(b *link.RxBatch, m *buffers, f *flow, shared []byte, most int) {
	n := len(shared)
	head := n
	if n > smallPacket {
		head = wire.MaxHeaderLen
	}
	data := m.small[m.used : m.used+head : m.used+head]
	copy(data, shared)
	var body []byte
	if n > smallPacket {
		headers, pad, err := wire.ParseHead(data, n, most)
		if err != nil {
			p.counters.RxMalformed++
			return
		}
		data = data[:headers]
		body = shared[headers : n-pad : n-pad]
	} else if _, err := wire.Parse(data); err != nil {
		p.counters.RxMalformed++
		return
	}
	m.used += len(data)
	p.counters.RxPackets++
	p.counters.RxBytes += uint64(n)
	p.counters.ShmRxPackets++
	b.Packets = append(b.Packets, link.RxPacket{
		Data: data, Body: body, Src: f.src, Dst: f.dst, TClass: f.tclass, HopLimit: f.hops, Train: most > wire.MaxPayload,
	})
}

// Wait parks the caller; see link.Port.
func (p *port) Wait(d time.Duration) {
	p.sleep.Add(1) // odd; before the last look
	if !p.waiting() {
		p.inner.Wait(d)
	}
	p.sleep.Add(1)
	p.full.Store(true)
}

// waiting tells whether there is something in a ring. It only looks.
func (p *port) waiting() bool {
	for _, l := range *p.link.in.Load() {
		if l.over.Load() {
			if l.drained.Load()>>p.index&1 == 0 {
				return true
			}
			continue
		}
		for ports := l.active(p.index); ports != 0; ports &= ports - 1 {
			i := bits.TrailingZeros64(ports)
			if l.waits(p.index, i) {
				return true
			}
		}
	}
	return false
}

// Wake ends a Wait; see link.Port.
func (p *port) Wake() { p.inner.Wake() }

// Counters are those of both ways together.
func (p *port) Counters() link.Counters {
	c, own := p.inner.Counters(), &p.counters
	c.TxPackets += own.TxPackets
	c.TxBytes += own.TxBytes
	c.TxDropped += own.TxDropped
	c.RxPackets += own.RxPackets
	c.RxBytes += own.RxBytes
	c.RxMalformed += own.RxMalformed
	c.ShmTxPackets, c.ShmRxPackets, c.ShmBroken = own.ShmTxPackets, own.ShmRxPackets, own.ShmBroken
	c.ShmRefs, c.ShmRevoked = own.ShmRefs, own.ShmRevoked
	return c
}
