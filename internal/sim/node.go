package sim

import (
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// A node is a device with the objects that its QPs share.
type node struct {
	w     *world
	index int
	dev   *verbs.Device
	ctx   *verbs.Context
	pd    *verbs.PD
	cqs   []*queue
	wcs   [16]verbs.WC
	dead  bool
	owner map[uint32]end // finds the end that a completion belongs to
}

// A queue is a CQ and the state of its events.
type queue struct {
	*verbs.CQ
	channel *verbs.CompChannel
	armed   bool // an event was requested while it was empty
}

// leastCQE is the size of a CQ, enough for all outstanding requests of one node.
const leastCQE = 400

func (w *world) newNode(i int) (*node, error) {
	ctx, err := w.fabric.Open(fmt.Sprintf("sim%d", i), addrOf(i))
	if err != nil {
		return nil, err
	}
	n := &node{w: w, index: i, dev: ctx.Device(), ctx: ctx}
	return n, n.start()
}

// start creates the objects that QPs need, in the open context.
func (n *node) start() (err error) {
	n.owner, n.cqs = map[uint32]end{}, nil
	if n.pd, err = n.ctx.AllocPD(); err != nil {
		return err
	}
	for range 1 + n.w.rand.IntN(2) {
		q := &queue{}
		if n.w.rand.IntN(2) == 0 {
			if q.channel, err = n.ctx.CreateCompChannel(); err != nil {
				return err
			}
		}
		if q.CQ, err = n.ctx.CreateCQ(leastCQE, &verbs.CQOptions{Channel: q.channel}); err != nil {
			return err
		}
		n.cqs = append(n.cqs, q)
	}
	return nil
}

func (n *node) cq() *verbs.CQ { return n.cqs[n.w.rand.IntN(len(n.cqs))].CQ }

// poll polls up to most completions of each CQ.
func (n *node) poll(most int) (took int, err error) {
	for _, q := range n.cqs {
		got, err := n.pollOne(q, most)
		if err != nil {
			return took, err
		}
		took += got
	}
	return took, nil
}

func (n *node) pollOne(q *queue, most int) (int, error) {
	got, err := q.Poll(n.wcs[:most])
	if err != nil {
		return 0, err
	}
	if got > 0 && q.armed {
		if err := q.event(); err != nil {
			return 0, err
		}
		n.w.tally.Notified++
	}
	for i := range got {
		if err := n.completed(&n.wcs[i]); err != nil {
			return got, err
		}
	}
	if got == 0 && q.channel != nil && !q.armed && n.w.rand.IntN(8) == 0 {
		q.armed = true
		err = q.ReqNotify(false)
	}
	return got, err
}

// event takes the event that an armed CQ must have.
func (q *queue) event() error {
	q.armed = false
	cq, err := q.channel.TryGetEvent()
	if err != nil {
		return fmt.Errorf("a CQ was armed and has completions, but there is no event: %w", err)
	}
	if cq != q.CQ {
		return fmt.Errorf("an event of another CQ")
	}
	cq.AckEvents(1)
	return nil
}

func (n *node) completed(wc *verbs.WC) error {
	t := &n.w.tally
	t.Completions++
	t.Statuses[wc.Status&31]++
	if wc.Status != verbs.WCSuccess {
		t.Errors++
	}
	e := n.owner[wc.QPNum]
	if e == nil {
		return fmt.Errorf("a completion for QP %#x, which does not exist", wc.QPNum)
	}
	return e.completed(wc)
}

// drain polls until the CQs are empty.
func (n *node) drain() error {
	for {
		got, err := n.poll(len(n.wcs))
		if err != nil || got == 0 {
			return err
		}
	}
}

// resize changes the size of a CQ.
func (n *node) resize() error {
	q := n.cqs[n.w.rand.IntN(len(n.cqs))]
	n.w.tally.Resized++
	return q.Resize(leastCQE + n.w.rand.IntN(400))
}

// kill ends the node as the death of its process does: all objects end without notice to the peers.
func (n *node) kill() error {
	n.w.note("kill", n.index)
	for _, p := range n.w.pairs {
		if err := p.lose(n); err != nil {
			return err
		}
	}
	n.dead = true
	return n.close()
}

// restart opens the device again. Its QP numbers start again.
func (n *node) restart() (err error) {
	n.w.note("restart", n.index)
	if n.ctx, err = n.dev.Open(); err != nil {
		return err
	}
	n.dead = false
	return n.start()
}

// close checks that all objects can be destroyed in order, and that no CQ has overflowed.
func (n *node) close() error {
	for {
		ev, err := n.ctx.TryGetAsyncEvent()
		if errors.Is(err, verbs.EAGAIN) {
			break
		}
		if err != nil {
			return err
		}
		ev.Ack()
		if ev.Type == verbs.EventCQErr || ev.Type == verbs.EventDeviceFatal {
			return fmt.Errorf("asynchronous event %v", ev.Type)
		}
	}
	for _, q := range n.cqs {
		if err := q.Close(); err != nil {
			return err
		}
		if q.channel == nil {
			continue
		}
		if err := q.channel.Close(); err != nil {
			return err
		}
	}
	if err := n.pd.Close(); err != nil {
		return err
	}
	return n.ctx.Close()
}
