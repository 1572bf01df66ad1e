package transport

// RC has no window of bytes: a responder acknowledges what it has taken, and what finds the
// receiving socket's buffer full is lost without a word. So the requester bounds the bytes
// that it has in flight. Bytes of SENDs and WRITEs on their way to the peer count, and so do
// bytes of READ responses that the peer was asked for, since they arrive here in the
// same way (large READs are asked for in pieces, see requester.cell).
//
// Losses shrink the window to a half, a silent peer to its minimum; what is acknowledged makes it
// grow again by a quarter per round trip. Under steady random loss of 1 % that settles at about 30 packets, so that
// going back N costs little; after a loss by overflow the old size is back within four round trips.

// DefaultWindow is the bytes in flight of a QP for which SetWindow was not called.
const DefaultWindow = 256 << 10

// packetCost is what a packet counts for beside its payload: about half of what Linux charges a
// receive buffer for the packet's bookkeeping. A window of half the receive buffer therefore fits it
// whether it is full of small packets or of large ones.
const packetCost = 512

// minWindow is the size, in full packets, that losses do not take a window below.
const minWindow = 8

// maxSpan bounds the PSNs between the oldest unacknowledged one and the newest, so
// that circular comparison always has room to spare.
const maxSpan = 1 << 22

// window is the bytes in flight of one QP.
type window struct {
	limit  int // size never grows beyond it
	size   int
	flight int
	shared *Budget
}

// SetWindow bounds the bytes that the QP may have in flight (see packetCost), by itself and
// together with others; 0 means DefaultWindow and nil no budget. It may be called at any time.
func (qp *QP) SetWindow(limit int, shared *Budget) {
	w := &qp.req.win
	if limit <= 0 {
		limit = DefaultWindow
	}
	flight := w.flight
	w.clear()
	w.limit, w.size, w.shared = limit, limit, shared
	w.add(flight)
}

// admits tells whether a packet of that cost may leave now.
func (w *window) admits(cost int) bool {
	return w.flight == 0 || w.fits(cost)
}

func (w *window) fits(cost int) bool {
	return w.flight+cost <= w.size && (w.shared == nil || w.shared.flight+cost <= w.shared.room())
}

// left is the cost that may still leave.
func (w *window) left() int {
	n := w.size - w.flight
	if w.shared != nil {
		n = min(n, w.shared.room()-w.shared.flight)
	}
	return n
}

// add counts a packet that leaves.
func (w *window) add(cost int) {
	w.flight += cost
	if w.shared != nil {
		w.shared.flight += cost
	}
}

// release forgets packets that were acknowledged, and opens the window.
func (w *window) release(cost int) {
	w.add(-cost)
	if w.size < w.limit {
		w.size = min(w.limit, w.size+cost/4)
	}
	if w.shared != nil {
		w.shared.grow(cost)
	}
}

// clear forgets everything in flight: it will be sent again, or never.
func (w *window) clear() { w.add(-w.flight) }

// halve is the answer to a lost packet, collapse that to silence; floor is the cost of minWindow packets.
func (w *window) halve(floor int)    { w.size = min(w.limit, max(w.size/2, floor)) }
func (w *window) collapse(floor int) { w.size = min(w.limit, floor) }
