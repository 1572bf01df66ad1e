package soft_test

import (
	"testing"

	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

// A program moves a QP to ERR. A request whose acknowledgement has arrived succeeds, and so does a receive whose
// message has arrived. All other requests are flushed. An adapter processes packets as they come and does the same.
func TestWorkThatHasArrivedIsNotFlushed(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		if n.plain() {
			t.Skip("a goroutine reads plain sockets, at a time of its own")
		}
		ends := newEnds(t, n, 2, func(c *soft.Config) { c.Manual, c.Shards = true, 1 })
		x, y := ends[0], ends[1]
		qx, qy := connect(x, y, verbs.QPTypeRC, nil)
		for i := range 3 {
			must(t, qy.PostRecv(verbs.RecvWR{WRID: uint64(10 + i), SGList: []verbs.SGE{y.mr.SGE(0, 64)}}))
		}
		must(t, qx.PostRecv(verbs.RecvWR{WRID: 20, SGList: []verbs.SGE{x.mr.SGE(0, 64)}}))
		send := verbs.SendWR{WRID: 1, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: []verbs.SGE{x.mr.SGE(64, 8)}}

		// The first message, for which links may have to be made.
		must(t, qx.PostSend(send))
		for got := 0; got < 2; {
			for _, e := range ends {
				e.dev.Step()
				var wcs [2]verbs.WC
				got += get(e.cq.Poll(wcs[:]))(t)
			}
		}

		// The message arrives at y, which has not looked.
		must(t, qx.PostSend(send))
		must(t, qy.Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, verbs.QPAttrState))
		wcs := drained(t, y, 2)
		if wcs[0].WRID != 11 || wcs[0].Status != verbs.WCSuccess || wcs[1].Status != verbs.WCWRFlushErr {
			t.Errorf("receives: %v %v, %v %v; want one message, one flushed", wcs[0].WRID, wcs[0].Status, wcs[1].WRID,
				wcs[1].Status)
		}
		// The acknowledgement arrives at x, which has not looked.
		must(t, qx.Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, verbs.QPAttrState))
		wcs = drained(t, x, 2)
		if wcs[0].WRID != 1 || wcs[0].Status != verbs.WCSuccess || wcs[1].Status != verbs.WCWRFlushErr {
			t.Errorf("send %v %v, receive %v %v; want a success, one flushed", wcs[0].WRID, wcs[0].Status, wcs[1].WRID,
				wcs[1].Status)
		}
	})
}

// drained returns the completions that are there, which must be n.
func drained(t *testing.T, e *end, n int) []verbs.WC {
	t.Helper()
	wcs := make([]verbs.WC, 10)
	got := get(e.cq.Poll(wcs))(t)
	if got != n {
		t.Fatalf("%d completions %v, want %d", got, wcs[:got], n)
	}
	return wcs[:n]
}
