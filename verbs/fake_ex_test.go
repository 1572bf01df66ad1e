package verbs

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
)

// What the fake driver has of extended objects.

func (c *fakeContext) CreateCQEx(init *CQExDriverInit, up CQUpcalls) (CQExDriver, error) {
	return &fakeCQEx{
		fakeCQ: fakeCQ{fakeContext: c, up: up, cap: init.CQE + init.CQE%2, vector: init.CompVector}, init: *init,
	}, c.call("CreateCQEx")
}

type fakeCQEx struct {
	fakeCQ
	init CQExDriverInit
	ex   []WCEx
	more []bool // of each PollOne
}

func (c *fakeCQEx) PollOne(wc *WCEx, more bool) (bool, error) {
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

// PostSendAll notes copies of the requests.
func (q *fakeQP) PostSendAll(wrs []SendWR) (int, error) {
	if q.room > 0 && len(q.sent)+len(wrs) > q.room {
		return q.room - len(q.sent), syscall.ENOMEM
	}
	for _, wr := range wrs {
		wr.SGList, wr.Inline = slices.Clone(wr.SGList), slices.Clone(wr.Inline)
		if wr.BindInfo != nil {
			info := *wr.BindInfo
			wr.BindInfo = &info
		}
		q.all = append(q.all, wr)
		q.sent = append(q.sent, wr.WRID)
	}
	return len(wrs), nil
}

// oldQP is a driver that does not post lists as one.
type oldPD struct{ *fakePD }

func (p oldPD) CreateQP(init *QPDriverInit, up QPUpcalls) (QPDriver, error) {
	drv, err := p.fakePD.CreateQP(init, up)
	return struct{ QPDriver }{drv}, err
}

func newCQEx(t testing.TB, ctx *Context, init CQInitAttrEx) (*CQEx, *fakeCQEx) {
	t.Helper()
	if init.CQE == 0 {
		init.CQE = 16
	}
	x := must(ctx.CreateCQEx(&init))(t)
	return x, x.Driver().(*fakeCQEx)
}

// newEx makes an extended QP in RTS that may post whatever its type can.
func newEx(t testing.TB, pd *PD, typ QPType) (*QPEx, *fakeQP) {
	t.Helper()
	ops := sendOpsOf(typ)
	cq, _ := newCQ(t, pd.Context(), nil)
	qp := must(pd.CreateQPEx(&QPInitAttrEx{
		QPInitAttr: QPInitAttr{
			Type: typ, SendCQ: cq, RecvCQ: cq,
			Cap: QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 4, MaxRecvSGE: 2, MaxInlineData: 64},
		},
		SendOpsFlags: ops,
	}))(t)
	drv := qp.Driver().(*fakeQP)
	forceState(qp, drv, QPSRTS)
	return must(qp.Ex())(t), drv
}

func newRC(t testing.TB) (*QPEx, *fakeQP) {
	t.Helper()
	ctx, _ := openFake(t)
	return newEx(t, newPD(t, ctx), QPTypeRC)
}

// brief prints what matters of a request.
func brief(wr *SendWR) string {
	return fmt.Sprintf("%d %v %v %v %q rkey=%d addr=%d imm=%d inv=%d cmp=%d swap=%d qpn=%d qkey=%d srqn=%d",
		wr.WRID, wr.Opcode, wr.Flags, wr.SGList, wr.Inline, wr.RKey, wr.RemoteAddr, wr.ImmData, wr.InvalidateRKey, wr.CompareAdd, wr.Swap,
		wr.RemoteQPN, wr.RemoteQKey, wr.RemoteSRQN)
}
