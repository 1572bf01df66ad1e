package verbs

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
)

// The extended objects of the fake driver.

func (c *fakeCQ) PollOne(wc *WC, more bool) (bool, error) {
	c.more = append(c.more, more)
	if err := c.fail["PollOne"]; err != nil {
		return false, err
	}
	if len(c.ex) == 0 {
		return false, nil
	}
	*wc, c.ex = c.ex[0], c.ex[1:]
	return true, nil
}

// PostSendAll records copies of the requests.
func (q *fakeQP) PostSendAll(wrs []SendWR) (int, error) {
	if q.room > 0 && len(q.sent)+len(wrs) > q.room {
		return q.room - len(q.sent), syscall.ENOMEM
	}
	for _, wr := range wrs {
		wr.SGList, wr.Inline = slices.Clone(wr.SGList), slices.Clone(wr.Inline)
		if wr.TSO != nil {
			tso := TSO{Hdr: slices.Clone(wr.TSO.Hdr), MSS: wr.TSO.MSS}
			wr.TSO = &tso
		}
		if wr.BindInfo != nil {
			info := *wr.BindInfo
			wr.BindInfo = &info
		}
		q.all = append(q.all, wr)
		q.sent = append(q.sent, wr.WRID)
	}
	return len(wrs), nil
}

// PostOps records the operations.
func (s *fakeSRQ) PostOps(ops []OpsWR) (int, error) {
	for i := range ops {
		if s.room > 0 && len(s.ops) >= s.room {
			return i, syscall.ENOMEM
		}
		s.ops = append(s.ops, ops[i].WRID)
	}
	return len(ops), nil
}

// withBatches creates a CQ with completions for batches.
func withBatches(t testing.TB, vctx *Context, opts CQOptions, wcs ...WC) (*CQ, *fakeCQ) {
	t.Helper()
	cq, drv := newCQ(t, vctx, &opts)
	drv.ex = wcs
	return cq, drv
}

// newEx creates an extended QP in RTS with all operations of its type.
func newEx(t testing.TB, pd *PD, typ QPType) (*QPEx, *fakeQP) {
	t.Helper()
	ops := sendOpsOf(typ)
	cq, _ := newCQ(t, pd.Context(), nil)
	qp := must(pd.CreateQP(&QPInitAttr{
		Type: typ, SendCQ: cq, RecvCQ: cq,
		Cap:          QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 4, MaxRecvSGE: 2, MaxInlineData: 64},
		SendOpsFlags: ops,
	}))(t)
	drv := qp.drv.(*fakeQP)
	forceState(qp, drv, QPSRTS)
	return must(qp.Ex())(t), drv
}

func newRC(t testing.TB) (*QPEx, *fakeQP) {
	t.Helper()
	vctx, _ := openFake(t)
	return newEx(t, newPD(t, vctx), QPTypeRC)
}

// brief formats the relevant fields of a request.
func brief(wr *SendWR) string {
	return fmt.Sprintf("%d %v %v %v %q rkey=%d addr=%d imm=%d inv=%d cmp=%d swap=%d qpn=%d qkey=%d srqn=%d",
		wr.WRID, wr.Opcode, wr.Flags, wr.SGList, wr.Inline, wr.RKey, wr.RemoteAddr, wr.ImmData, wr.InvalidateRKey,
		wr.CompareAdd, wr.Swap,
		wr.RemoteQPN, wr.RemoteQKey, wr.RemoteSRQN)
}
