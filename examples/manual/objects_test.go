package manual

import (
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// E-08: a CQ of at least 100 entries, which is then made larger.
func Example_e08CQ() {
	ctx, done := open()
	defer done()
	cq := must(ctx.CreateCQ(100, nil))
	fmt.Println(cq.Cap() >= 100)
	check(cq.Resize(2000)) // what is in it stays in it
	fmt.Println(cq.Cap() >= 2000)
	check(cq.Close())
	// Output:
	// true
	// true
}

// E-09: a protection domain.
func Example_e09PD() {
	ctx, done := open()
	defer done()
	pd := must(ctx.AllocPD())
	check(pd.Close()) // EBUSY while it has QPs, MRs, ...
	fmt.Println("gone")
	// Output: gone
}

// E-10: what an SRQ has.
func Example_e10QuerySRQ() {
	ctx, done := open()
	defer done()
	pd := must(ctx.AllocPD())
	srq := must(pd.CreateSRQ(&verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: 10, MaxSGE: 2}}))
	defer closeAll(srq, pd)
	attr := must(srq.Query())
	fmt.Println(attr.MaxWR >= 10, attr.MaxSGE >= 2, attr.SRQLimit)
	// Output: true true 0
}

// E-11: an SRQ that grows, and tells when fewer than 10 receives are left.
func Example_e11ModifySRQ() {
	ctx, done := open()
	defer done()
	pd := must(ctx.AllocPD())
	srq := must(pd.CreateSRQ(&verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: 10, MaxSGE: 1}}))
	defer closeAll(srq, pd)
	mr := must(pd.RegMR(make([]byte, 64), verbs.AccessLocalWrite))
	defer closeAll(mr)

	check(srq.Modify(&verbs.SRQAttr{MaxWR: 100, MaxSGE: 1}, verbs.SRQAttrMaxWR))
	for range 20 {
		check(srq.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{mr.SGE(0, 64)}}))
	}
	check(srq.Modify(&verbs.SRQAttr{SRQLimit: 10}, verbs.SRQAttrLimit)) // EventSRQLimitReached, once
	attr := must(srq.Query())
	fmt.Println(attr.MaxWR >= 100, attr.SRQLimit)
	// Output: true 10
}

// E-14: register memory, and what the keys are for: the lkey in our own requests, the rkey in the peer's.
func Example_e14MR() {
	ctx, done := open()
	defer done()
	pd := must(ctx.AllocPD())
	defer closeAll(pd)
	buf := make([]byte, 4096)
	mr := must(pd.RegMR(buf, verbs.AccessLocalWrite|verbs.AccessRemoteRead))
	sge := mr.SGE(0, len(buf))
	fmt.Println(sge.LKey == mr.LKey(), sge.Length, len(mr.Bytes()))
	check(mr.Close()) // the memory is ours alone again
	// Output: true 4096 4096
}
