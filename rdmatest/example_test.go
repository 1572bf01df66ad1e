package rdmatest_test

import (
	"fmt"
	"log"
	"time"

	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// One packet of a SEND is lost. The requester retransmits it, and the message arrives.
func Example() {
	lost := false
	f := rdmatest.New(rdmatest.Config{Faults: rdmatest.Faults{
		Script: func(p rdmatest.Packet) (rdmatest.Verdict, bool) {
			drop := !lost
			lost = true
			return rdmatest.Verdict{Drop: drop}, drop
		},
	}})
	a, b := newSide(f, "a"), newSide(f, "b")
	if err := a.qp.Connect(must(b.qp.LocalInfo()), nil); err != nil {
		log.Fatal(err)
	}
	if err := b.qp.Connect(must(a.qp.LocalInfo()), nil); err != nil {
		log.Fatal(err)
	}
	if err := b.qp.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{b.mr.SGE(0, 64)}}); err != nil {
		log.Fatal(err)
	}
	copy(a.buf, "hello")
	if err := a.qp.PostSend(verbs.SendWR{Opcode: verbs.WRSend, SGList: []verbs.SGE{a.mr.SGE(0, 5)}}); err != nil {
		log.Fatal(err)
	}
	var wc [1]verbs.WC
	arrived := f.Run(func() bool {
		n, err := b.cq.Poll(wc[:])
		return err == nil && n == 1
	}, time.Second)
	fmt.Println(arrived, wc[0].Status, string(b.buf[:wc[0].ByteLen]), f.Now() > 60*time.Millisecond)
	// Output: true success hello true
}

type side struct {
	qp  *verbs.QP
	cq  *verbs.CQ
	mr  *verbs.MR
	buf []byte
}

func newSide(f *rdmatest.Fabric, name string) *side {
	s := &side{buf: make([]byte, 64)}
	vctx := must(f.Open(name))
	pd := must(vctx.AllocPD())
	s.cq = must(vctx.CreateCQ(16, nil))
	s.mr = must(pd.RegMR(s.buf, verbs.AccessLocalWrite))
	s.qp = must(pd.CreateQP(&verbs.QPInitAttr{
		Type: verbs.QPTypeRC, SendCQ: s.cq, RecvCQ: s.cq,
		Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1},
	}))
	return s
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
