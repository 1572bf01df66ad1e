package umad_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/umad"
	"github.com/verbena-rdma/verbena/verbs"
)

var addrs = [2]netip.Addr{netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("198.18.0.2")}

// bubble runs a test with the ports of two devices in virtual time.
func bubble(t *testing.T, faults rdmatest.Faults, f func(t *testing.T, fab *rdmatest.Fabric, a, b *umad.Port)) {
	synctest.Test(t, func(t *testing.T) {
		fab := rdmatest.New(rdmatest.Config{RealTime: true, Faults: faults, Seed: 1})
		var ports [2]*umad.Port
		for i := range ports {
			dev := must(fab.NewDevice(fmt.Sprintf("d%d", i), addrs[i]))(t)
			ports[i] = must(umad.Open(dev))(t)
		}
		defer func() {
			for _, p := range ports {
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			}
		}()
		f(t, fab, ports[0], ports[1])
	})
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return v
	}
}

var toB = umad.Address{Local: addrs[0], Remote: addrs[1]}

func get(class uint8) umad.MAD {
	return umad.New(umad.Header{Class: class, ClassVersion: 1, Method: umad.MethodGet, AttrID: umad.AttrClassPortInfo,
		AttrMod: 5}, []byte("question"))
}

// TestLastCloseEndsAgents checks that the last Close of the Ports of a device ends calls of agents that are open.
func TestLastCloseEndsAgents(t *testing.T) {
	bubble(t, rdmatest.Faults{}, func(t *testing.T, fab *rdmatest.Fabric, _, _ *umad.Port) {
		dev := must(fab.NewDevice("d2", netip.MustParseAddr("198.18.0.3")))(t)
		first, second := must(umad.Open(dev))(t), must(umad.Open(dev))(t)
		a := must(second.Register(umad.Registration{Class: 9, Methods: []uint8{umad.MethodGet}}))(t)
		ended := make(chan error, 1)
		go func() {
			_, err := a.Recv(t.Context())
			ended <- err
		}()
		if err := second.Close(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("ended by a Close that is not the last one: %v", err)
		default:
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		select {
		case err := <-ended:
			if !errors.Is(err, umad.ErrClosed) {
				t.Error(err)
			}
		default:
			t.Error("Recv waits although QP 1 is closed")
			_ = a.Close()
		}
		if err := a.Send(&toB, get(9)); !errors.Is(err, umad.ErrClosed) {
			t.Errorf("Send: %v", err)
		}
		if err := a.Close(); !errors.Is(err, umad.ErrClosed) {
			t.Errorf("Close: %v", err)
		}
		if _, err := first.Register(umad.Registration{Class: 9}); !errors.Is(err, umad.ErrClosed) {
			t.Errorf("Register: %v", err)
		}
	})
}

// Recv of a closed agent does not return requests that were queued.
func TestRecvAfterClose(t *testing.T) {
	bubble(t, rdmatest.Faults{}, func(t *testing.T, _ *rdmatest.Fabric, a, b *umad.Port) {
		sender := must(a.Register(umad.Registration{}))(t)
		receiver := must(b.Register(umad.Registration{Class: 9, Methods: []uint8{umad.MethodGet}}))(t)
		const n = 64
		for range n {
			must(0, sender.Send(&toB, get(9)))(t)
		}
		synctest.Wait()
		if c := b.Counters(); c.Received != n || c.Unclaimed+c.QueueFull != 0 {
			t.Fatalf("%+v", c)
		}
		must(0, receiver.Close())(t)
		for range n {
			if r, err := receiver.Recv(t.Context()); !errors.Is(err, umad.ErrClosed) {
				t.Fatalf("%v, %v after Close", r, err)
			}
		}
	})
}

// serve answers every Get of a class until the agent is closed.
func serve(t *testing.T, p *umad.Port, class uint8) *umad.Agent {
	a := must(p.Register(umad.Registration{Class: class, Methods: []uint8{umad.MethodGet}}))(t)
	go func() {
		for {
			r, err := a.Recv(context.Background())
			if err != nil {
				return
			}
			if err := a.Reply(r, 0, append([]byte("answer to "), r.MAD.Data()[:8]...)); err != nil {
				t.Error(err)
			}
		}
	}()
	return a
}

func TestCall(t *testing.T) {
	bubble(t, rdmatest.Faults{}, func(t *testing.T, _ *rdmatest.Fabric, a, b *umad.Port) {
		server := serve(t, b, umad.ClassPerf)
		defer server.Close()
		client := must(a.Register(umad.Registration{}))(t)
		defer client.Close()
		r, err := client.Call(t.Context(), &toB, get(umad.ClassPerf), time.Second, 0)
		if err != nil {
			t.Fatal(err)
		}
		h := r.MAD.Header()
		if h.Method != umad.MethodGetResp || h.Class != umad.ClassPerf || h.AttrMod != 5 || uint32(h.TID>>32) != client.ID() {
			t.Errorf("header %+v", h)
		}
		if got := string(r.MAD.Data()[:18]); got != "answer to question" {
			t.Errorf("data %q", got)
		}
		if r.From.Remote != addrs[1] || r.From.Local != addrs[0] || r.From.QPN != umad.QPN {
			t.Errorf("from %+v", r.From)
		}
		if c := b.Counters(); c.Received != 1 || c.Sent != 1 || c.Unclaimed != 0 {
			t.Errorf("counters %+v", c)
		}
	})
}

// TestReplyFromAfar checks that the path of a reply does not depend on the routers that the request has passed, which
// decrement its hop limit and may mark it as congested. The reply needs as many hops as the request.
func TestReplyFromAfar(t *testing.T) {
	bubble(t, rdmatest.Faults{}, func(t *testing.T, _ *rdmatest.Fabric, a, b *umad.Port) {
		server := serve(t, b, umad.ClassPerf)
		defer server.Close()
		client := must(a.Register(umad.Registration{}))(t)
		defer client.Close()
		to := toB
		to.HopLimit, to.TClass = 3, 0x40|wire.ECNMarked
		r, err := client.Call(t.Context(), &to, get(umad.ClassPerf), time.Second, 0)
		if err != nil {
			t.Fatal(err)
		}
		if r.From.HopLimit != 64 || r.From.TClass != 0x40 {
			t.Errorf("the reply has hop limit %d and traffic class %#x", r.From.HopLimit, r.From.TClass)
		}
	})
}

// TestCallRetries checks that Call repeats a request if the request or its answer is lost, until the retries are used
// up.
func TestCallRetries(t *testing.T) {
	lose, seen := 0, 0
	script := func(rdmatest.Packet) (rdmatest.Verdict, bool) {
		seen++
		return rdmatest.Verdict{Drop: seen <= lose}, seen <= lose
	}
	bubble(t, rdmatest.Faults{Script: script}, func(t *testing.T, _ *rdmatest.Fabric, a, b *umad.Port) {
		server := serve(t, b, umad.ClassPerf)
		defer server.Close()
		client := must(a.Register(umad.Registration{}))(t)
		defer client.Close()
		for _, c := range []struct {
			lose, retries int
			err           error
			took          time.Duration
		}{{0, 0, nil, 0}, {2, 3, nil, 2 * time.Second}, {3, 3, nil, 3 * time.Second}, {4, 3, umad.ErrTimeout,
			4 * time.Second}} {
			lose, seen = c.lose, 0
			start := time.Now()
			_, err := client.Call(t.Context(), &toB, get(umad.ClassPerf), time.Second, c.retries)
			if took := time.Since(start).Round(10 * time.Millisecond); !errors.Is(err, c.err) || took != c.took {
				t.Errorf("%d lost, %d retries: %v after %v, want %v after %v", c.lose, c.retries, err, took, c.err, c.took)
			}
		}
		lose, seen = 1, 0
		if _, err := client.Call(t.Context(), &toB, get(umad.ClassPerf), time.Second, math.MaxInt); err != nil {
			t.Errorf("1 lost, as many retries as there can be: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		lose, seen = 100, 0
		if _, err := client.Call(ctx, &toB, get(umad.ClassPerf), time.Minute, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the context ended: %v", err)
		}
	})
	if err := umad.ErrTimeout; !errors.Is(err, syscall.ETIMEDOUT) {
		t.Error("ErrTimeout is not ETIMEDOUT")
	}
}

// TestSpoofedAnswers checks that an answer is accepted only from the destination of the request and in its class,
// whoever guesses the transaction ID.
func TestSpoofedAnswers(t *testing.T) {
	bubble(t, rdmatest.Faults{}, func(t *testing.T, fab *rdmatest.Fabric, a, b *umad.Port) {
		client := must(a.Register(umad.Registration{}))(t)
		defer client.Close()
		addrC := netip.MustParseAddr("198.18.0.3")
		c := must(umad.Open(must(fab.NewDevice("c", addrC))(t)))(t)
		defer c.Close()
		stranger := must(c.Register(umad.Registration{}))(t)
		defer stranger.Close()
		server := must(b.Register(umad.Registration{Class: umad.ClassPerf, Methods: []uint8{umad.MethodGet}}))(t)
		defer server.Close()
		go func() {
			q, err := server.Recv(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			h := q.MAD.Header()
			h.Method = umad.MethodGetResp
			if err := stranger.Send(&umad.Address{Local: addrC, Remote: addrs[0]}, umad.New(h, []byte("lie"))); err != nil {
				t.Error(err)
			}
			h.Class = umad.ClassDevMgt
			if err := server.Send(&umad.Address{Local: addrs[1], Remote: addrs[0]}, umad.New(h, []byte("mistake"))); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
			if err := server.Reply(q, 0, []byte("truth")); err != nil {
				t.Error(err)
			}
		}()
		r := must(client.Call(t.Context(), &toB, get(umad.ClassPerf), time.Minute, 0))(t)
		if got := string(r.MAD.Data()[:5]); got != "truth" {
			t.Errorf("the answer is %q", got)
		}
		if c := a.Counters(); c.Spoofed != 2 || c.Received != 3 || c.Unclaimed != 0 {
			t.Errorf("counters %+v", c)
		}
	})
}

func TestDispatch(t *testing.T) {
	bubble(t, rdmatest.Faults{}, func(t *testing.T, _ *rdmatest.Fabric, a, b *umad.Port) {
		handled := make(chan uint16, 8)
		handler := must(b.Register(umad.Registration{
			Class: umad.ClassCM, ClassVersion: 2, Methods: []uint8{umad.MethodSend}, Attributes: []uint16{0x10, 0x11},
			Handler: func(r *umad.Received) { handled <- r.MAD.AttrID() },
		}))(t)
		defer handler.Close()
		queue := must(b.Register(umad.Registration{Class: umad.ClassCM, ClassVersion: 2, Methods: []uint8{umad.MethodSend},
			Attributes: []uint16{0x17}, QueueLen: 2}))(t)
		defer queue.Close()
		client := must(a.Register(umad.Registration{}))(t)
		defer client.Close()
		send := func(h umad.Header) {
			if err := client.Send(&toB, umad.New(h, nil)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		cm := umad.Header{Class: umad.ClassCM, ClassVersion: 2, Method: umad.MethodSend}
		for _, attr := range []uint16{0x10, 0x17, 0x17, 0x17, 0x99} {
			cm.AttrID = attr
			send(cm)
		}
		send(umad.Header{Class: umad.ClassCM, ClassVersion: 1, Method: umad.MethodSend, AttrID: 0x10})
		send(umad.Header{Class: umad.ClassPerf, Method: umad.MethodGetResp, TID: 1 << 40})
		time.Sleep(time.Second)
		if len(handled) != 1 || <-handled != 0x10 {
			t.Error("the Handler did not get its datagram")
		}
		for range 2 {
			if r, err := queue.Recv(t.Context()); err != nil || r.MAD.AttrID() != 0x17 {
				t.Error(r, err)
			}
		}
		if c := b.Counters(); c.QueueFull != 1 || c.Unclaimed != 3 || c.Received != 7 {
			t.Errorf("counters %+v", c)
		}
	})
}

// TestMalformed checks that malformed datagrams, from any QP, are only counted.
func TestMalformed(t *testing.T) {
	bubble(t, rdmatest.Faults{}, func(t *testing.T, fab *rdmatest.Fabric, a, b *umad.Port) {
		vctx := must(fab.Open("c"))(t)
		pd := must(vctx.AllocPD())(t)
		cq := must(vctx.CreateCQ(64, nil))(t)
		qp := must(pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeUD, SendCQ: cq, RecvCQ: cq,
			Cap: verbs.QPCap{MaxSendWR: 64, MaxInlineData: 512}}))(t)
		ah := must(pd.CreateAH(&verbs.AHAttr{IsGlobal: true, PortNum: 1,
			GRH: verbs.GlobalRoute{DGID: verbs.GIDFromAddr(addrs[1]), SGIDIndex: 1, HopLimit: 1}}))(t)
		if err := qp.Connect(verbs.QPInfo{}, &verbs.ConnectOptions{QKey: umad.QKey}); err != nil {
			t.Fatal(err)
		}
		bad := make([]byte, wire.MADLen)
		bad[0] = 2
		for _, data := range [][]byte{nil, {1}, bad, bad[:255], make([]byte, 257)} {
			err := qp.PostSend(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: data, AH: ah,
				RemoteQPN: umad.QPN, RemoteQKey: umad.QKey})
			if err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		// 257 bytes do not fit the receive: the device drops them.
		if c := b.Counters(); c.Malformed != 4 || c.Received != 4 {
			t.Errorf("counters %+v", c)
		}
		server := serve(t, b, umad.ClassPerf)
		defer server.Close()
		client := must(a.Register(umad.Registration{}))(t)
		defer client.Close()
		if _, err := client.Call(t.Context(), &toB, get(umad.ClassPerf), time.Second, 0); err != nil {
			t.Error(err)
		}
		for _, c := range []interface{ Close() error }{qp, ah, cq, pd, vctx} {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestErrors(t *testing.T) {
	bubble(t, rdmatest.Faults{}, func(t *testing.T, _ *rdmatest.Fabric, a, _ *umad.Port) {
		agent := must(a.Register(umad.Registration{Class: umad.ClassPerf,
			Methods: []uint8{umad.MethodGet, umad.MethodSet}}))(t)
		if rival, err := a.Register(umad.Registration{Class: umad.ClassPerf, Methods: []uint8{umad.MethodSet},
			Attributes: []uint16{7}}); !errors.Is(err, syscall.EBUSY) || rival != nil {
			t.Errorf("a rival: %v, %v", rival, err)
		}
		for _, n := range []int{-1, 1<<16 + 1, math.MaxInt} {
			if _, err := a.Register(umad.Registration{QueueLen: n}); !errors.Is(err, syscall.EINVAL) {
				t.Errorf("queue length %d: %v", n, err)
			}
		}
		if _, err := a.Register(umad.Registration{Methods: []uint8{umad.MethodGetResp}}); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("registering for answers: %v", err)
		}
		if err := agent.Send(&toB, make(umad.MAD, 255)); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("a short MAD: %v", err)
		}
		if err := agent.Send(nil, get(1)); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("a send without an address: %v", err)
		}
		if _, err := agent.Call(t.Context(), nil, get(1), time.Minute, 0); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("a call without an address: %v", err)
		}
		foreign := umad.Address{Local: netip.MustParseAddr("198.18.9.9"), Remote: addrs[1]}
		if err := agent.Send(&foreign, get(1)); !errors.Is(err, syscall.EADDRNOTAVAIL) {
			t.Errorf("a foreign address: %v", err)
		}
		keyless := toB
		keyless.PKeyIndex = 1 // of a table of one entry
		if err := agent.Send(&keyless, get(1)); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("a P_Key index beyond the table: %v", err)
		}
		go func() { time.Sleep(time.Second); _ = agent.Close() }()
		if _, err := agent.Call(t.Context(), &toB, get(1), time.Minute, 0); !errors.Is(err, umad.ErrClosed) {
			t.Errorf("closed under a Call: %v", err)
		}
		if err := agent.Send(&toB, get(1)); !errors.Is(err, umad.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
		again := must(a.Register(umad.Registration{Class: umad.ClassPerf, Methods: []uint8{umad.MethodSet}}))(t)
		_ = again.Close()
	})
}

// TestBurst sends more datagrams, to more destinations, than QP 1 has room for.
func TestBurst(t *testing.T) {
	bubble(t, rdmatest.Faults{}, func(t *testing.T, _ *rdmatest.Fabric, a, b *umad.Port) {
		got := 0
		sink := must(b.Register(umad.Registration{Class: umad.ClassCM, Methods: []uint8{umad.MethodSend},
			Handler: func(*umad.Received) { got++ }}))(t)
		client := must(a.Register(umad.Registration{}))(t)
		defer client.Close()
		mad := umad.New(umad.Header{Class: umad.ClassCM, Method: umad.MethodSend}, nil)
		const n = 5000
		for i := range n {
			to := toB
			to.FlowLabel = uint32(i)
			if err := client.Send(&to, mad); err != nil {
				t.Fatal(i, err)
			}
			if i%500 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		time.Sleep(time.Second)
		_ = sink.Close()
		if c := a.Counters(); c.Sent != n || c.TxDropped != 0 || got != n {
			t.Errorf("%d arrived, %+v", got, c)
		}
	})
}
