package manual

import (
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// E-08: a CQ of at least 100 entries, resized to at least 2000.
func Example_e08CQ() {
	vctx, done := open()
	defer done()
	cq := must(vctx.CreateCQ(100, nil))
	fmt.Println(cq.Cap() >= 100)
	check(cq.Resize(2000)) // keeps its completions
	fmt.Println(cq.Cap() >= 2000)
	check(cq.Close())
	// Output:
	// true
	// true
}

// E-09: a protection domain.
func Example_e09PD() {
	vctx, done := open()
	defer done()
	pd := must(vctx.AllocPD())
	check(pd.Close()) // EBUSY while it has QPs, MRs and other objects
	fmt.Println("closed")
	// Output: closed
}

// E-10: the attributes of an SRQ.
func Example_e10QuerySRQ() {
	vctx, done := open()
	defer done()
	pd := must(vctx.AllocPD())
	srq := must(pd.CreateSRQ(&verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: 10, MaxSGE: 2}}))
	defer closeAll(srq, pd)
	attr := must(srq.Query())
	fmt.Println(attr.MaxWR >= 10, attr.MaxSGE >= 2, attr.SRQLimit)
	// Output: true true 0
}

// E-11: resize an SRQ, and request an event when fewer than 10 receives are left.
func Example_e11ModifySRQ() {
	vctx, done := open()
	defer done()
	pd := must(vctx.AllocPD())
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

// E-14: register memory. The program's requests name it by its lkey, the peer's requests by its rkey.
func Example_e14MR() {
	vctx, done := open()
	defer done()
	pd := must(vctx.AllocPD())
	defer closeAll(pd)
	buf := make([]byte, 4096)
	mr := must(pd.RegMR(buf, verbs.AccessLocalWrite|verbs.AccessRemoteRead))
	sge := mr.SGE(0, len(buf))
	fmt.Println(sge.LKey == mr.LKey(), sge.Length, len(mr.Bytes()))
	check(mr.Close()) // the device no longer accesses the memory
	// Output: true 4096 4096
}
