package manual

import (
	"log"

	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// must is how examples treat errors; a program says more.
func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// open makes a network in memory with one device, called vrb_a, and opens it. A program says verbs.Open("") instead.
func open() (*verbs.Context, func()) {
	f := rdmatest.New(rdmatest.Config{RealTime: true})
	ctx := must(f.Open("vrb_a"))
	return ctx, func() {
		check(ctx.Close())
		check(f.Close())
	}
}

// sizes is what most examples want of a QP.
var sizes = verbs.QPCap{MaxSendWR: 2, MaxRecvWR: 2, MaxSendSGE: 1, MaxRecvSGE: 1}

// pair makes two RC QPs on one CQ and connects them with each other.
func pair(pd *verbs.PD, cq *verbs.CQ) (a, b *verbs.QP) {
	init := verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq, Cap: sizes}
	a, b = must(pd.CreateQP(&init)), must(pd.CreateQP(&init))
	check(a.Connect(must(b.LocalInfo()), nil))
	check(b.Connect(must(a.LocalInfo()), nil))
	return a, b
}

// poll waits for n completions by asking again and again.
func poll(cq *verbs.CQ, n int) (all []verbs.WC) {
	wcs := make([]verbs.WC, 16)
	for len(all) < n {
		for _, wc := range wcs[:must(cq.Poll(wcs))] {
			check(wc.Err())
			all = append(all, wc)
		}
	}
	return all
}
