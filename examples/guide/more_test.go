package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/netip"
	"os"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/rsocket"
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

var sizes = verbs.QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: 64}

// setup opens a device on a network in memory and creates a protection domain, a memory region and a CQ.
func setup() (vctx *verbs.Context, pd *verbs.PD, mr *verbs.MR, cq *verbs.CQ) {
	f := rdmatest.New(rdmatest.Config{RealTime: true})
	vctx = must(f.Open("vrb_a"))
	pd = must(vctx.AllocPD())
	return vctx, pd, must(pd.RegMR(make([]byte, 4096), verbs.AccessLocalWrite)), must(vctx.CreateCQ(64, nil))
}

// one waits for one completion.
func one(cq *verbs.CQ) verbs.WC {
	var wcs [1]verbs.WC
	must(cq.Wait(context.Background(), wcs[:]))
	check(wcs[0].Err())
	return wcs[0]
}

// Wait for completions without polling.
func Example_events() {
	vctx, pd, mr, other := setup()
	ctx := context.Background()

	cq := must(vctx.CreateCQ(16, nil))

	a := must(pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: other, RecvCQ: other, Cap: sizes}))
	b := must(pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq, Cap: sizes}))
	check(a.Connect(must(b.LocalInfo()), nil))
	check(b.Connect(must(a.LocalInfo()), nil))
	check(b.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{mr.SGE(0, 64)}}))
	check(a.PostSend(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: []byte("wake up")}))

	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for wc, err := range cq.All(ctx) { // sleeps while the CQ is empty
		check(err) // ctx has ended, or the CQ was closed
		check(wc.Err())
		fmt.Printf("%q\n", mr.Bytes()[:wc.ByteLen])
		break // further completions stay in the CQ
	}
	// Output: "wake up"
}

// Several QPs with one shared receive queue.
func Example_srq() {
	_, pd, mr, cq := setup()

	srq := must(pd.CreateSRQ(&verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: 100, MaxSGE: 1}}))
	for i := range 4 {
		check(srq.PostRecv(verbs.RecvWR{WRID: uint64(i), SGList: []verbs.SGE{mr.SGE(64*i, 64)}}))
	}
	for i := range 3 {
		served := must(pd.CreateQP(&verbs.QPInitAttr{
			Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq, SRQ: srq,
			Cap: verbs.QPCap{MaxSendWR: 8, MaxSendSGE: 1}, // receives come from the SRQ
		}))
		client := must(pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq, Cap: sizes}))
		check(served.Connect(must(client.LocalInfo()), nil))
		check(client.Connect(must(served.LocalInfo()), nil))
		check(client.PostSend(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline,
			Inline: fmt.Appendf(nil, "client %d", i)}))

		wc := one(cq) // QPNum is the receiving QP, WRID the receive
		fmt.Printf("%v, %q\n", wc.QPNum == served.QPN(), mr.Bytes()[64*wc.WRID:][:wc.ByteLen])
	}
	// Output:
	// true, "client 0"
	// true, "client 1"
	// true, "client 2"
}

// Datagrams: each request names its destination.
func Example_ud() {
	_, pd, mr, cq := setup()

	init := verbs.QPInitAttr{Type: verbs.QPTypeUD, SendCQ: cq, RecvCQ: cq, Cap: sizes}
	a, b := must(pd.CreateQP(&init)), must(pd.CreateQP(&init))
	check(a.Connect(verbs.QPInfo{}, nil)) // a UD QP has no peer; this moves it to RTS
	check(b.Connect(verbs.QPInfo{}, nil))

	to := must(b.LocalInfo())
	attr := must(a.AHAttrTo(to, nil))
	ah := must(pd.CreateAH(&attr))
	const grh = 40 // a received datagram begins with 40 bytes of global route header
	check(b.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{mr.SGE(0, grh+64)}}))
	check(a.PostSend(verbs.SendWR{
		Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: []byte("a datagram"),
		AH: ah, RemoteQPN: to.QPN, RemoteQKey: to.QKey,
	}))
	wc := one(cq)
	fmt.Printf("%q from a: %v\n", mr.Bytes()[grh:wc.ByteLen], wc.SrcQP == a.QPN())
	// Output: "a datagram" from a: true
}

// XRC: each request names a receive queue of the peer.
func Example_xrc() {
	vctx, pd, mr, cq := setup()

	domain := must(vctx.OpenXRCD(nil))
	var queues [2]*verbs.SRQ
	for i := range queues {
		queues[i] = must(pd.CreateSRQ(&verbs.SRQInitAttr{
			Type: verbs.SRQTypeXRC, XRCD: domain, CQ: cq, Attr: verbs.SRQAttr{MaxWR: 4, MaxSGE: 1},
		}))
		check(queues[i].PostRecv(verbs.RecvWR{WRID: uint64(i), SGList: []verbs.SGE{mr.SGE(64*i, 64)}}))
	}
	in := must(domain.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeXRCRecv}))
	out := must(pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeXRCSend, SendCQ: cq,
		Cap: verbs.QPCap{MaxSendWR: 4, MaxSendSGE: 1, MaxInlineData: 64}}))
	check(in.Connect(must(out.LocalInfo()), nil))
	check(out.Connect(must(in.LocalInfo()), nil))

	for i := range queues {
		check(out.PostSend(verbs.SendWR{
			Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: fmt.Appendf(nil, "to queue %d", i),
			RemoteSRQN: must(queues[i].Num()),
		}))
		wc := one(cq)
		fmt.Printf("%q\n", mr.Bytes()[64*wc.WRID:][:wc.ByteLen])
	}
	// Output:
	// "to queue 0"
	// "to queue 1"
}

// The connection manager finds the device and the route, and connects the queue pairs.
func Example_rdmacm() {
	ctx := context.Background()
	l := must(rdmacm.Listen(ctx, addr+":7471", nil))
	done := make(chan struct{})
	go func() {
		defer close(done)
		answer(ctx, l)
	}()

	id := must(rdmacm.Dial(ctx, addr+":7471", nil))
	check(id.PostSend(1, []byte("hello"), nil, verbs.SendInline|verbs.SendSignaled))
	wc := must(id.GetSendComp(ctx))
	check(wc.Err())
	check(id.Disconnect(ctx))
	check(id.Close())

	<-done
	check(l.Close())
	// Output: "hello"
}

// answer accepts one connection and receives one message.
func answer(ctx context.Context, l *rdmacm.Listener) {
	id := must(l.Request(ctx)) // not l.Accept, so that a receive can be posted before accepting
	mr := must(id.RegMsgs(make([]byte, 64)))
	check(id.PostRecv(1, mr.Bytes(), mr))
	check(id.Accept(ctx, nil))

	wc := must(id.GetRecvComp(ctx))
	fmt.Printf("%q\n", mr.Bytes()[:wc.ByteLen])
	check(id.Disconnect(ctx))
	check(mr.Close())
	check(id.Close())
}

// A server whose connections share one CQ.
func Example_sharedCQ() {
	ctx := context.Background()
	lid := must(rdmacm.CreateID(nil, rdmacm.PSTCP, nil))
	check(lid.BindAddr(netip.MustParseAddrPort(addr + ":7472")))
	check(lid.Listen(16))
	cq := must(lid.Verbs().CreateCQ(64, nil))
	pd := must(lid.Verbs().AllocPD())
	mr := must(pd.RegMR(make([]byte, 2*64), verbs.AccessLocalWrite))

	for range 2 {
		go greet(ctx)
	}
	ids := map[uint32]*rdmacm.ID{}
	for i := range 2 {
		id := must(lid.GetRequest(ctx))
		check(id.CreateQP(pd, &verbs.QPInitAttr{SendCQ: cq, RecvCQ: cq, Cap: sizes}))
		check(id.PostRecv(uint64(i), mr.Bytes()[64*i:64*i+64], mr))
		check(id.Accept(ctx, nil))
		ids[id.QP().QPN()] = id // WC.QPNum finds it
	}
	for wc, err := range cq.All(ctx) {
		check(err)
		check(wc.Err())
		fmt.Printf("%q\n", mr.Bytes()[64*wc.WRID:][:wc.ByteLen])
		id := ids[wc.QPNum]
		check(must(id.Channel().GetEvent(ctx)).Ack()) // EventDisconnected
		check(id.Disconnect(ctx))
		check(id.DestroyQP())
		check(id.Close())
		if delete(ids, wc.QPNum); len(ids) == 0 {
			break
		}
	}
	check(lid.Close())
	// Output:
	// "hello"
	// "hello"
}

// greet connects and sends one message.
func greet(ctx context.Context) {
	id := must(rdmacm.Dial(ctx, addr+":7472", nil))
	check(id.PostSend(1, []byte("hello"), nil, verbs.SendInline|verbs.SendSignaled))
	wc := must(id.GetSendComp(ctx))
	check(wc.Err())
	check(id.Disconnect(ctx))
	check(id.Close())
}

// A net.Conn over RDMA.
func Example_rsocket() {
	l := must(rsocket.Listen("tcp", addr+":0"))
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // the listener is closed
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()

	c := must(rsocket.Dial("tcp", l.Addr().String())) // a net.Conn
	fmt.Fprintln(c, "there and back")
	_, err := io.CopyN(os.Stdout, c, 15)
	check(err)
	check(c.Close())
	check(l.Close())
	// Output: there and back
}
