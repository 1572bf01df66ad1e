package transport

// RC has no byte window: a responder acknowledges what it has processed, and packets that overflow the receiver's
// socket buffer are lost silently. The requester therefore bounds the bytes in flight: those of SENDs and WRITEs on
// their way to the peer, and those of requested READ responses, which arrive here in the same way. Large READs are
// requested in pieces, see requesterWQE.cell.
//
// A loss halves the window, an ACK timeout reduces it to its minimum, and acknowledged bytes enlarge it by a quarter
// per round trip. With random loss of 1 % the window stays near 30 packets, so go-back-N resends little. After a loss
// by overflow the old size is reached within four round trips.
//
// What the network holds is not in the receiver's buffer. So the window is larger by the bytes that are acknowledged
// within the shortest round-trip time: the rest, which queues somewhere, fits the buffer. On a long path the window
// grows by its limit per round trip until the path or an end is busy all the time.

// DefaultWindow is the number of bytes in flight of a QP without SetWindow.
const DefaultWindow = 256 << 10

// wideWindow is the limit of a QP whose data goes by reference. Such data takes no room of the receiver, and its
// packets go through a ring, which makes the sender wait when it is full. The receiver acknowledges what it has copied
// only at the end of a batch: with less in flight it would wait for the next data then. With more, many QPs could have
// so much in flight that acknowledgements are late.
const wideWindow = 16 << 20

// packetCost is the window cost of a packet in addition to its payload, in bytes. It is about half of what Linux
// charges a receive buffer for the packet's metadata, so a window of half the receive buffer fits it with small and
// with large packets.
const packetCost = 512

// minWindow is the smallest window, in full packets.
const minWindow = 8

// maxSpan bounds the PSNs between the oldest and the newest unacknowledged one. It is far below 2^23, the limit of
// circular comparison.
const maxSpan = 1 << 22

// window counts the bytes in flight of one QP.
type window struct {
	calm  int   // bytes to be acknowledged before the window grows at full speed again; see ease
	least int64 // shortest round-trip time, ns; 0: no sample yet. Unused if shared is set

	limit  int // maximum of size without pipe; see wide
	size   int
	flight int
	pipe   int32 // bytes that the network holds, 0 with nothing in flight; part of shared.pipe
	wide   bool  // limit counts as wideWindow at least
	acked  int   // bytes acknowledged; may wrap
	shared *Budget
}

// most returns the maximum of size.
func (w *window) most() int {
	if w.wide {
		return max(w.limit, wideWindow) + int(w.pipe)
	}
	return w.limit + int(w.pipe)
}

// setPipe sets the number of bytes that the network holds.
func (w *window) setPipe(n int) {
	if w.shared != nil {
		w.shared.pipe += n - int(w.pipe)
	}
	w.pipe = int32(n)
	w.size = min(w.size, w.most())
}

// measured takes a round-trip time during which bytes were acknowledged.
func (w *window) measured(took int64, bytes int) {
	least := &w.least
	if w.shared != nil {
		least = &w.shared.least
	}
	if *least == 0 || took < *least {
		*least = took
	}
	w.setPipe(int(min(float64(bytes)*float64(*least)/float64(took), maxPipe)))
}

// maxPipe bounds window.pipe: 86 ms of 100 Gbit/s.
const maxPipe = 1 << 30

// SetWindow bounds the bytes in flight of the QP (see packetCost), alone and together with other QPs. limit 0 means
// DefaultWindow, shared nil no common budget. The shard is held.
func (qp *QP) SetWindow(limit int, shared *Budget) {
	w := &qp.req.win
	if limit <= 0 {
		limit = DefaultWindow
	}
	flight := w.flight
	w.clear()
	w.setPipe(0)
	w.limit, w.size, w.shared, w.wide = limit, limit, shared, false
	w.add(flight)
}

// admits reports whether a packet of that cost may be sent now.
func (w *window) admits(cost int) bool {
	return w.flight == 0 || w.fits(cost)
}

func (w *window) fits(cost int) bool {
	return w.flight+cost <= w.size && (w.shared == nil || w.shared.flight+cost <= w.shared.room())
}

// left returns the cost that may still be sent.
func (w *window) left() int {
	n := w.size - w.flight
	if w.shared != nil {
		n = min(n, w.shared.room()-w.shared.flight)
	}
	return n
}

// add counts a packet that was sent.
func (w *window) add(cost int) {
	w.flight += cost
	if w.shared != nil {
		w.shared.flight += cost
	}
}

// widen makes the window of a QP whose data goes by reference wide.
func (w *window) widen() {
	if !w.wide {
		w.wide = true
		w.size += max(0, wideWindow-w.limit)
	}
}

// begin is for a new connection, whose data may not go by reference.
func (w *window) begin() { w.size, w.wide = w.limit, false }

// release removes acknowledged packets and enlarges the window.
func (w *window) release(cost int) {
	w.add(-cost)
	w.acked += cost
	if w.size < w.most() {
		w.size = min(w.most(), w.size+w.growth(cost))
	}
	if w.shared != nil {
		w.shared.grow(cost)
	}
}

// growth returns by how much the window grows after cost was acknowledged.
func (w *window) growth(cost int) int {
	if w.calm > 0 {
		w.calm -= cost
		return cost / calmShare
	}
	return cost / 4
}

// clear removes all packets in flight: they will be sent again, or never.
func (w *window) clear() { w.add(-w.flight) }

// After a congestion notification the window grows by 1/calmShare per round trip, for calmTrips round trips.
const (
	calmShare = 32
	calmTrips = 64
)

// ease reduces the window by a quarter after a congestion notification. floor is the cost of minWindow packets.
func (w *window) ease(floor int) {
	w.size = min(w.most(), max(w.size-w.size/4, floor))
	w.calm = calmTrips * w.size
}

// halve reduces the window after a lost packet, collapse after an ACK timeout. floor is the cost of minWindow
// packets.
func (w *window) halve(floor int) { w.size = min(w.most(), max(w.size/2, floor)) }
func (w *window) collapse(floor int) {
	w.setPipe(0)
	w.size = min(w.limit, floor)
}
