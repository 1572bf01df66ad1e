package raw

import (
	"sync"
	"testing"

	"github.com/verbena-rdma/verbena/internal/transport"
)

// lateCQ checks that a QP has the state want when its requests end without success.
type lateCQ struct {
	record
	t    *testing.T
	q    *QP
	want transport.State
	n    int
}

func (c *lateCQ) Push(e *transport.CQE) {
	c.n++
	if s := c.q.State(); e.Status == transport.Success || s != c.want {
		c.t.Errorf("request %d ended with status %d in state %d, want state %d", e.WRID, e.Status, s, c.want)
	}
}

// StateChanged and Event implement Upcalls.
func (*lateCQ) StateChanged(transport.State) {}
func (*lateCQ) Event(transport.Event)        {}

// A program that polls the completion of what has failed finds the QP in SQE (V-QPS-13) or ERR (V-QPS-15).
func TestStateChangesBeforeTheCompletion(t *testing.T) {
	for _, want := range []transport.State{transport.SQE, transport.Err} {
		d := NewDevice(Config{Memory: new(sync.RWMutex), Now: func() int64 { return 5 }})
		cq := &lateCQ{t: t, want: want}
		cq.q = &QP{SQ: transport.NewSendQueue(2, 1, 0), SendCQ: cq, Up: cq,
			RQ: &RQ{Queue: transport.NewRecvQueue(2, 1, false, 0), CQ: cq}}
		d.AddQP(cq.q)
		for range 2 {
			if err := cq.q.RQ.Queue.Post(7, nil); err != nil {
				t.Fatal(err)
			}
		}
		for _, s := range []transport.State{transport.Init, transport.RTR, transport.RTS} {
			if err := cq.q.Modify(s); err != nil {
				t.Fatal(err)
			}
		}
		if want == transport.Err {
			d.AddRule(&Rule{To: cq.q})
			d.receive(make([]byte, 100), false) // longer than the receive
		} else if err := cq.q.PostSend(func(sq *transport.SendQueue) error { // which is locked
			sq.Next().Op = transport.OpSend // a frame without a byte
			sq.Commit()
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if n := map[transport.State]int{transport.SQE: 1, transport.Err: 2}[want]; cq.n != n {
			t.Errorf("%d completions, want %d", cq.n, n)
		}
	}
}
