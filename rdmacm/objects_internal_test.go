package rdmacm

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// What an ID has of QPs, SRQs and PDs when a step of making them fails.

// The PD of an ID is that of its SRQ if it has no QP.
func TestPDOfTheSRQ(t *testing.T) {
	h := memoryHost(t)
	id := boundID(t, h)
	ok := FatalOn(t)
	pd, err := id.Verbs().AllocPD()
	ok(err)
	if id.PD() == pd {
		t.Error("the default PD is that of the program")
	}
	ok(id.CreateSRQ(pd, &verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: 1, MaxSGE: 1}}))
	if id.PD() != pd {
		t.Error("the PD is not that of the SRQ")
	}
	ok(errors.Join(id.DestroySRQ(), pd.Close(), id.Close(), h.Close()))
}

// An SRQ that cannot be made leaves no CQ, also if the CQ is what cannot be made.
func TestSRQThatCannotBeMade(t *testing.T) {
	h := memoryHost(t)
	id := boundID(t, h)
	for name, init := range map[string]*verbs.SRQInitAttr{
		"create_cq":  {Type: verbs.SRQTypeXRC, Attr: verbs.SRQAttr{MaxWR: 1 << 22, MaxSGE: 1}},
		"create_srq": {Type: verbs.SRQTypeXRC, Attr: verbs.SRQAttr{MaxWR: 1, MaxSGE: 1 << 20}},
	} {
		if err := id.CreateSRQ(nil, init); !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		if id.recvCQ != nil || id.recvChannel != nil || id.srq != nil {
			t.Errorf("%s: something is left", name)
		}
	}
	if err := errors.Join(id.Close(), h.Close()); err != nil {
		t.Error(err)
	}
}

// The CQ of a QP stays when an SRQ goes that has used it too, or that cannot be made.
func TestCQOfAQPBesideAnSRQ(t *testing.T) {
	dev, err := rdmatest.New(rdmatest.Config{RealTime: true}).NewDevice("a", fuzzHere)
	ok := FatalOn(t)
	ok(err)
	h := NewHost(dev)
	id := boundID(t, h)
	xrc := func(sge uint32) *verbs.SRQInitAttr {
		return &verbs.SRQInitAttr{Type: verbs.SRQTypeXRC, Attr: verbs.SRQAttr{MaxWR: 1, MaxSGE: sge}}
	}
	ok(id.CreateQP(nil, &verbs.QPInitAttr{Cap: verbs.QPCap{MaxRecvWR: 1, MaxRecvSGE: 1}}))
	cq, ch := id.RecvCQ(), id.RecvCQChannel()
	ok(id.CreateSRQ(nil, xrc(1)))
	ok(id.DestroySRQ())
	if cq == nil || ch == nil || id.RecvCQ() != cq || id.RecvCQChannel() != ch {
		t.Error("the CQ has gone with the SRQ")
	}
	if err := id.CreateSRQ(nil, xrc(1<<20)); err == nil {
		t.Error("an SRQ was made")
	}
	if id.RecvCQ() != cq || id.RecvCQChannel() != ch {
		t.Error("the CQ has gone with an SRQ that was not made")
	}
	ok(id.DestroyQP())
	if id.RecvCQ() != nil || id.RecvCQChannel() != nil {
		t.Error("the CQ is left after the QP")
	}
	ok(errors.Join(id.Close(), h.Close()))
}

// A QP whose port has left the partition of the ID is not made, for that reason.
func TestQPWithoutPartition(t *testing.T) {
	fab := rdmatest.New(rdmatest.Config{RealTime: true})
	vctx, err := fab.Open("a", fuzzHere)
	ok := FatalOn(t)
	ok(err)
	h := NewHost(vctx.Device())
	id := boundID(t, h)
	ok(fab.SetPKeys(vctx, 1, 0x8003))
	id.pkey = 0xffff
	err = id.CreateQP(nil, &verbs.QPInitAttr{Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
	if !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "P_Key 0xffff") {
		t.Errorf("%v", err)
	}
	ok(errors.Join(id.Close(), h.Close(), vctx.Close()))
}

// Attributes that are not given come without a mask.
func TestMaskOfAttributesThatAreNotGiven(t *testing.T) {
	h := memoryHost(t)
	id, err := h.CreateID(nil, PSTCP, nil)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(when string, attr *verbs.QPAttr) {
		t.Helper()
		if mask, err := id.InitQPAttr(attr); mask != 0 || !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: mask %#x, %v", when, mask, err)
		}
	}
	refused("no device", &verbs.QPAttr{QPState: verbs.QPSInit})
	refused("no attributes", nil)
	_ = id.Close()
	refused("closed", &verbs.QPAttr{QPState: verbs.QPSInit})
	id = boundID(t, h)
	refused("no peer", &verbs.QPAttr{QPState: verbs.QPSRTR})
	id.attrs.DestQPN = 1
	refused("another state", &verbs.QPAttr{QPState: verbs.QPSErr})
	if mask, err := id.InitQPAttr(&verbs.QPAttr{QPState: verbs.QPSRTR}); mask == 0 || err != nil {
		t.Errorf("of the peer's QP 1: %#x, %v", mask, err)
	}
	id.attrs.DestQPN = 0
	if err := errors.Join(id.Close(), h.Close()); err != nil {
		t.Error(err)
	}
}

// An ID without QP that is open says so, and is not closed.
func TestOpenIDWithoutQPIsNotClosed(t *testing.T) {
	h := memoryHost(t)
	id := boundID(t, h)
	for _, closed := range []bool{false, true} {
		err := id.PostSend(1, nil, nil, verbs.SendInline)
		if !errors.Is(err, syscall.EINVAL) || errors.Is(err, ErrClosed) != closed {
			t.Errorf("closed %v: %v", closed, err)
		}
		_ = id.Close()
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// Data that is not sent inline must lie in an MR.
func TestDataWithoutMR(t *testing.T) {
	id := new(ID)
	err := id.PostSend(1, []byte("x"), nil, 0)
	if !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "no MR") {
		t.Errorf("%v", err)
	}
}
