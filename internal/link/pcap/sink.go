package pcap

import (
	"io"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// flushEvery is the longest time that packets stay in memory; pieceLen the minimum length of a piece in bytes.
const (
	flushEvery = 10 * time.Millisecond
	pieceLen   = 256 << 10
	// Under load the writing goroutine looks for pieces every lookEvery. Waking it costs the capturing goroutine
	// several microseconds, as much as writing a piece; so wakeAt pieces must wait for that.
	lookEvery = 100 * time.Microsecond
	wakeAt    = 8
	// pieceSlack is room for the last packet of a piece.
	pieceSlack = 32 << 10
	// mostWaiting is the maximum of pieces that wait to be written, 32 MiB. Further packets are dropped: the reader
	// of a live capture may be too slow.
	mostWaiting = 128
)

// A Sink writes the packets of one device. Its methods are safe for concurrent use.
type Sink struct {
	w      io.Writer
	iface  uint32
	snap   atomic.Int32
	done   chan struct{}
	ended  chan struct{}
	wakeup chan struct{} // signal: wakeAt pieces wait
	flush  chan chan struct{}
	// Pieces go to the writing goroutine and come back through channels: a mutex would make it wait for goroutines
	// that capture all the time.
	full chan []byte
	back chan []byte

	mu      sync.Mutex
	now     []byte   // the piece being filled
	free    [][]byte // memory for pieces, the most recently used last
	err     error
	dropped uint64
	lost    uint64 // those of dropped since the last written packet
	headers headers
}

// NewSink makes a sink that writes packet blocks with interface number iface to w, in pieces of whole blocks. The
// caller has written the section and the interface.
func NewSink(w io.Writer, iface uint32) *Sink {
	s := &Sink{
		w: w, iface: iface, done: make(chan struct{}), ended: make(chan struct{}), wakeup: make(chan struct{}, 1),
		flush: make(chan chan struct{}),
		full:  make(chan []byte, mostWaiting), back: make(chan []byte, mostWaiting+2),
	}
	running.add(s)
	go s.flusher()
	return s
}

// running are the sinks that are not closed.
var running sinks

type sinks struct {
	mu sync.Mutex
	// +checklocks:mu
	all map[*Sink]struct{}
}

func (r *sinks) add(s *Sink) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = make(map[*Sink]struct{})
	}
	r.all[s] = struct{}{}
}

func (r *sinks) remove(s *Sink) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, s)
}

// Flush writes the packets that all sinks hold in memory. A program that ends without closing its devices calls it, or
// loses the packets of the last flushEvery.
func Flush() {
	running.mu.Lock()
	all := slices.Collect(maps.Keys(running.all))
	running.mu.Unlock()
	for _, s := range all {
		written := make(chan struct{})
		select {
		case s.flush <- written:
			<-written
		case <-s.ended:
		}
	}
}

// MinSnap and MaxSnap bound Sink.SetSnap in bytes: there is room for the headers of any packet.
const (
	MinSnap = 128
	MaxSnap = 1 << 16
)

// SetSnap limits the written part of each packet to n bytes, IP header first, MinSnap to MaxSnap; 0: no limit. It
// applies to the following packets.
func (s *Sink) SetSnap(n int) { s.snap.Store(int32(n)) }

// Close writes the remaining packets and returns the first write error. No tap of the sink may be used afterwards.
func (s *Sink) Close() error {
	running.remove(s)
	close(s.done)
	<-s.ended
	return s.Err()
}

// Err returns the first write error. Nothing is written after it.
func (s *Sink) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Dropped returns the number of packets that are missing in the capture because the writer was too slow.
func (s *Sink) Dropped() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropped
}

func (s *Sink) flusher() {
	defer close(s.ended)
	timer := time.NewTimer(flushEvery)
	defer timer.Stop()
	flushed := time.Now()
	for ended := false; !ended; {
		var asked chan struct{}
		select {
		case asked = <-s.flush:
		case <-s.wakeup:
		case <-s.done:
			ended = true
		case <-timer.C:
		}
		// Only these: goroutines that go on capturing always add more.
		n := len(s.full)
		for range n {
			s.write(<-s.full)
		}
		switch left := flushEvery - time.Since(flushed); {
		case ended || asked != nil || left <= 0:
			if p := s.rest(); p != nil {
				s.write(p)
			}
			flushed = time.Now()
			timer.Reset(flushEvery)
		case n > 0:
			timer.Reset(min(left, lookEvery))
		default:
			timer.Reset(left)
		}
		if asked != nil {
			close(asked)
		}
	}
}

// rest returns the next piece to write, even if it is short; nil if there is none.
func (s *Sink) rest() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case p := <-s.full:
		return p
	default:
	}
	p := s.now
	if len(p) == 0 {
		return nil
	}
	s.begin()
	return p
}

// begin begins a piece. s.mu is held.
func (s *Sink) begin() {
	for more := true; more; {
		select {
		case b := <-s.back:
			s.free = append(s.free, b)
		default:
			more = false
		}
	}
	n := len(s.free)
	if n == 0 {
		s.now = make([]byte, 0, pieceLen+pieceSlack)
		return
	}
	s.now, s.free = s.free[n-1], s.free[:n-1]
}

// write writes a piece. One goroutine calls it.
func (s *Sink) write(p []byte) {
	if s.w != nil {
		if _, err := s.w.Write(p); err != nil {
			s.mu.Lock()
			s.err = err
			s.mu.Unlock()
			s.w = nil
		}
	}
	s.back <- p[:0] // the channel has room for all pieces
}

// put appends a packet block. The packet, BTH to pad, is data, or data with a pad count of 0 followed by body. s.mu
// is held.
func (s *Sink) put(ns int64, path *link.Path, data, body []byte, direction uint32, comment []byte) {
	if s.err != nil {
		return
	}
	if len(s.now) >= pieceLen && !s.pass() {
		s.dropped++
		s.lost++
		return
	}
	padding := -len(body) & 3
	n := len(data) + len(body) + padding + wire.ICRCLen
	head := s.headers.of(path, sourcePort(wire.BTH(data).DestQPN()), n)
	kept := n
	if snap := int(s.snap.Load()); snap > 0 {
		kept = min(n, snap-len(head))
	}
	at := len(s.now)
	b := slices.Grow(s.now, blockHead+len(head)+kept+blockTail+len(comment))[:at+blockHead]
	putHead((*[blockHead]byte)(b[at:]), s.iface, ns, len(head)+kept, len(head)+n)
	b = append(b, head...)
	first := len(b)
	if body == nil {
		data, body = data[:wire.BTHLen], data[wire.BTHLen:]
	}
	b = append(b, data[:min(kept, len(data))]...)
	b[first+1] |= byte(padding << 4)
	if kept == n {
		b = b[:first+n]
		s.headers.flow.SealCopy(b[first:], 0, len(data), body)
	} else {
		b = append(b, body[:min(first+kept-len(b), len(body))]...)
		whole := b[:first+kept]
		clear(whole[len(b):]) // pad and ICRC
		b = whole
	}
	s.now = appendTail(b, at, direction, s.lost, comment)
	s.lost = 0
}

// pass hands the current piece to the writer. It returns false if too many pieces wait. s.mu is held.
func (s *Sink) pass() bool {
	select {
	case s.full <- s.now:
		s.begin()
		if len(s.full) == wakeAt {
			select {
			case s.wakeup <- struct{}{}:
			default:
			}
		}
		return true
	default:
		return false
	}
}

// Tap makes a tap for a shard.
func (s *Sink) Tap() link.Tap { return &tap{sink: s} }

// Taps is a tap that forwards to several taps.
type Taps []link.Tap

// From forwards to all taps.
func (t Taps) From(qpn uint32, mtu int) {
	for _, x := range t {
		x.From(qpn, mtu)
	}
}

// Placed forwards to all taps.
func (t Taps) Placed(path *link.Path, b []byte, train bool) {
	for _, x := range t {
		x.Placed(path, b, train)
	}
}

// Request forwards to all taps.
func (t Taps) Request(wrid uint64, again uint32, why string) {
	for _, x := range t {
		x.Request(wrid, again, why)
	}
}

// Sent forwards to all taps.
func (t Taps) Sent() {
	for _, x := range t {
		x.Sent()
	}
}

// Received forwards to all taps.
func (t Taps) Received(p *link.RxPacket, qpn uint32, mtu int, what string) {
	for _, x := range t {
		x.Received(p, qpn, mtu, what)
	}
}

// placed is a packet that was placed and not sent yet, or a train of packets with mtu bytes of payload.
type placed struct {
	path    *link.Path
	bytes   []byte
	qpn     uint32
	mtu     int // 0: not a train
	wrid    uint64
	request bool
	again   uint32 // number of its packets that are retransmitted
	why     string
}

type tap struct {
	sink  *Sink
	from  uint32
	mtu   int
	out   []placed
	text  []byte
	away  []byte // a payload that lies in the sender's memory
	train train
}

func (t *tap) From(qpn uint32, mtu int) { t.from, t.mtu = qpn, mtu }

func (t *tap) Placed(path *link.Path, b []byte, train bool) {
	p := placed{path: path, bytes: b, qpn: t.from}
	if train {
		p.mtu = t.mtu
	}
	t.out = append(t.out, p)
}

func (t *tap) Request(wrid uint64, again uint32, why string) {
	if len(t.out) == 0 {
		return // it was placed by reference
	}
	p := &t.out[len(t.out)-1]
	p.wrid, p.again, p.why, p.request = wrid, again, why, true
}

func (t *tap) Sent() {
	if len(t.out) == 0 {
		return
	}
	ns := time.Now().UnixNano()
	t.sink.mu.Lock()
	defer t.sink.mu.Unlock()
	for i := range t.out {
		p := &t.out[i]
		if p.mtu == 0 {
			t.sink.put(ns, p.path, p.bytes, nil, outbound, t.comment(p, 0))
			continue
		}
		t.train.begin(p.bytes, nil, p.mtu)
		text := t.comment(p, 0)
		for k := uint32(0); t.train.next(); k++ {
			if k == p.again {
				text = t.comment(p, k)
			}
			t.sink.put(ns, p.path, t.train.head, t.train.body, outbound, text)
		}
	}
	clear(t.out)
	t.out = t.out[:0]
}

// comment returns "QP 0x000011, WR 7; sent again: no acknowledgement", for packet k of a train. It is valid until
// the next call.
func (t *tap) comment(p *placed, k uint32) []byte {
	b := appendQPN(t.text[:0], p.qpn)
	if p.request {
		b = strconv.AppendUint(append(b, ", WR "...), p.wrid, 10)
	}
	if k < p.again {
		b = append(append(b, "; sent again: "...), p.why...)
	}
	t.text = b
	return b
}

// appendQPN appends "QP 0x%06x".
func appendQPN(b []byte, qpn uint32) []byte {
	b = append(b, "QP 0x"...)
	for shift := 20; shift >= 0; shift -= 4 {
		b = append(b, "0123456789abcdef"[qpn>>shift&15])
	}
	return b
}

func (t *tap) Received(p *link.RxPacket, qpn uint32, mtu int, what string) {
	path := link.Path{Src: p.Src, Dst: p.Dst, TClass: p.TClass, HopLimit: p.HopLimit}
	now := time.Now().UnixNano()
	t.text = append(appendQPN(t.text[:0], qpn), what...)
	t.sink.mu.Lock()
	defer t.sink.mu.Unlock()
	body := p.Body
	if p.Away != nil {
		t.away = p.Away.Append(t.away[:0])
		body = t.away
	}
	if !p.Train {
		t.sink.put(now, &path, p.Data, body, inbound, t.text)
		return
	}
	for t.train.begin(p.Data, body, mtu); t.train.next(); {
		t.sink.put(now, &path, t.train.head, t.train.body, inbound, t.text)
	}
}
