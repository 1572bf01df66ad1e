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

// E-11: create an SRQ, resize it and arm its limit in one call, and destroy it. The event comes once, when fewer than
// 10 receives are left.
func Example_e11ModifySRQ() {
	vctx, done := open()
	defer done()
	pd := must(vctx.AllocPD())
	srq := must(pd.CreateSRQ(&verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: 1, MaxSGE: 2}}))
	defer closeAll(pd)
	attr := verbs.SRQAttr{MaxWR: 10, MaxSGE: 1, SRQLimit: 10}
	check(srq.Modify(&attr, verbs.SRQAttrMaxWR|verbs.SRQAttrLimit))
	fmt.Println(attr.MaxWR >= 10, attr.SRQLimit)
	check(srq.Close())
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
