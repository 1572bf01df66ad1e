package rdmacm_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/netip"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// hosts are two machines on a network in memory. A program has the default host, and imports provider/soft.
func hosts() (client, server *rdmacm.Host) {
	f := rdmatest.New(rdmatest.Config{RealTime: true})
	a, err := f.NewDevice("a") // 198.18.0.1
	check(err)
	b, err := f.NewDevice("b") // 198.18.0.2
	check(err)
	return rdmacm.NewHost(a), rdmacm.NewHost(b)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// The short form: Listen and Dial return IDs with connected queue pairs.
func Example() {
	ctx := context.Background()
	client, server := hosts()
	l, err := rdmacm.Listen(ctx, "198.18.0.2:7471", &rdmacm.Options{Host: server})
	check(err)
	done := make(chan struct{})
	go func() { // the server
		defer close(done)
		id, err := l.Request(ctx) // Accept would do both steps; here the receive is posted before the client may send
		check(err)
		mr, err := id.RegMsgs(make([]byte, 64))
		check(err)
		check(id.PostRecv(1, mr.Bytes(), mr))
		check(id.Accept(ctx, nil))
		wc, err := id.GetRecvComp(ctx)
		check(err)
		fmt.Printf("%v: %q\n", wc.Status, mr.Bytes()[:wc.ByteLen])
		check(mr.Close())
		check(id.Disconnect(ctx))
		check(id.Close())
	}()
	id, err := rdmacm.Dial(ctx, "198.18.0.2:7471", &rdmacm.Options{Host: client})
	check(err)
	check(id.PostSend(1, []byte("hello"), nil, verbs.SendInline|verbs.SendSignaled))
	wc, err := id.GetSendComp(ctx)
	check(err)
	check(wc.Err())
	check(id.Disconnect(ctx)) // returns when the server has disconnected as well
	check(id.Close())
	<-done
	check(l.Close())
	// Output: success: "hello"
}

// Every step, on synchronous IDs, those of rdma_create_id with a NULL channel. A refusal is an error, and the event
// has the peer's private data.
func Example_synchronous() {
	ctx := context.Background()
	client, server := hosts()
	l, err := server.CreateID(nil, rdmacm.PSTCP, nil)
	check(err)
	check(l.BindAddr(netip.MustParseAddrPort("198.18.0.2:7471")))
	check(l.Listen(0))
	go func() {
		id, err := l.GetRequest(ctx)
		check(err)
		name := id.Event().Conn.PrivateData // 56 bytes, the rest is zero
		check(id.Reject(append([]byte("not you, "), name[:4]...)))
		check(id.Close())
	}()
	id, err := client.CreateID(nil, rdmacm.PSTCP, nil)
	check(err)
	check(id.ResolveAddr(ctx, netip.AddrPort{}, netip.MustParseAddrPort("198.18.0.2:7471"), 2*time.Second))
	check(id.CreateQP(nil, &verbs.QPInitAttr{Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}))
	check(id.ResolveRoute(ctx, 2*time.Second))
	err = id.Connect(ctx, &rdmacm.ConnParam{PrivateData: []byte("Jane"), RetryCount: 7, RNRRetryCount: 7})
	fmt.Println(errors.Is(err, syscall.ECONNREFUSED), id.Event().Status, string(id.Event().Conn.PrivateData[:13]))
	check(id.DestroyQP())
	check(id.Close())
	check(l.Close())
	// Output: true 28 not you, Jane
}

// Events of many IDs on one channel: a server that accepts every client and disconnects when the client does.
func Example_events() {
	ctx := context.Background()
	client, server := hosts()
	ch, err := server.CreateEventChannel()
	check(err)
	l, err := server.CreateID(ch, rdmacm.PSTCP, nil)
	check(err)
	check(l.BindAddr(netip.MustParseAddrPort("198.18.0.2:7471")))
	check(l.Listen(0))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ev := range ch.Events(ctx) { // acknowledges each one behind the body
			fmt.Println(ev.Type)
			switch id := ev.ID; ev.Type {
			case rdmacm.EventConnectRequest: // id is new
				check(id.CreateQP(nil, &verbs.QPInitAttr{Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1,
					MaxRecvSGE: 1}}))
				check(id.Accept(ctx, nil))
			case rdmacm.EventDisconnected:
				check(id.Disconnect(ctx)) // tells the client that we agree
				check(id.DestroyQP())
				check(ev.Ack()) // Close waits for it
				check(id.Close())
				return
			}
		}
	}()
	id, err := rdmacm.Dial(ctx, "198.18.0.2:7471", &rdmacm.Options{Host: client})
	check(err)
	check(id.Disconnect(ctx))
	check(id.Close())
	<-done
	check(l.Close())
	check(ch.Close())
	// Output:
	// RDMA_CM_EVENT_CONNECT_REQUEST
	// RDMA_CM_EVENT_ESTABLISHED
	// RDMA_CM_EVENT_DISCONNECTED
}
