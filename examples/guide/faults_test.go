package main

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// A side is a device of a fabric with its objects.
type side struct {
	cq *verbs.CQ
	mr *verbs.MR
	qp *verbs.QP
}

func newSide(t *testing.T, f *rdmatest.Fabric, name string) side {
	ok := func(err error) {
		if t.Helper(); err != nil {
			t.Fatal(err)
		}
	}
	vctx, err := f.Open(name)
	ok(err)
	pd, err := vctx.AllocPD()
	ok(err)
	cq, err := vctx.CreateCQ(16, nil)
	ok(err)
	mr, err := pd.RegMR(make([]byte, 64), verbs.AccessLocalWrite)
	ok(err)
	qp, err := pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq, Cap: sizes})
	ok(err)
	return side{cq, mr, qp}
}

// newPair creates two connected sides.
func newPair(t *testing.T, f *rdmatest.Fabric) (a, b side) {
	a, b = newSide(t, f, "a"), newSide(t, f, "b")
	for _, c := range [][2]side{{a, b}, {b, a}} {
		info, err := c[1].qp.LocalInfo()
		if err == nil {
			err = c[0].qp.Connect(info, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return a, b
}

func TestLossIsRecovered(t *testing.T) {
	f := rdmatest.New(rdmatest.Config{Seed: 7, Faults: rdmatest.Faults{Loss: 0.2}}) // loses one packet of five
	a, b := newPair(t, f)
	for i := range 50 {
		if err := b.qp.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{b.mr.SGE(0, 64)}}); err != nil {
			t.Fatal(err)
		}
		err := a.qp.PostSend(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled,
			SGList: []verbs.SGE{a.mr.SGE(0, 64)}})
		if err != nil {
			t.Fatal(err)
		}
		var wcs [1]verbs.WC
		sent := func() bool { n, _ := a.cq.Poll(wcs[:]); return n == 1 }
		if !f.Run(sent, 10*time.Second) || wcs[0].Err() != nil { // ten seconds of virtual time
			t.Fatalf("message %d: %v", i, wcs[0].Err())
		}
		if n, _ := b.cq.Poll(wcs[:]); n != 1 || wcs[0].Err() != nil { // the receiver completes before the sender
			t.Fatalf("message %d not received: %v", i, wcs[0].Err())
		}
	}
	if f.Stats().Lost == 0 {
		t.Error("no packet was lost")
	}
}

func TestNetworkFailure(t *testing.T) {
	f := rdmatest.New(rdmatest.Config{})
	a, _ := newPair(t, f)
	f.Cut(netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("198.18.0.2")) // the first two devices of every fabric
	if err := a.qp.PostSend(verbs.SendWR{Opcode: verbs.WRSend, SGList: []verbs.SGE{a.mr.SGE(0, 64)}}); err != nil {
		t.Fatal(err)
	}
	var wcs [1]verbs.WC
	failed := func() bool { n, _ := a.cq.Poll(wcs[:]); return n == 1 }
	if !f.Run(failed, time.Minute) || !errors.Is(wcs[0].Err(), verbs.WCRetryExcErr) {
		t.Fatalf("%v after %v", wcs[0].Err(), f.Now())
	}
}
