package soft_test

import (
	"errors"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/observe"
	"github.com/verbena-rdma/verbena/verbs"
)

// TestFailuresAreObserved: the failure of a QP is an event with its numbers and its reason, whether the whole QP fails
// or its send queue only. A QP that the program moves to ERR has not failed.
func TestFailuresAreObserved(t *testing.T) {
	ends := newEnds(t, &networks[0], 2, nil)
	x, y := ends[0], ends[1]
	failures := make(chan observe.Event, 100)
	t.Cleanup(observe.Handle(func(e observe.Event) { failures <- e }))
	for _, typ := range []verbs.QPType{verbs.QPTypeRC, verbs.QPTypeUC} {
		qx, qy := connect(x, y, typ, nil)
		must(t, qx.PostSend(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled,
			SGList: []verbs.SGE{{Addr: x.mr.Addr(), Length: 8, LKey: x.mr.LKey() + 1}}}))
		if wc := x.poll(1)[0]; wc.Status != verbs.WCLocProtErr {
			t.Fatalf("%v: %v", typ, wc.Status)
		}
		must(t, qy.Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, verbs.QPAttrState))
		var e observe.Event
		select {
		case e = <-failures:
		case <-time.After(20 * time.Second):
			t.Fatalf("%v: no event", typ)
		}
		var why *verbs.WCError
		if e.Name != observe.Failure || e.QPN != qx.QPN() || e.DestQPN != qy.QPN() || !errors.As(e.Err, &why) ||
			why.Status != verbs.WCLocProtErr || e.Reason == "" || e.Reason != why.Reason {
			t.Errorf("%v: %+v", typ, e)
		}
		if e.Local.Addr() != networks[0].addr(0) || e.Peer.Addr() != networks[0].addr(1) {
			t.Errorf("%v: from %v to %v", typ, e.Local, e.Peer)
		}
		must(t, qx.Close())
		must(t, qy.Close())
		if len(failures) > 0 {
			t.Errorf("%v: another event: %+v", typ, <-failures)
		}
	}
}
