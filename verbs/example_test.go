package verbs_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/netip"
	"strings"
	"syscall"

	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// open opens a device of a network in memory. A program imports provider/soft and calls verbs.Open("") instead.
func open() *verbs.Context {
	return must(rdmatest.New(rdmatest.Config{RealTime: true}).Open("vrb_a"))
}

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

// newQP creates an RC QP.
func newQP(pd *verbs.PD, cq *verbs.CQ) *verbs.QP {
	return must(pd.CreateQP(&verbs.QPInitAttr{
		Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq,
		Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: 64},
	}))
}

// one waits for one completion.
func one(cq *verbs.CQ) verbs.WC {
	var wcs [1]verbs.WC
	must(cq.Wait(context.Background(), wcs[:]))
	return wcs[0]
}

// Open a device, send a message from one QP to another, and close everything. Two programs would exchange their
// LocalInfo.
func Example() {
	vctx := open()
	pd := must(vctx.AllocPD())
	cq := must(vctx.CreateCQ(16, nil))
	mr := must(pd.RegMR(make([]byte, 64), verbs.AccessLocalWrite))
	a, b := newQP(pd, cq), newQP(pd, cq)
	check(a.Connect(must(b.LocalInfo()), nil))
	check(b.Connect(must(a.LocalInfo()), nil))

	check(b.PostRecv(verbs.RecvWR{WRID: 1, SGList: []verbs.SGE{mr.SGE(0, 32)}}))
	n := copy(mr.Bytes()[32:], "hello")
	check(a.PostSend(verbs.SendWR{WRID: 2, Opcode: verbs.WRSend, SGList: []verbs.SGE{mr.SGE(32, n)}}))
	wc := one(cq) // the receive's; the send was not signaled
	check(wc.Err())
	fmt.Printf("%v of request %d: %q\n", wc.Opcode, wc.WRID, mr.Bytes()[:wc.ByteLen])

	// users before what they use
	check(errors.Join(a.Close(), b.Close(), cq.Close(), mr.Close(), pd.Close(), vctx.Close()))
	// Output: RECV of request 1: "hello"
}

// Two programs exchange LocalInfo as lines of text, by any means, and connect.
func ExampleQP_Connect() {
	vctx := open()
	pd, cq := must(vctx.AllocPD()), must(vctx.CreateCQ(16, nil))
	a, b := newQP(pd, cq), newQP(pd, cq)

	line := must(b.LocalInfo()).String() // send this to the other program
	info := must(verbs.ParseQPInfo(line))
	check(a.Connect(info, &verbs.ConnectOptions{Timeout: 16})) // other options keep their defaults
	fmt.Println(a.State(), info.GID)
	// Output: RTS ::ffff:198.18.0.1
}

// The exact way from RESET to RTS, as with ibv_modify_qp. A mask that does not fit the transition is refused with the
// names of the attributes that are missing or superfluous.
func ExampleQP_Modify() {
	vctx := open()
	qp := newQP(must(vctx.AllocPD()), must(vctx.CreateCQ(16, nil)))
	remoteQPN, remotePSN, localPSN := qp.QPN(), uint32(0), uint32(0) // the QP connects to itself
	path := verbs.AHAttr{PortNum: 1, IsGlobal: true, GRH: verbs.GlobalRoute{DGID: must(vctx.QueryGID(1, 1)),
		SGIDIndex: 1, HopLimit: 64}}

	steps := []struct {
		attr verbs.QPAttr
		mask verbs.QPAttrMask
	}{
		{
			verbs.QPAttr{QPState: verbs.QPSInit, PortNum: 1, QPAccessFlags: verbs.AccessRemoteWrite},
			verbs.QPAttrState | verbs.QPAttrPKeyIndex | verbs.QPAttrPort | verbs.QPAttrAccessFlags,
		}, {
			verbs.QPAttr{QPState: verbs.QPSRTR, PathMTU: verbs.MTU1024, DestQPNum: remoteQPN, RQPSN: remotePSN, AHAttr: path,
				MaxDestRdAtomic: 1, MinRNRTimer: 12},
			verbs.QPAttrState | verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN |
				verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer,
		}, {
			verbs.QPAttr{QPState: verbs.QPSRTS, SQPSN: localPSN, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxRdAtomic: 1},
			verbs.QPAttrState | verbs.QPAttrSQPSN | verbs.QPAttrTimeout | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry |
				verbs.QPAttrMaxQPRdAtomic,
		},
	}
	for _, s := range steps {
		check(qp.Modify(&s.attr, s.mask))
		fmt.Println(qp.State())
	}
	// Output:
	// INIT
	// RTR
	// RTS
}

// Wait for completions with a completion channel. Arm, then poll until the CQ is empty, then wait: this order misses
// none.
func ExampleCompChannel_GetEvent() {
	vctx := open()
	pd := must(vctx.AllocPD())
	ch := must(vctx.CreateCompChannel())
	cq := must(vctx.CreateCQ(16, &verbs.CQOptions{Channel: ch}))
	mr := must(pd.RegMR(make([]byte, 64), verbs.AccessLocalWrite))
	a, b := newQP(pd, cq), newQP(pd, cq)
	check(a.Connect(must(b.LocalInfo()), nil))
	check(b.Connect(must(a.LocalInfo()), nil))

	check(cq.ReqNotify(false))
	check(b.PostRecv(verbs.RecvWR{WRID: 7, SGList: []verbs.SGE{mr.SGE(0, 64)}}))
	check(a.PostSend(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: []byte("wake up")}))
	for received := false; !received; {
		got := must(ch.GetEvent(context.Background()))
		got.AckEvents(1)
		check(got.ReqNotify(false))
		var wcs [16]verbs.WC
		for n := -1; n != 0; {
			n = must(got.Poll(wcs[:]))
			for i := range wcs[:n] {
				fmt.Println(wcs[i].WRID, wcs[i].Status)
				received = true
			}
		}
	}
	// Output: 7 success
}

// Wait for an asynchronous event. Acknowledge each event: Close of its object waits for that.
func ExampleContext_GetAsyncEvent() {
	vctx := open()
	pd, cq := must(vctx.AllocPD()), must(vctx.CreateCQ(16, nil))
	srq := must(pd.CreateSRQ(&verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: 4, MaxSGE: 1}}))
	mr := must(pd.RegMR(make([]byte, 64), verbs.AccessLocalWrite))
	a := newQP(pd, cq)
	b := must(pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq, SRQ: srq}))
	check(a.Connect(must(b.LocalInfo()), nil))
	check(b.Connect(must(a.LocalInfo()), nil))
	check(srq.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{mr.SGE(0, 64)}}))
	check(srq.Modify(&verbs.SRQAttr{SRQLimit: 1}, verbs.SRQAttrLimit)) // event when no receive is left
	check(a.PostSend(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: []byte("the last one")}))

	ev := must(vctx.GetAsyncEvent(context.Background()))
	fmt.Println(ev.Type, ev.SRQ == srq)
	ev.Ack()
	// Output: SRQ limit reached true
}

// The access flags of a region limit the operations on it. Here the peer may read the memory but not write it.
func ExamplePD_RegMR() {
	vctx := open()
	pd, cq := must(vctx.AllocPD()), must(vctx.CreateCQ(16, nil))
	shown := must(pd.RegMR([]byte("look, do not touch"), verbs.AccessRemoteRead))
	ours := must(pd.RegMR(make([]byte, 64), verbs.AccessLocalWrite))
	a, b := newQP(pd, cq), newQP(pd, cq)
	check(a.Connect(must(b.LocalInfo()), nil))
	check(b.Connect(must(a.LocalInfo()), nil))

	for _, op := range []verbs.WROpcode{verbs.WRRDMARead, verbs.WRRDMAWrite} {
		check(a.PostSend(verbs.SendWR{
			Opcode: op, Flags: verbs.SendSignaled, SGList: []verbs.SGE{ours.SGE(0, 18)},
			RemoteAddr: shown.Addr(), RKey: shown.RKey(),
		}))
		wc := one(cq)
		fmt.Printf("%v, %q\n", wc.Status, ours.Bytes()[:18])
	}
	// Output:
	// success, "look, do not touch"
	// remote access error, "look, do not touch"
}

// SelectGID chooses the local GID for a peer; programs in C ask their user for its index.
func ExampleContext_SelectGID() {
	choice, err := open().SelectGID(1, netip.MustParseAddr("198.18.0.2"))
	check(err)
	fmt.Println(choice.Index, choice.GID)
	// Output: 1 ::ffff:198.18.0.1
}

// The error of a failed request has details and matches its status with errors.Is.
func ExampleWC_Err() {
	wc := verbs.WC{Status: verbs.WCRNRRetryExcErr, QPNum: 0x11}
	err := wc.Err()
	fmt.Println(errors.Is(err, verbs.WCRNRRetryExcErr))
	text, hint, _ := strings.Cut(err.Error(), "; ")
	fmt.Println(text)
	fmt.Println(hint)
	// Output:
	// true
	// work completion RNR_RETRY_EXC_ERR (RNR retry counter exceeded) of QP 0x000011
	// the peer posts its receives too late; RNRRetry 7 waits for ever
}

// A call fails with an errno, a request with a status. WCError has the details; that of a flushed request also has the
// error of the request that failed first.
func ExampleWCError() {
	vctx := open()
	cq := must(vctx.CreateCQ(16, nil))
	qp := newQP(must(vctx.AllocPD()), cq)
	err := qp.Modify(&verbs.QPAttr{QPState: verbs.QPSRTS}, verbs.QPAttrState)
	if errors.Is(err, syscall.EINVAL) { // a call: an errno and a text with the allowed values
		text, _, _ := strings.Cut(err.Error(), " [") // without the number of the QP
		fmt.Println(text)
	}

	info := must(qp.LocalInfo())
	info.QPN++ // no QP has this number
	check(qp.Connect(info, &verbs.ConnectOptions{Timeout: 1, RetryCnt: 1}))
	check(qp.PostSend(
		verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: []byte("first")},
		verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: []byte("second")},
	))
	for range 2 {
		wc := one(cq)
		var e *verbs.WCError
		switch err := wc.Err(); {
		// test this status first: a flushed request also matches the first failure
		case errors.Is(err, verbs.WCWRFlushErr) && errors.As(err, &e):
			fmt.Println(e.Status.Name(), "because of", e.First.Status.Name())
		case errors.Is(err, verbs.WCRetryExcErr) && errors.As(err, &e): // a completion: a status and its details
			fmt.Println(e.Status.Name(), e.Peer, e.Retries, e.Elapsed > 0, e.Heard)
			fmt.Println(e.Hint())
		}
	}
	// Output:
	// modify_qp: RESET->RTS is not possible (EINVAL); from RESET a QP of type RC goes to RESET, INIT, ERR
	// RETRY_EXC_ERR 198.18.0.1 1 true false
	// is the peer up, its QP in RTR with our QPN and GID, and UDP port 4791 open between the two?
	// WR_FLUSH_ERR because of RETRY_EXC_ERR
}
