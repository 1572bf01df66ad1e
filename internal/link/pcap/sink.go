package pcap

import (
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// flushEvery is how long packets may stay in memory; flushAt how many bytes.
const (
	flushEvery = 100 * time.Millisecond
	flushAt    = 256 << 10
	// What is not written is dropped above this: whoever reads a live capture may be too slow.
	mostWaiting = 16 << 20
)

// A Sink writes the packets of one device. Its methods may be called by any goroutine.
type Sink struct {
	w     io.Writer
	iface uint32
	done  chan struct{}
	ended chan struct{}

	mu      sync.Mutex
	buf     []byte
	spare   []byte
	wake    chan struct{}
	err     error
	dropped uint64
}

// NewSink makes a sink that writes blocks of packets, in pieces of whole ones, as those of interface iface. Section and interface
// have been written before.
func NewSink(w io.Writer, iface uint32) *Sink {
	s := &Sink{w: w, iface: iface, done: make(chan struct{}), ended: make(chan struct{}), wake: make(chan struct{}, 1)}
	go s.flusher()
	return s
}

// Close writes what is left and returns the first error of writing. No tap of the sink may be used any more.
func (s *Sink) Close() error {
	close(s.done)
	<-s.ended
	s.flush()
	return s.Err()
}

// Err is the first error of writing. Nothing is written after it.
func (s *Sink) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Dropped counts the packets that are not in the capture because it was written too slowly.
func (s *Sink) Dropped() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropped
}

func (s *Sink) flusher() {
	defer close(s.ended)
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.done:
			return
		case <-tick.C:
		case <-s.wake:
		}
		s.flush()
	}
}

// flush is called by one goroutine at a time.
func (s *Sink) flush() {
	s.mu.Lock()
	out := s.buf
	s.buf, s.spare = s.spare[:0], nil
	failed := s.err != nil
	s.mu.Unlock()
	var err error
	if len(out) > 0 && !failed {
		_, err = s.w.Write(out)
	}
	s.mu.Lock()
	s.spare = out[:0]
	if err != nil {
		s.err = err
	}
	s.mu.Unlock()
}

// put appends a packet's block. data and body are the packet, BTH to pad.
func (s *Sink) put(ns int64, path *link.Path, data, body []byte, direction uint32, comment string) {
	padding := -len(body) & 3
	n := len(data) + len(body) + padding + wire.ICRCLen
	head := headersLen(path.Dst)
	port := sourcePort(wire.BTH(data).DestQPN())
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.buf) > mostWaiting {
		s.dropped++
		return
	}
	b, at := appendHead(s.buf, s.iface, ns, head+n)
	b = appendHeaders(b, path, port, n)
	first := len(b)
	b = append(b, data...)
	if body != nil {
		b = append(b, body...)
		b = append(b, 0, 0, 0)[:len(b)+padding]
		b[first+1] |= byte(padding << 4)
	}
	b = append(b, 0, 0, 0, 0)
	wire.NewFlow(path.Src, path.Dst, port, wire.Port).Seal(b[first:], 0)
	s.buf = appendTail(b, at, direction, comment)
	if len(s.buf) >= flushAt {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// Tap makes the tap of a shard.
func (s *Sink) Tap() link.Tap { return &tap{sink: s} }

// Taps is a tap that shows everything to others.
type Taps []link.Tap

// From passes on who sends.
func (t Taps) From(qpn uint32) {
	for _, x := range t {
		x.From(qpn)
	}
}

// Placed passes a packet on.
func (t Taps) Placed(path *link.Path, b []byte) {
	for _, x := range t {
		x.Placed(path, b)
	}
}

// Request passes on what a packet is of.
func (t Taps) Request(wrid uint64, why string) {
	for _, x := range t {
		x.Request(wrid, why)
	}
}

// Sent passes on that packets leave.
func (t Taps) Sent() {
	for _, x := range t {
		x.Sent()
	}
}

// Received passes on what became of a packet.
func (t Taps) Received(p *link.RxPacket, mtu int, what string) {
	for _, x := range t {
		x.Received(p, mtu, what)
	}
}

type placed struct {
	path    *link.Path
	bytes   []byte
	qpn     uint32
	wrid    uint64
	request bool
	why     string
}

type tap struct {
	sink *Sink
	from uint32
	out  []placed
	text []byte
}

func (t *tap) From(qpn uint32) { t.from = qpn }

func (t *tap) Placed(path *link.Path, b []byte) {
	t.out = append(t.out, placed{path: path, bytes: b, qpn: t.from})
}

func (t *tap) Request(wrid uint64, why string) {
	if len(t.out) == 0 {
		return // it was not placed where the tap sees it
	}
	p := &t.out[len(t.out)-1]
	p.wrid, p.why, p.request = wrid, why, true
}

func (t *tap) Sent() {
	ns := time.Now().UnixNano()
	for i := range t.out {
		p := &t.out[i]
		t.sink.put(ns, p.path, p.bytes, nil, outbound, t.comment(p))
	}
	clear(t.out)
	t.out = t.out[:0]
}

// comment is "QP 0x000011, WR 7; sent again: no acknowledgement".
func (t *tap) comment(p *placed) string {
	b := append(t.text[:0], "QP 0x"...)
	hex := strconv.FormatUint(uint64(p.qpn), 16)
	for range 6 - len(hex) {
		b = append(b, '0')
	}
	b = append(b, hex...)
	if p.request {
		b = strconv.AppendUint(append(b, ", WR "...), p.wrid, 10)
	}
	if p.why != "" {
		b = append(append(b, "; sent again: "...), p.why...)
	}
	t.text = b
	return string(b)
}

func (t *tap) Received(p *link.RxPacket, mtu int, what string) {
	path := link.Path{Src: p.Src, Dst: p.Dst, TClass: p.TClass, HopLimit: p.HopLimit}
	now := time.Now().UnixNano()
	if !p.Train {
		t.sink.put(now, &path, p.Data, p.Body, inbound, what)
		return
	}
	for _, piece := range cut(p, mtu) {
		t.sink.put(now, &path, piece, nil, inbound, what)
	}
}
