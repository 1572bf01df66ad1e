package verbs_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/verbena-rdma/verbena/verbs"
)

// Connect a reliable QP, send a message, and wait for its completion by polling. exchange stands for any way of
// swapping a line of text with the peer.
func ExampleQP_Connect() {
	exchange := func(mine verbs.QPInfo) (theirs verbs.QPInfo) { return mine }

	ctx, err := verbs.Open("")
	if err != nil {
		log.Fatal(err)
	}
	pd, err := ctx.AllocPD()
	if err != nil {
		log.Fatal(err)
	}
	mr, err := pd.RegMR([]byte("hello"), verbs.AccessLocalWrite)
	if err != nil {
		log.Fatal(err)
	}
	cq, err := ctx.CreateCQ(16, nil)
	if err != nil {
		log.Fatal(err)
	}
	qp, err := pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq,
		Cap: verbs.QPCap{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1}})
	if err != nil {
		log.Fatal(err)
	}
	local, err := qp.LocalInfo()
	if err != nil {
		log.Fatal(err)
	}
	if err := qp.Connect(exchange(local), nil); err != nil {
		log.Fatal(err)
	}

	err = qp.PostSend(verbs.SendWR{WRID: 1, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: []verbs.SGE{mr.SGE(0, 5)}})
	if err != nil {
		log.Fatal(err)
	}
	for {
		var wcs [4]verbs.WC
		n, err := cq.Poll(wcs[:])
		if err != nil {
			log.Fatal(err)
		}
		for _, wc := range wcs[:n] {
			fmt.Println(wc.WRID, wc.Opcode, wc.Err())
			return
		}
	}
}

// The exact way from RESET to RTS, as with ibv_modify_qp. A mask that does not fit the transition is refused with the
// names of the attributes that are missing or superfluous.
func ExampleQP_Modify() {
	var qp *verbs.QP
	var remoteQPN, remotePSN, localPSN uint32
	var path verbs.AHAttr // with IsGlobal, GRH and PortNum

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
		if err := qp.Modify(&s.attr, s.mask); err != nil {
			log.Fatal(err)
		}
	}
}

// Sleep until a completion comes. The order misses none: arm, then poll until empty, then wait.
func ExampleCompChannel_GetEvent() {
	var ch *verbs.CompChannel
	var cq *verbs.CQ // made with CQOptions{Channel: ch}

	if err := cq.ReqNotify(false); err != nil {
		log.Fatal(err)
	}
	for {
		got, err := ch.GetEvent(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		got.AckEvents(1)
		if err := got.ReqNotify(false); err != nil {
			log.Fatal(err)
		}
		var wcs [16]verbs.WC
		for {
			n, err := got.Poll(wcs[:])
			if err != nil {
				log.Fatal(err)
			}
			if n == 0 {
				break
			}
			for i := range wcs[:n] {
				fmt.Println(wcs[i].WRID, wcs[i].Status)
			}
		}
	}
}

// Print asynchronous events until the context is closed.
func ExampleContext_GetAsyncEvent() {
	var ctx *verbs.Context

	for {
		ev, err := ctx.GetAsyncEvent(context.Background())
		if errors.Is(err, verbs.ErrClosed) {
			return
		}
		if err != nil {
			log.Fatal(err)
		}
		switch {
		case ev.QP != nil:
			fmt.Printf("QP 0x%06x: %v\n", ev.QP.QPN(), ev.Type)
		case ev.Port != 0:
			fmt.Printf("port %d: %v\n", ev.Port, ev.Type)
		default:
			fmt.Println(ev.Type)
		}
		ev.Ack()
	}
}

// A failed request tells its story; the status itself can be asked for.
func ExampleWC_Err() {
	wc := verbs.WC{Status: verbs.WCRNRRetryExcErr, QPNum: 0x11}
	err := wc.Err()
	fmt.Println(errors.Is(err, verbs.WCRNRRetryExcErr))
	fmt.Println(err)
	// Output:
	// true
	// work completion RNR_RETRY_EXC_ERR (RNR retry counter exceeded) of QP 0x000011; the peer posts its receives too late; RNRRetry 7 waits for ever
}
