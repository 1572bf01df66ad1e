package shm

import (
	"fmt"
	"maps"
	"math/bits"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// errInvalidRecord is the error for a record that no correct sender writes.
var errInvalidRecord = fmt.Errorf("link/shm: invalid record: %w", syscall.EPROTO)

// A port belongs to one shard. The goroutine that holds the shard owns its fields, except sleep, full and those that
// Counters reads.
type port struct {
	link  *Link
	index int
	inner link.Port

	dirty    *txRing             // the first of those to publish
	counting []counting          // some may have ended
	routes   map[routeKey]*route // of paths without a prepared route
	dropAt   int                 // the number of routes from which on dropRoutes looks at them
	last     routeKey
	lastTo   *route
	turn     int    // index of the first ring set that the next Recv reads
	discard  []byte // the place of dropped packets
	detours  detours

	sleep     *atomic.Uint64 // in status
	full      atomic.Bool    // the next Recv reads the other link too
	lastShm   int64          // time of the last packets through rings
	lastInner int64          // time of the last Recv of the other link
	pause     int64          // until its next Recv
	idle      int            // Recvs since lastInner

	counters link.Counters
}

type routeKey struct {
	dst netip.Addr
	qpn uint32
}

const (
	// recvMax limits the packets of one Recv. The shard answers them before it receives more, so that the sender
	// continues meanwhile.
	recvMax = 16
	// Recv also calls Recv of the other link, which makes a system call, if no packet came through rings for
	// ringsQuiet, or maxIdle Recvs or a pause after its last one. The pause is innerSoon after it returned
	// packets, and doubles up to innerLate while it returns none.
	ringsQuiet = int64(time.Millisecond)
	innerSoon  = int64(8 * time.Microsecond)
	innerLate  = int64(64 * time.Microsecond)
	maxIdle    = 1024
	// earlyDatagrams is the number of datagrams that do not wait for the handshake of their route.
	earlyDatagrams = 16
	// burstHold is how many times longer than other packets later datagrams wait: no retransmission replaces them.
	burstHold = 5

	maxRoutes  = 4096
	someRoutes = 64 // fewer are not looked at; see dropRoutes
	// A path without a prepared route is looked up again after routeAge, if its packets go over the other link.
	routeAge = time.Second
)

func newPort(l *Link, index int, inner link.Port) *port {
	return &port{link: l, index: index, inner: inner, sleep: l.status.word(sleepAt(index)), lastShm: -ringsQuiet,
		pause: innerSoon}
}

// routeOf returns the route of packets along a path.
func (p *port) routeOf(path *link.Path, qpn uint32) *route {
	if r, ok := path.Route.(*route); ok {
		return r
	}
	return p.routeTo(routeKey{path.Dst, qpn})
}

// routeTo is routeOf for paths without a prepared route.
func (p *port) routeTo(k routeKey) *route {
	if k == p.last && p.lastTo.fresh() {
		return p.lastTo
	}
	r := p.routes[k]
	if r == nil || !r.fresh() {
		p.dropRoutes()
		r = p.link.route(k.dst, k.qpn)
		p.routes[k] = r
	}
	p.last, p.lastTo = k, r
	return r
}

// dropRoutes makes room for a route. Those that would be looked up again keep the memory of processes that have ended;
// they go whenever the number of routes has doubled.
func (p *port) dropRoutes() {
	switch {
	case p.routes == nil, len(p.routes) >= maxRoutes:
		p.routes, p.dropAt = make(map[routeKey]*route), someRoutes
	case len(p.routes) >= p.dropAt:
		maps.DeleteFunc(p.routes, func(_ routeKey, r *route) bool { return !r.fresh() })
		p.dropAt = max(someRoutes, 2*len(p.routes))
	}
}

// waits reports whether the next packet along a path waits for the route's handshake. The first datagrams do not, since
// no order is promised. More of them would fill the socket of a process that has other work, which drops them.
func (r *route) waits(path *link.Path, hold time.Duration) bool {
	switch {
	case path.InOrder:
		return true
	case path.AnyOrder:
		return r.early.Add(1) > earlyDatagrams && time.Since(r.begun) < burstHold*hold
	}
	return time.Since(r.begun) < hold
}

// fresh reports whether a route need not be looked up again.
func (r *route) fresh() bool {
	switch r.state.Load() {
	case routeRings:
		return r.rings.Load().end.Load() == ringsOpen
	case routeOther, routeDead:
		return time.Since(r.begun) < routeAge
	}
	return true
}

// Place returns the place in a ring for a packet to a process of this host; see link.Direct.
func (p *port) Place(path *link.Path, qpn uint32, n int, train bool) (b []byte, mine bool) {
	if train {
		return p.place(path, qpn, n, kindTrain, 0)
	}
	if r, ok := path.Route.(*route); ok {
		if to := r.ring(p.index, qpn); to != nil {
			if b := to.placeLine(path, n, kindPacket); b != nil {
				p.placed(to, n)
				return b, true
			}
		}
	}
	return p.place(path, qpn, n, kindPacket, 0)
}

// ring returns the open ring of a route from a port to the port of a QP; nil if there is none.
func (r *route) ring(port int, qpn uint32) *txRing {
	rings := r.rings.Load()
	if rings == nil || rings.end.Load() != ringsOpen {
		return nil
	}
	return rings.tx[port][rings.table.find(qpn)]
}

// place is Place for a record of a kind. refers is the number of bytes of payload that it refers to.
func (p *port) place(path *link.Path, qpn uint32, n int, kind ring.Kind, refers int) (b []byte, mine bool) {
	train := kind != kindPacket
	r := p.routeOf(path, qpn)
	to := r.ring(p.index, qpn)
	if to == nil {
		if r.state.Load() == routeWaits && r.waits(path, p.link.hold) {
			return nil, true
		}
		// The handshake may have ended just now. The packets after this one go through the ring then.
		if to = r.ring(p.index, qpn); to == nil {
			return nil, train
		}
	}
	b, lost := to.place(path, n, kind)
	switch {
	case lost:
		return p.lose(n), true
	case b == nil:
		return nil, true
	}
	if refers > 0 {
		p.counters.ShmRefs++
	}
	p.placed(to, n+refers)
	return b, true
}

// lose returns the place of a packet of n bytes that is dropped.
func (p *port) lose(n int) []byte {
	p.counters.TxDropped++
	if len(p.discard) < n {
		p.discard = make([]byte, n)
	}
	return p.discard[:n]
}

// placed counts a packet of n bytes, and notes that its ring is to be published.
func (p *port) placed(to *txRing, n int) {
	p.counters.TxPackets++
	p.counters.TxBytes += uint64(n)
	p.counters.ShmTxPackets++
	p.publishes(to)
}

// publishes notes that a ring is to be published.
func (p *port) publishes(to *txRing) {
	if !to.dirty {
		to.dirty = true
		if to.bit.Load()&to.from == 0 {
			to.bit.Or(to.from)
		}
		to.after, p.dirty = p.dirty, to
	}
}

// Train returns the longest payload of one packet beyond the path MTU, in bytes; see link.Direct.
func (p *port) Train(path *link.Path, qpn uint32) int {
	if l := p.routeOf(path, qpn).rings.Load(); l != nil && l.end.Load() == ringsOpen {
		return maxTrain
	}
	return 0
}

// Capabilities returns those of the port of the other link, with Direct and ByReference.
func (p *port) Capabilities() link.PortCapabilities {
	c := p.inner.Capabilities()
	c.Direct, c.ByReference = p, p
	return c
}

// Send publishes the packets that were placed, and sends the others over the other link; see link.Port.
func (p *port) Send(b *link.TxBatch) {
	switch {
	case len(b.Packets) == 0:
	case b.Direct != link.Direct(p):
		p.divert(b)
	case p.link.mail != nil:
		p.sendMail(b)
	}
	p.Publish()
	if len(b.Packets) > 0 {
		p.inner.Send(b)
	} else {
		b.Reset()
	}
}

// Publish makes the packets visible that were placed; see link.Direct.
func (p *port) Publish() {
	for r := p.dirty; r != nil; r = p.dirty {
		p.dirty = r.after
		r.dirty, r.after = false, nil
		r.publish()
	}
}

// divert moves packets of a batch into rings. Packets that find no place are dropped: they cannot be sent later.
// Packets that would wait for a handshake are sent over the other link.
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

// buffers belong to a batch.
type buffers struct {
	inner  link.RxBatch
	sets   []*rxRings // whose memory the batch refers to
	shares []*memory  // whose memory the batch refers to
	open   []*rxRing
	away   aways
	// The places of small packets, and of the headers of others, by their index in the batch, whose last record may be a
	// pair.
	small [recvMax + 1][smallPacket]byte
	marks [recvMax + 1]mark // of the counted requests
	count int               // their number
}

// full reports whether no more records are taken into a batch.
func (m *buffers) full(b *link.RxBatch) bool { return len(b.Packets) >= recvMax || m.count >= recvMax }

// Recv fetches packets; see link.Port.
func (p *port) Recv(b *link.RxBatch) int {
	m, ok := b.Buffers.(*buffers)
	if !ok {
		m = new(buffers)
		b.Buffers = m
	}
	for i, r := range m.open {
		p.tellSkipped(r)
		r.release()
		m.open[i] = nil
	}
	clear(m.shares)
	m.away.reset()
	m.open, m.shares, m.count = m.open[:0], m.shares[:0], 0
	b.Packets, b.Acks, b.Screened = b.Packets[:0], b.Acks[:0], false
	full := p.full.Load() && p.full.Swap(false)
	if m.sets = *p.link.in.Load(); len(m.sets) > 0 {
		p.recvSets(b, m)
		if len(b.Packets) > 0 || len(b.Acks) > 0 {
			p.lastShm = b.Now
		}
		p.idle++
		if !full && !b.All && b.Now-p.lastShm < ringsQuiet && b.Now-p.lastInner < p.pause && p.idle < maxIdle {
			return len(b.Packets) + len(b.Acks)
		}
	}
	if len(b.Packets)+len(b.Acks) == 0 {
		p.dropCounting()
	}
	p.idle, p.lastInner = 0, b.Now
	m.inner.Now, m.inner.All = b.Now, b.All
	p.pause = min(2*p.pause, innerLate)
	n := p.inner.Recv(&m.inner)
	b.Screened = b.Screened || m.inner.Screened
	if n > 0 {
		p.pause = innerSoon
		if len(b.Packets) == 0 {
			b.Packets, m.inner.Packets = m.inner.Packets, b.Packets
		} else {
			b.Packets = append(b.Packets, m.inner.Packets...)
		}
	}
	return len(b.Packets) + len(b.Acks)
}

// recvSets receives out of the rings until the batch is full. The ring set that has filled it is read last the next
// time.
func (p *port) recvSets(b *link.RxBatch, m *buffers) {
	if len(m.sets) == 1 {
		p.recvSet(m.sets[0], b, m)
		return
	}
	if p.turn >= len(m.sets) {
		p.turn = 0
	}
	for i := range m.sets {
		k := p.turn + i
		if k >= len(m.sets) {
			k -= len(m.sets)
		}
		if p.recvSet(m.sets[k], b, m); m.full(b) {
			p.turn = k + 1
			return
		}
	}
}

func (p *port) recvSet(l *rxRings, b *link.RxBatch, m *buffers) {
	over := l.over.Load() // before the last read
	turn := &l.turns[p.index]
	first := uint(*turn)
	ports := bits.RotateLeft64(l.active(p.index), -int(first))
	if l.invalid.Load() {
		ports = 0
	}
	for ; ports != 0; ports &= ports - 1 {
		i := int((first + uint(bits.TrailingZeros64(ports))) % 64)
		r, err := l.ringOf(p.index, i)
		switch {
		case err != nil:
		case r.cons.Ready():
			err = p.drain(l, r, b, m)
		default:
			r.show()
		}
		if err != nil {
			p.counters.ShmBroken++
			l.invalid.Store(true)
			l.stop()
			over = true
			break
		}
		if m.full(b) {
			*turn = i + 1
			return
		}
	}
	// Everything was read, and may be in the batch, which keeps the memory of the ring set.
	if over && l.drained.Load()>>p.index&1 == 0 {
		if l.drained.Or(1<<p.index)|1<<p.index == 1<<l.m-1 {
			p.link.remove(l)
		}
	}
}

// drain receives out of one ring until the batch is full. Recv calls it once for each ring.
func (p *port) drain(l *rxRings, r *rxRing, b *link.RxBatch, m *buffers) error {
	m.open = append(m.open, r)
	for !m.full(b) {
		rec, ok := r.cons.Next()
		if !ok {
			return r.cons.Err()
		}
		if err := p.takeRecord(b, m, l, r, rec); err != nil {
			return err
		}
	}
	return nil
}

// takeRecord takes a record. It appends its packets to the batch, unless the sender may not use their source.
func (p *port) takeRecord(b *link.RxBatch, m *buffers, l *rxRings, r *rxRing, rec ring.Record) error {
	f, first := &r.flows[rec.Aux%maxFlows], int(rec.Aux/maxFlows)
	switch {
	case rec.Kind == kindCounts:
		return p.takeCounts(b, r, rec.Data)
	case rec.Kind == kindFlow:
		return p.takeFlow(b, l, r, rec)
	case rec.Kind > kindCounts, !f.usable && !f.src.IsValid(),
		isPair(rec.Kind) && (first > len(rec.Data) || len(rec.Data) > maxPair), !isPair(rec.Kind) && first > 0:
		return errInvalidRecord
	case !f.usable && !p.readmit(b, l, f, rec.Kind):
		r.count.skip(rec.Kind)
		return nil
	}
	switch rec.Kind {
	case kindCounted:
		p.takeCounted(b, m, r, f, rec.Data)
	case kindCountedPair:
		p.takeCounted(b, m, r, f, rec.Data[:first])
		p.takeCounted(b, m, r, f, rec.Data[first:])
	case kindPacket:
		p.take(b, m, f, rec.Data, wire.MaxPayload)
	case kindPair:
		p.take(b, m, f, rec.Data[:first], wire.MaxPayload)
		p.take(b, m, f, rec.Data[first:], wire.MaxPayload)
	case kindTrain:
		p.take(b, m, f, rec.Data, maxTrain)
	case kindRef, kindAway:
		return p.takeRef(b, m, l, f, rec.Kind, rec.Data)
	}
	return nil
}

// takeFlow notes a flow, and whether the sender may use it.
func (p *port) takeFlow(b *link.RxBatch, l *rxRings, r *rxRing, rec ring.Record) error {
	f, ok := parseFlow(rec.Data)
	if !ok || rec.Aux >= maxFlows {
		return errInvalidRecord
	}
	f.usable = p.link.admits(l, &f, b.Now)
	r.flows[rec.Aux] = f
	return nil
}

// readmit reports whether the sender may use a flow that it could not use before. Otherwise it counts the packets of
// the record.
func (p *port) readmit(b *link.RxBatch, l *rxRings, f *flow, kind ring.Kind) bool {
	if f.usable = p.link.admits(l, f, b.Now); f.usable {
		return true
	}
	p.counters.ShmForeign++
	if isPair(kind) {
		p.counters.ShmForeign++
	}
	return false
}

// take checks a packet, whose payload has at most most bytes, and appends it to the batch. It copies the headers
// first, and small packets as a whole.
func (p *port) take(b *link.RxBatch, m *buffers, f *flow, shared []byte, most int) {
	n := len(shared)
	if n <= smallPacket {
		if p.takeSmall(b, m, f, shared) && most > wire.MaxPayload {
			b.Packets[len(b.Packets)-1].Train = true
		}
		return
	}
	data := m.small[len(b.Packets)][:wire.MaxHeaderLen]
	copy(data, shared)
	headers, pad, err := wire.ParseHead(data, n, most)
	if err != nil {
		p.counters.RxMalformed++
		return
	}
	p.append(b, f, data[:headers:headers], n)
	to := &b.Packets[len(b.Packets)-1]
	to.Body, to.Train = shared[headers:n-pad:n-pad], most > wire.MaxPayload
}

// takeSmall is take for a small packet. It reports whether it has appended it.
func (p *port) takeSmall(b *link.RxBatch, m *buffers, f *flow, shared []byte) bool {
	n := len(shared)
	data := m.small[len(b.Packets)][:n:n]
	copyPacket(data, shared)
	if _, err := wire.Parse(data); err != nil {
		p.counters.RxMalformed++
		return false
	}
	if wire.BTH(data).DestQPN() == wire.GSIQPN && p.link.screened(data) {
		p.counters.RxScreened++
		b.Screened = true
		return false
	}
	p.append(b, f, data, n)
	return true
}

// append appends a packet of n bytes to the batch. data is the whole packet or its headers.
func (p *port) append(b *link.RxBatch, f *flow, data []byte, n int) {
	p.counters.RxPackets++
	p.counters.RxBytes += uint64(n)
	p.counters.ShmRxPackets++
	i := len(b.Packets)
	if i < cap(b.Packets) {
		b.Packets = b.Packets[:i+1]
	} else {
		b.Packets = append(b.Packets, link.RxPacket{})
	}
	to := &b.Packets[i] // all its fields are set; a literal would be made elsewhere and copied
	to.Data, to.Body, to.Away, to.Src, to.Dst, to.Epoch = data, nil, nil, f.src, f.dst, link.Epoch{}
	to.TClass, to.HopLimit, to.Train, to.Counter = f.tclass, f.hopLimit, false, nil
}

// copyPacket is copy, without a call for 16 to 32 bytes: acknowledgements and the shortest messages. It makes no store
// that ends within the first 16 bytes, or the last 16, of a packet: loads of two stores' bytes wait for both.
func copyPacket(dst, src []byte) {
	if n := len(dst); uint(n-16) <= 16 && n <= len(src) {
		*(*[16]byte)(dst) = [16]byte(src)
		*(*[16]byte)(dst[n-16:]) = [16]byte(src[n-16:])
		return
	}
	copy(dst, src)
}

// Wait parks the caller; see link.Port.
func (p *port) Wait(d time.Duration) {
	p.sleep.Add(1) // odd; before the last read
	if !p.waiting() {
		p.inner.Wait(d)
	}
	p.sleep.Add(1)
	p.full.Store(true)
}

// waiting reports whether a ring has packets. It changes nothing.
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

// Counters returns the sums of both ways.
func (p *port) Counters() link.Counters {
	c, own := p.inner.Counters(), &p.counters
	c.TxPackets += own.TxPackets
	c.TxBytes += own.TxBytes
	c.TxDropped += own.TxDropped
	c.RxPackets += own.RxPackets
	c.RxBytes += own.RxBytes
	c.RxMalformed += own.RxMalformed
	c.RxScreened += own.RxScreened
	c.ShmTxPackets, c.ShmRxPackets, c.ShmBroken = own.ShmTxPackets, own.ShmRxPackets, own.ShmBroken
	c.ShmForeign = own.ShmForeign
	c.ShmRefs, c.ShmRevoked = own.ShmRefs, own.ShmRevoked
	return c
}
