package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/rsocket"
	"github.com/verbena-rdma/verbena/verbs"
)

// must and check are how these examples treat errors; a program says more.
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

// stage is a device on a network in memory, with a protection domain, memory and a CQ.
func stage() (ctx *verbs.Context, pd *verbs.PD, mr *verbs.MR, cq *verbs.CQ) {
	f := rdmatest.New(rdmatest.Config{RealTime: true})
	ctx = must(f.Open("vrb_a"))
	pd = must(ctx.AllocPD())
	return ctx, pd, must(pd.RegMR(make([]byte, 4096), verbs.AccessLocalWrite)), must(ctx.CreateCQ(64, nil))
}

// one polls for one completion.
func one(cq *verbs.CQ) verbs.WC {
	var wcs [1]verbs.WC
	for must(cq.Poll(wcs[:])) == 0 {
	}
	check(wcs[0].Err())
	return wcs[0]
}

// Sleep instead of polling.
func Example_events() {
	ctx, pd, mr, other := stage()
	c := context.Background()

	ch := must(ctx.CreateCompChannel())
	cq := must(ctx.CreateCQ(16, &verbs.CQOptions{Channel: ch}))

	a := must(pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: other, RecvCQ: other, Cap: sizes}))
	b := must(pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq, Cap: sizes}))
	check(a.Connect(must(b.LocalInfo()), nil))
	check(b.Connect(must(a.LocalInfo()), nil))
	check(b.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{mr.SGE(0, 64)}}))
	check(a.PostSend(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: []byte("wake up")}))

	take := func(wc *verbs.WC) { fmt.Printf("%q\n", mr.Bytes()[:wc.ByteLen]) }
	check(sleep(c, ch, cq, take))
	// Output: "wake up"
}

// sleep waits for completions of a CQ on a channel, and hands out at least one.
func sleep(c context.Context, ch *verbs.CompChannel, cq *verbs.CQ, take func(*verbs.WC)) error {
	var wcs [16]verbs.WC
	for taken := false; ; {
		if err := cq.ReqNotify(false); err != nil { // 1. arm
			return err
		}
		for { // 2. empty the queue: what was in it before arming causes no event
			n, err := cq.Poll(wcs[:])
			if err != nil {
				return err
			}
			if n == 0 {
				break
			}
			for i := range wcs[:n] {
				take(&wcs[i])
			}
			taken = true
		}
		if taken {
			return nil
		}
		ready, err := ch.GetEvent(c) // 3. sleep
		if err != nil {
			return err
		}
		ready.AckEvents(1) // 4. acknowledge, or Close of the CQ waits for ever
	}
}

// Many queue pairs, one queue of receives.
func Example_srq() {
	_, pd, mr, cq := stage()

	srq := must(pd.CreateSRQ(&verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: 100, MaxSGE: 1}}))
	for i := range 4 {
		check(srq.PostRecv(verbs.RecvWR{WRID: uint64(i), SGList: []verbs.SGE{mr.SGE(64*i, 64)}}))
	}
	for i := range 3 {
		served := must(pd.CreateQP(&verbs.QPInitAttr{
			Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq, SRQ: srq,
			Cap: verbs.QPCap{MaxSendWR: 8, MaxSendSGE: 1}, // no receive queue of its own
		}))
		client := must(pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq, Cap: sizes}))
		check(served.Connect(must(client.LocalInfo()), nil))
		check(client.Connect(must(served.LocalInfo()), nil))
		check(client.PostSend(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: fmt.Appendf(nil, "client %d", i)}))

		wc := one(cq) // its QPNum tells who has got it, its WRID where it lies
		fmt.Printf("%v, %q\n", wc.QPNum == served.QPN(), mr.Bytes()[64*wc.WRID:][:wc.ByteLen])
	}
	// Output:
	// true, "client 0"
	// true, "client 1"
	// true, "client 2"
}

// Datagrams: no connection, an address with each message.
func Example_ud() {
	_, pd, mr, cq := stage()

	init := verbs.QPInitAttr{Type: verbs.QPTypeUD, SendCQ: cq, RecvCQ: cq, Cap: sizes}
	a, b := must(pd.CreateQP(&init)), must(pd.CreateQP(&init))
	check(a.Connect(verbs.QPInfo{}, nil)) // nobody to connect to: this only makes it ready
	check(b.Connect(verbs.QPInfo{}, nil))

	to := must(b.LocalInfo())
	way := must(a.AHAttrTo(to, nil))
	ah := must(pd.CreateAH(&way))
	const grh = 40 // a datagram is received with the 40 bytes of its global route header before it
	check(b.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{mr.SGE(0, grh+64)}}))
	check(a.PostSend(verbs.SendWR{
		Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: []byte("to whom it may concern"),
		AH: ah, RemoteQPN: to.QPN, RemoteQKey: to.QKey,
	}))
	wc := one(cq)
	fmt.Printf("%q from QP %v\n", mr.Bytes()[grh:wc.ByteLen], wc.SrcQP == a.QPN())
	// Output: "to whom it may concern" from QP true
}

// XRC: the sender names the receive queue at the other end.
func Example_xrc() {
	ctx, pd, mr, cq := stage()

	domain := must(ctx.OpenXRCD(nil))
	var queues [2]*verbs.SRQ
	for i := range queues {
		queues[i] = must(ctx.CreateSRQEx(&verbs.SRQInitAttrEx{
			Type: verbs.SRQTypeXRC, PD: pd, XRCD: domain, CQ: cq, Attr: verbs.SRQAttr{MaxWR: 4, MaxSGE: 1},
		}))
		check(queues[i].PostRecv(verbs.RecvWR{WRID: uint64(i), SGList: []verbs.SGE{mr.SGE(64*i, 64)}}))
	}
	in := must(domain.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeXRCRecv}))
	out := must(pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeXRCSend, SendCQ: cq, Cap: verbs.QPCap{MaxSendWR: 4, MaxSendSGE: 1, MaxInlineData: 64}}))
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

// The connection manager finds the device, the way and the queue pair.
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

// answer takes one connection and one message.
func answer(ctx context.Context, l *rdmacm.Listener) {
	id := must(l.Request(ctx)) // l.Accept(ctx) would also accept; here a receive is posted before that
	mr := must(id.RegMsgs(make([]byte, 64)))
	check(id.PostRecv(1, mr.Bytes(), mr))
	check(id.Accept(ctx, nil))

	wc := must(id.GetRecvComp(ctx))
	fmt.Printf("%q\n", mr.Bytes()[:wc.ByteLen])
	check(id.Disconnect(ctx))
	check(mr.Close())
	check(id.Close())
}

// A connection as any other of package net.
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
