package soft_test

import (
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

// TestV_QPM_05_ResizedQueuesKeepTheirRequests resizes both queues of a connection that is stopped by a peer without
// receives. The requests that were posted before arrive in order.
func TestV_QPM_05_ResizedQueuesKeepTheirRequests(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		small := func(i *verbs.QPInitAttr) { i.Cap.MaxSendWR, i.Cap.MaxRecvWR = 4, 4 }
		qa, qb := a.qp(verbs.QPTypeRC, small), b.qp(verbs.QPTypeRC, small)
		join(t, qa, qb, nil)
		_, init, err := qa.Query(verbs.QPAttrCap)
		must(t, err)
		depth := int(init.Cap.MaxSendWR)
		r := resizer{t: t, a: a, b: b, qa: qa, qb: qb}
		r.exchange(3) // the queues do not begin at slot 0
		if err := r.fill(1000); !errors.Is(err, verbs.ENOMEM) || r.sent-3 != depth {
			t.Fatalf("%d sends before %v; want %d", r.sent-3, err, depth)
		}
		r.resize(qa, 4*depth, 0, 4*depth)
		if err := r.fill(1000); !errors.Is(err, verbs.ENOMEM) || r.sent-3 != 4*depth {
			t.Fatalf("%d sends before %v; want %d", r.sent-3, err, 4*depth)
		}
		attr := verbs.QPAttr{Cap: verbs.QPCap{MaxSendWR: uint32(depth)}}
		if err := qa.Modify(&attr, verbs.QPAttrCap); !errors.Is(err, verbs.EINVAL) {
			t.Fatalf("smaller than the posted requests: %v", err)
		}
		r.resize(qb, 0, 8*depth, 8*depth)
		r.drain()
		r.resize(qa, 2*depth, 2*depth, 2*depth)
		r.exchange(2)
		if err := r.fill(1000); !errors.Is(err, verbs.ENOMEM) || r.sent-r.got != 2*depth {
			t.Errorf("%d sends before %v; want %d", r.sent-r.got, err, 2*depth)
		}
	})
}

// resizer sends numbered messages from a to b.
type resizer struct {
	t         *testing.T
	a, b      *end
	qa, qb    *verbs.QP
	sent, got int
}

// fill posts at most n sends, until one is refused.
func (r *resizer) fill(n int) error {
	for range n {
		wr := verbs.SendWR{
			WRID: uint64(r.sent), Opcode: verbs.WRSendWithImm, ImmData: uint32(r.sent), Flags: verbs.SendSignaled,
		}
		if err := r.qa.PostSend(wr); err != nil {
			return err
		}
		r.sent++
	}
	return nil
}

// drain receives all messages and checks their order.
func (r *resizer) drain() {
	r.t.Helper()
	n := r.sent - r.got
	for range n {
		must(r.t, r.qb.PostRecv(verbs.RecvWR{}))
	}
	for _, wc := range r.b.good(n) {
		if wc.ImmData != uint32(r.got) {
			r.t.Fatalf("message %d: it has the number %d", r.got, wc.ImmData)
		}
		r.got++
	}
	for i, wc := range r.a.good(n) {
		if wc.WRID != uint64(r.got-n+i) {
			r.t.Fatalf("completion %d of the sends: request %d", r.got-n+i, wc.WRID)
		}
	}
}

func (r *resizer) exchange(n int) {
	r.t.Helper()
	must(r.t, r.fill(n))
	r.drain()
}

// resize resizes the queues of a QP. want is the room of those that send and recv do not leave as they are.
func (r *resizer) resize(qp *verbs.QP, send, recv, want int) {
	r.t.Helper()
	attr := verbs.QPAttr{Cap: verbs.QPCap{MaxSendWR: uint32(send), MaxRecvWR: uint32(recv)}}
	must(r.t, qp.Modify(&attr, verbs.QPAttrCap))
	now, init, err := qp.Query(verbs.QPAttrCap)
	must(r.t, err)
	if now.Cap != init.Cap || send > 0 && int(now.Cap.MaxSendWR) != want || recv > 0 && int(now.Cap.MaxRecvWR) != want {
		r.t.Fatalf("%+v, %+v; want %d", now.Cap, init.Cap, want)
	}
}

// TestV_CQ_09_ResizeBelowTheCompletionsHeld checks that a CQ is not resized to fewer completions than it holds, and
// that none is lost by the attempt.
func TestV_CQ_09_ResizeBelowTheCompletionsHeld(t *testing.T) {
	e := newEnds(t, &networks[0], 1, func(c *soft.Config) { c.Manual = true })[0]
	qp := e.qp(verbs.QPTypeRC, nil)
	must(t, qp.Modify(&verbs.QPAttr{QPState: verbs.QPSInit, PortNum: 1},
		verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags))
	const held = 20
	for i := range held {
		must(t, qp.PostRecv(recv(e, uint64(i), 8)))
	}
	must(t, qp.Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, verbs.QPAttrState)) // completes them
	for e.dev.Step() {
	}
	if err := e.cq.Resize(held - 1); !errors.Is(err, verbs.EINVAL) {
		t.Errorf("fewer than the completions held: %v", err)
	}
	must(t, e.cq.Resize(held))
	for i, wc := range e.poll(held) {
		if wc.WRID != uint64(i) || wc.Status != verbs.WCWRFlushErr {
			t.Errorf("completion %d: %v", i, wc.Err())
		}
	}
}
