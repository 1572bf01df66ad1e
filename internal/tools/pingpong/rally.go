package pingpong

import (
	"context"
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// The WRIDs of receives and sends; also the bits of the completions that a QP waits for before it sends
// again.
const (
	recvWRID = 1
	sendWRID = 2
)

// silence is the time-out for the other end. The C programs wait for ever: over UC and UD a lost packet
// stops both ends.
const silence = time.Minute

// A score is the progress of the game.
type score struct {
	sent, received uint
	receives       uint    // posted receives
	pending        []uint8 // by QP: sendWRID and recvWRID bits
	send           verbs.SendWR
}

// rally runs until both ends have sent and received all messages, and returns the duration.
func (g *game) rally() (time.Duration, error) {
	s := &score{receives: g.rxDepth, pending: make([]uint8, len(g.qps))}
	s.send = verbs.SendWR{
		WRID: sendWRID, Opcode: verbs.WRSend, Flags: g.flags, SGList: []verbs.SGE{g.sge(g.grh, int(g.size))},
		AH: g.ah, RemoteQPN: g.remote[0].QPN, RemoteQKey: udQKey,
	}
	for i := range s.pending {
		s.pending[i] = recvWRID
	}
	if g.server != "" {
		if g.validate {
			if err := g.markPayload(); err != nil {
				return 0, err
			}
		}
		for i := range g.qps {
			if err := g.serve(s, i); err != nil {
				return 0, err
			}
		}
	}
	start := time.Now()
	next := g.pollNext
	if g.events {
		w := newWaiter(g.channel, g.poll, g.silent())
		defer w.stop()
		next = w.next
	}
	wcs := make([]verbs.WC, 2*len(g.qps))
	for !s.full(g.iters) {
		n, err := next(wcs)
		if err != nil {
			return 0, err
		}
		if err := g.count(s, wcs[:n]); err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}

// full reports whether all messages have been sent and received.
func (s *score) full(iters uint) bool { return s.received >= iters && s.sent >= iters }

// count handles completions until the score is full. Those after that are of messages that the peer need not receive:
// it may have ended.
func (g *game) count(s *score, wcs []verbs.WC) error {
	for i := range wcs {
		if s.full(g.iters) {
			return nil
		}
		if err := g.hit(s, &wcs[i]); err != nil {
			return err
		}
	}
	return nil
}

// serve sends on a QP.
func (g *game) serve(s *score, i int) error {
	s.pending[i] = recvWRID | sendWRID
	if g.newSend {
		return g.build(i, &s.send)
	}
	return g.qps[i].PostSend(s.send)
}

// hit handles one completion.
func (g *game) hit(s *score, wc *verbs.WC) error {
	if wc.Status != verbs.WCSuccess {
		return &statusError{wc.Status, wc.WRID, wc.Err()}
	}
	i := g.indexOf(wc.QPNum)
	if i < 0 {
		return fmt.Errorf("completion for unknown QP 0x%06x", wc.QPNum)
	}
	if wc.WRID == sendWRID {
		s.sent++
	} else {
		s.received++
		if err := g.refill(s); err != nil {
			return err
		}
	}
	s.pending[i] &^= uint8(wc.WRID)
	if s.sent < g.iters && s.pending[i] == 0 {
		return g.serve(s, i)
	}
	return nil
}

// refill posts receives when only one is left for each QP.
func (g *game) refill(s *score) error {
	s.receives--
	if s.receives > g.numQP {
		return nil
	}
	err := g.postReceives(g.rxDepth - s.receives)
	s.receives = g.rxDepth
	return err
}

// A statusError is a failed completion with its cause, in the text of the C programs.
type statusError struct {
	status verbs.WCStatus
	wrid   uint64
	cause  error
}

func (e *statusError) Error() string {
	return fmt.Sprintf("Failed status %s (%d) for wr_id %d\n%v", e.status, uint32(e.status), e.wrid, e.cause)
}

func (e *statusError) Unwrap() error { return e.cause }

func (g *game) indexOf(qpn uint32) int {
	for i, qp := range g.qps {
		if qp.QPN() == qpn {
			return i
		}
	}
	return -1
}

// silent returns the error for a game without progress.
func (g *game) silent() error {
	if g.typ == verbs.QPTypeUC || g.typ == verbs.QPTypeUD {
		return fmt.Errorf("nothing from the other end for %v; over UC and UD a lost packet stops both ends", silence)
	}
	return fmt.Errorf("nothing from the other end for %v; run the same program there, with the same -n",
		silence)
}

// pollNext polls until there are completions.
func (g *game) pollNext(wcs []verbs.WC) (int, error) {
	const emptyPolls = 1 << 16 // polls between two readings of the clock
	var since time.Time
	for {
		for range emptyPolls {
			if n, err := g.poll(wcs); n > 0 || err != nil {
				return n, err
			}
		}
		if since.IsZero() {
			since = time.Now()
		} else if time.Since(since) > silence {
			return 0, g.silent()
		}
	}
}

// A waiter sleeps until there are completions (-e).
type waiter struct {
	channel *verbs.CompChannel
	poll    func([]verbs.WC) (int, error)
	ctx     context.Context
	stall   *time.Timer
}

func newWaiter(ch *verbs.CompChannel, poll func([]verbs.WC) (int, error), silent error) *waiter {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &waiter{ch, poll, ctx, time.AfterFunc(silence, func() { cancel(silent) })}
}

func (w *waiter) stop() { w.stall.Stop() }

// next returns completions. If there are none it sleeps until a completion event.
func (w *waiter) next(wcs []verbs.WC) (int, error) {
	for {
		if n, err := w.poll(wcs); n > 0 || err != nil {
			return n, err
		}
		w.stall.Reset(silence)
		cq, err := w.channel.GetEvent(w.ctx)
		if w.ctx.Err() != nil {
			return 0, context.Cause(w.ctx)
		}
		if err != nil {
			return 0, err
		}
		cq.AckEvents(1)
		if err := cq.ReqNotify(false); err != nil {
			return 0, err
		}
	}
}
