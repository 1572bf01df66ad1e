package manual

import (
	"log"
	"net/netip"

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

// open opens the only device, vrb_a, of a network in memory, with these addresses, or else 198.18.0.1. A program calls
// verbs.Open("") instead.
func open(addrs ...netip.Addr) (*verbs.Context, func()) {
	f := rdmatest.New(rdmatest.Config{RealTime: true})
	vctx := must(f.Open("vrb_a", addrs...))
	return vctx, func() {
		check(vctx.Close())
		check(f.Close())
	}
}

// sizes are the queue sizes of most examples.
var sizes = verbs.QPCap{MaxSendWR: 2, MaxRecvWR: 2, MaxSendSGE: 1, MaxRecvSGE: 1}

// connect connects two QPs with each other.
func connect(a, b *verbs.QP) {
	check(a.Connect(must(b.LocalInfo()), nil))
	check(b.Connect(must(a.LocalInfo()), nil))
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
