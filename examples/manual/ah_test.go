package manual

import (
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// E-15: answer a datagram. The sender's address is in the completion and in the 40 bytes before the data. InitAHFromWC
// returns the attributes, CreateAHFromWC the address handle.
func Example_e15AHFromWC() {
	vctx, done := open()
	defer done()
	pd := must(vctx.AllocPD())
	cq := must(vctx.CreateCQ(16, nil))
	mr := must(pd.RegMR(make([]byte, 256), verbs.AccessLocalWrite))
	init := verbs.QPInitAttr{Type: verbs.QPTypeUD, SendCQ: cq, RecvCQ: cq, Cap: sizes}
	a, b := must(pd.CreateQP(&init)), must(pd.CreateQP(&init))
	defer closeAll(a, b, mr, cq, pd)
	check(a.Connect(verbs.QPInfo{}, nil)) // to RTS
	check(b.Connect(verbs.QPInfo{}, nil))

	to := must(pd.CreateAH(&verbs.AHAttr{
		PortNum: 1, IsGlobal: true, GRH: verbs.GlobalRoute{DGID: must(vctx.QueryGID(1, 1)), SGIDIndex: 1},
	}))
	check(b.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{mr.SGE(0, 128)}}))
	check(a.PostSend(verbs.SendWR{
		Opcode: verbs.WRSend, SGList: []verbs.SGE{mr.SGE(128, 4)},
		AH: to, RemoteQPN: b.QPN(), RemoteQKey: verbs.DefaultQKey,
	}))
	wc := poll(cq, 1)[0]

	attr := must(vctx.InitAHFromWC(1, &wc, mr.Bytes()[:40]))
	ah := must(pd.CreateAH(&attr))
	same := must(pd.CreateAHFromWC(1, &wc, mr.Bytes()[:40]))
	fmt.Println(attr.GRH.DGID, wc.SrcQP == a.QPN())
	closeAll(to, ah, same)
	// Output: ::ffff:198.18.0.1 true
}

// E-16: an address handle. The manual's sample has a DLID, an address of InfiniBand, and no GRH. RoCE has no LIDs: the
// port refuses a handle without a GRH (EINVAL), and the sample goes on with a GID.
func Example_e16AH() {
	vctx, done := open()
	defer done()
	pd := must(vctx.AllocPD())
	defer closeAll(pd)
	const dlid, sl = 0x10, 2
	_, err := pd.CreateAH(&verbs.AHAttr{IsGlobal: false, DLID: dlid, SL: sl, SrcPathBits: 0, PortNum: 1})
	fmt.Println("with a DLID: EINVAL is", errors.Is(err, verbs.EINVAL))
	gid := must(verbs.ParseGID("::ffff:198.18.0.2"))
	ah := must(pd.CreateAH(&verbs.AHAttr{
		IsGlobal: true, SL: sl, PortNum: 1, GRH: verbs.GlobalRoute{DGID: gid, SGIDIndex: 1, HopLimit: 64},
	}))
	fmt.Println("to", gid)
	check(ah.Close())
	// Output:
	// with a DLID: EINVAL is true
	// to ::ffff:198.18.0.2
}
