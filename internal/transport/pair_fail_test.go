package transport

import "testing"

// The completions and events of both sides when a request fails (verbs section 45). A sends requests, B responds.
func TestPairFailures(t *testing.T) {
	const flushed, accessErr, reqErr = 5, "B event 3", "B event 2"
	for _, c := range []struct {
		name   string
		before func(a, b *pairEnd)
		op     Op
		n      int
		change func(a *pairEnd, w *SendWQE)
		want   []string
	}{
		{name: "X_RECV_01 a SEND longer than the receive", op: OpSend, n: 101,
			want: []string{"B state 6", "B wr 1 op 128 status 1", "B wr 2 op 128 status 5", "A state 6",
				"A wr 7 op 0 status 9", "A wr 8 op 0 status 5"}},
		{name: "the receive's memory is gone", op: OpSend, n: 100,
			before: func(_, b *pairEnd) { _ = b.qp.Regions.Remove(b.mem) },
			want: []string{"B state 6", "B wr 1 op 128 status 4", "B wr 2 op 128 status 5", "A state 6",
				"A wr 7 op 0 status 11", "A wr 8 op 0 status 5"}},
		{name: "V_AE_14 WRITE with a wrong key", op: OpWrite, n: 3000, change: func(_ *pairEnd, w *SendWQE) { w.RKey++ },
			want: []string{"B state 6", accessErr, "B wr 1 op 128 status 5", "B wr 2 op 128 status 5", "A state 6",
				"A wr 7 op 1 status 10", "A wr 8 op 0 status 5"}},
		{name: "READ outside the region", op: OpRead, n: 3000, change: func(a *pairEnd, w *SendWQE) {
			w.RemoteAddr = pairBase + uint64(len(a.mem.Buf)) - 2999
		}, want: []string{"B state 6", accessErr, "B wr 1 op 128 status 5", "B wr 2 op 128 status 5",
			"A state 6", "A wr 7 op 2 status 10", "A wr 8 op 0 status 5"}},
		{name: "V_AE_14 misaligned atomic", op: OpFetchAdd, n: 8, change: func(_ *pairEnd, w *SendWQE) { w.RemoteAddr++ },
			want: []string{"B state 6", accessErr, "B wr 1 op 128 status 5", "B wr 2 op 128 status 5", "A state 6",
				"A wr 7 op 4 status 9", "A wr 8 op 0 status 5"}},
		{name: "V_AE_13 the QP permits no READ", op: OpRead, n: 8, before: func(_, b *pairEnd) { b.qp.attr.Access = 0 },
			want: []string{"B state 6", reqErr, "B wr 1 op 128 status 5", "B wr 2 op 128 status 5", "A state 6",
				"A wr 7 op 2 status 9", "A wr 8 op 0 status 5"}},
		{name: "no receive for ever", op: OpSend, n: 8, before: func(a, b *pairEnd) {
			a.qp.attr.RNRRetry = 3
			var w RecvWQE
			for b.qp.RQ.Take(&w) {
			}
		}, want: []string{"A state 6", "A wr 7 op 0 status 13", "A wr 8 op 0 status 5"}},
		{name: "the peer is in RESET", op: OpSend, n: 8, before: func(_, b *pairEnd) {
			if err := b.qp.Modify(0, &Attr{}, MaskState); err != nil {
				t.Fatal(err)
			}
		}, want: []string{"A state 6", "A wr 7 op 0 status 12", "A wr 8 op 0 status 5"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPair(t, 4)
			p.log = new([]string)
			a, b := p.ends[0], p.ends[1]
			a.todo, b.todo = 0, 0
			for wrid := uint64(1); wrid <= 2; wrid++ {
				if err := b.qp.RQ.Post(wrid, b.cut(2*quarter, 100)); err != nil {
					t.Fatal(err)
				}
			}
			if c.before != nil {
				c.before(a, b)
			}
			a.post(7, c.op, c.n, c.change)
			a.post(8, OpSend, 1, nil)
			for len(*p.log) < len(c.want) {
				p.transmit(a)
				p.transmit(b)
				if !p.step() {
					break
				}
			}
			p.transmit(a)
			p.transmit(b)
			same(t, "what happened", *p.log, c.want)
		})
	}
}

func (e *pairEnd) post(wrid uint64, op Op, n int, change func(e *pairEnd, w *SendWQE)) {
	q := e.qp.SQ
	q.Lock()
	defer q.Unlock()
	w := q.Next()
	q.More(w)
	w.WRID, w.Op, w.Length, w.SGEs = wrid, op, uint32(n), append(w.SGEs, e.cut(0, n)...)
	w.RKey, w.RemoteAddr, w.Flags = e.peer.mem.RKey, pairBase+3*quarter, Signaled
	if op != OpFetchAdd {
		w.RemoteAddr = pairBase
	}
	if change != nil {
		change(e, w)
	}
	q.Commit()
	q.Publish()
}
