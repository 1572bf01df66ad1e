package transport

import (
	"errors"
	"testing"
	"time"
)

// TestPairChanging is TestPair with programs that stop and continue their send queues, change rate limits, keep-alive,
// windows and the initiator depth, and resize their queues, at any time.
func TestPairChanging(t *testing.T) {
	for _, typ := range []Type{RC, XRCSend} {
		seeds := uint64(100)
		if testing.Short() || slow {
			seeds = 15
		}
		for seed := range seeds {
			if *pairSeed != 0 {
				seed = *pairSeed - 1
			}
			p := newPairOf(t, seed+1, typ)
			p.changing = true
			if p.run(); t.Failed() {
				t.Fatalf("type %d: reproduce with: go test ./internal/transport -run TestPairChanging -pairseed %d", typ, seed+1)
			}
			if *pairSeed != 0 {
				break
			}
		}
	}
}

// paused reports whether a program has stopped its send queue.
func (p *pair) paused() bool { return p.ends[0].qp.State() == SQD || p.ends[1].qp.State() == SQD }

// checks reports whether a check of keep-alive is under way.
func (e *pairEnd) checks() bool { return e.qp.req.keep != nil && e.qp.req.keep.out }

// change changes something now and then.
func (e *pairEnd) change() {
	rnd, now, err := e.p.rnd, e.p.now, error(nil)
	switch n := rnd.IntN(60); {
	case e.qp.State() == SQD && e.qp.Draining():
	case e.qp.State() == SQD && n < 30:
		err = e.qp.Modify(now, &Attr{State: RTS}, MaskState)
	case e.qp.State() == SQD && n < 35:
		a := Attr{State: SQD, MaxRdAtomic: 1 + rnd.IntN(e.peer.in.attr.MaxDestRdAtom)}
		err = e.qp.Modify(now, &a, MaskMaxRdAtomic)
	case e.qp.State() == RTS && n < 3:
		err = e.qp.Modify(now, &Attr{State: SQD}, MaskState)
	case n < 6:
		e.qp.SetRate([]uint64{0, 1e8, 1e9, 1e10}[rnd.IntN(4)], int64(rnd.IntN(3)*3000))
	case n < 9:
		e.qp.SetKeepAlive(now, time.Duration(1+rnd.IntN(3))*time.Millisecond)
	case n < 12:
		err = e.qp.SQ.Resize(pairDepth << rnd.IntN(3))
	case n < 15:
		err = e.rq.Resize(pairDepth<<rnd.IntN(3), 4)
	case n < 17:
		e.qp.SetWindow(1000+rnd.IntN(30000), nil)
	}
	if err != nil && !errors.Is(err, ErrQueueFull) {
		e.p.t.Error(err)
	}
}
