package manual

import (
	"log"

	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// must and check end the example at an error. A program would handle it.
func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// open opens the only device, vrb_a, of a network in memory. A program calls verbs.Open("") instead.
func open() (*verbs.Context, func()) {
	f := rdmatest.New(rdmatest.Config{RealTime: true})
	vctx := must(f.Open("vrb_a"))
	return vctx, func() {
		check(vctx.Close())
		check(f.Close())
	}
}

// sizes are the queue sizes of most examples.
var sizes = verbs.QPCap{MaxSendWR: 2, MaxRecvWR: 2, MaxSendSGE: 1, MaxRecvSGE: 1}

// pair creates two RC QPs on one CQ and connects them with each other.
func pair(pd *verbs.PD, cq *verbs.CQ) (a, b *verbs.QP) {
	init := verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq, Cap: sizes}
	a, b = must(pd.CreateQP(&init)), must(pd.CreateQP(&init))
	check(a.Connect(must(b.LocalInfo()), nil))
	check(b.Connect(must(a.LocalInfo()), nil))
	return a, b
}

// poll polls a CQ until it has returned n completions.
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
