package iwtcp

import (
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/link/pcap"
	"github.com/verbena-rdma/verbena/internal/mr"
)

// Tap sees the streams of a device. It is for concurrent use.
type Tap interface {
	Segment(g *pcap.Segment)
}

// tapped are a device's taps.
type tapped struct {
	all atomic.Pointer[[]Tap]
	use sync.RWMutex // read-locked while a tap is used
}

// SetTaps sets what sees the streams. Those that were set before are unused when it returns.
func (d *Device) SetTaps(all []Tap) {
	if len(all) == 0 {
		d.taps.all.Store(nil)
	} else {
		d.taps.all.Store(&all)
	}
	d.taps.use.Lock()
	defer d.taps.use.Unlock() //nolint:staticcheck // it waits for readers
}

// trace is the state of a QP's stream that taps need.
type trace struct {
	local, remote netip.AddrPort
	sent, got     uint64 // bytes, and 1 for the begin
	copy          []byte // nil until there is a tap
}

// begin shows the begin of a connection: TCP's handshake and MPA's frames.
//
// +checklocks:q.mu
func (q *QP) traceBegin(c *Conn) {
	q.trace = trace{sent: 1, got: 1}
	q.trace.local, q.trace.remote = c.Addrs()
	first, second := true, false // who has sent
	if !c.Params.Initiator {
		first, second = second, first
	}
	q.tap(&pcap.Segment{Sent: first, Flags: pcap.FlagSYN}, 0, 0)
	q.tap(&pcap.Segment{Sent: second, Flags: pcap.FlagSYN | pcap.FlagACK}, 0, 1)
	q.tap(&pcap.Segment{Sent: first, Flags: pcap.FlagACK}, 1, 1)
	q.traceData(first, c.request)
	q.traceData(second, c.reply)
}

// tap gives a segment to all taps.
//
// +checklocks:q.mu
func (q *QP) tap(g *pcap.Segment, seq, ack uint64) {
	t := &q.dev.taps
	t.use.RLock()
	defer t.use.RUnlock()
	all := t.all.Load()
	if all == nil {
		return
	}
	g.Src, g.Dst = q.trace.remote, q.trace.local
	if g.Sent {
		g.Src, g.Dst = g.Dst, g.Src
	}
	g.Seq, g.Ack, g.QPN = uint32(seq), uint32(ack), q.Num
	for _, tap := range *all {
		tap.Segment(g)
	}
}

// traceData counts bytes of the stream, which may be memory of the program, and shows them.
//
// +checklocks:q.mu
func (q *QP) traceData(sent bool, parts ...[]byte) {
	n := 0
	for _, b := range parts {
		n += len(b)
	}
	if n == 0 {
		return
	}
	from, ack := &q.trace.got, q.trace.sent
	if sent {
		from, ack = &q.trace.sent, q.trace.got
	}
	g := stretch{sent: sent, seq: *from, ack: ack}
	*from += uint64(n)
	if q.dev.taps.all.Load() == nil {
		return
	}
	if q.trace.copy == nil {
		q.trace.copy = make([]byte, 0, pcap.MaxSegment)
	}
	data := q.trace.copy[:0]
	for _, b := range parts {
		for len(b) > 0 {
			at := len(data)
			k := min(len(b), pcap.MaxSegment-at)
			data = data[:at+k]
			if _, ok := mr.Copy(data[at:], b[:k]); !ok {
				clear(data[at:]) // the program has unmapped it
			}
			if b = b[k:]; len(data) == pcap.MaxSegment {
				data = q.tapData(&g, data)
			}
		}
	}
	if len(data) > 0 {
		q.tapData(&g, data)
	}
}

// stretch is where the next bytes of a direction are in the stream.
type stretch struct {
	sent     bool
	seq, ack uint64
}

// tapData shows bytes, moves g behind them and returns the buffer, empty.
//
// +checklocks:q.mu
func (q *QP) tapData(g *stretch, data []byte) []byte {
	q.tap(&pcap.Segment{Sent: g.sent, Flags: pcap.FlagACK | pcap.FlagPSH, Data: data}, g.seq, g.ack)
	g.seq += uint64(len(data))
	return data[:0]
}

// traceVectors shows the first n bytes of vectors that were sent.
//
// +checklocks:q.mu
func (q *QP) traceVectors(v [][]byte, n int) {
	if q.dev.taps.all.Load() == nil {
		q.trace.sent += uint64(n)
		return
	}
	var parts [][]byte
	for _, b := range v {
		k := min(n, len(b))
		parts, n = append(parts, b[:k]), n-k
	}
	q.traceData(true, parts...)
}

// traceEnd shows the end of a direction.
//
// +checklocks:q.mu
func (q *QP) traceEnd(sent bool, flag uint8) {
	seq, ack := q.trace.got, q.trace.sent
	if sent {
		seq, ack = ack, seq
	}
	q.tap(&pcap.Segment{Sent: sent, Flags: flag | pcap.FlagACK}, seq, ack)
}
