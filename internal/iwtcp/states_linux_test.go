package iwtcp

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"reflect"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/iwarp"
	"github.com/verbena-rdma/verbena/internal/link/pcap"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/transport"
)

// upcalls records the moves that a QP reports.
type upcalls struct {
	sinkCQ
	moves chan transport.State
}

func (u upcalls) StateChanged(s transport.State) { u.moves <- s }

// recorded makes the QP report its moves to the test. It is not connected.
func recorded(q *QP) upcalls {
	u := upcalls{moves: make(chan transport.State, 8)}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.Up = u
	return u
}

// A QP goes from RESET to INIT only, its rights change in INIT only, and it never does so after its end.
func TestInitOfAConnectedQP(t *testing.T) {
	q, _, _ := responder(t, func(bool) {})
	refused := func(in string) {
		t.Helper()
		if err := q.Init(mr.RemoteRead); !errors.Is(err, transport.ErrMoved) {
			t.Errorf("%s: %v", in, err)
		}
	}
	refused("RTS")
	q.Fail()
	refused("ERR")
	q.Reset()
	for range 2 {
		if err := q.Init(mr.RemoteRead); err != nil {
			t.Errorf("RESET, INIT: %v", err)
		}
	}
	q.Destroy()
	refused("after Destroy")
	q.Fail()
	if s := q.State(); s != transport.Reset {
		t.Errorf("state %v after Destroy and Fail", s)
	}
}

// A move by the program is not reported to it, one by the peer is.
func TestReportsOfMoves(t *testing.T) {
	ended := make(chan bool, 1)
	q, peer, _ := responder(t, func(silent bool) { ended <- silent })
	u := recorded(q)
	q.Fail()
	if len(u.moves) != 0 || q.State() != transport.Err {
		t.Errorf("%d reports of Fail, state %v", len(u.moves), q.State())
	}
	if <-ended {
		t.Error("Fail counts as a peer that does not answer")
	}
	_ = peer.Close()

	q, peer, _ = responder(t, func(silent bool) { ended <- silent })
	u = recorded(q)
	if err := peer.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	_ = peer.Close()
	if s := <-u.moves; s != transport.Err || <-ended {
		t.Errorf("state %v after the peer has cut the connection", s)
	}
}

// A QP in INIT that fails flushes the receives that were posted.
func TestFailBeforeTheConnection(t *testing.T) {
	q, err := new(Device).NewQP(Config{Num: 1, SQ: transport.NewSendQueue(4, 1, 0),
		RQ: transport.NewRecvQueue(4, 1, false, 1), SendCQ: sinkCQ{}, RecvCQ: sinkCQ{}, Up: sinkCQ{}})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Destroy()
	if err := q.Init(0); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if q.Fail(); q.State() != transport.Err {
			t.Errorf("state %v", q.State())
		}
	}
}

// The second connection of a QP does not know how the first one has ended.
func TestSecondConnectionOfAQP(t *testing.T) {
	ended := make(chan bool, 2)
	report := func(silent bool) { ended <- silent }
	q, peer, key := responder(t, report)
	q.mu.Lock()
	m := q.m
	q.mu.Unlock()
	q.cut(m) // as after a peer that does not answer
	if !<-ended {
		t.Error("the first connection: the peer counts as one that has answered")
	}
	_ = peer.Close()
	q.Reset()
	if err := q.Init(mr.RemoteRead); err != nil {
		t.Fatal(err)
	}
	peer = startResponder(t, q, report)
	if _, err := peer.Write(readRequest(key, 4)); err != nil {
		t.Fatal(err)
	}
	if n, err := peer.Read(make([]byte, 64)); n == 0 || err != nil {
		t.Errorf("%d bytes of the answer to a READ, %v", n, err)
	}
	if err := peer.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if <-ended {
		t.Error("the second connection: the peer counts as one that does not answer")
	}
}

// A QP that is not in INIT takes no connection, and closes the one that it gets.
func TestStartOutsideOfInit(t *testing.T) {
	q, _, _ := responder(t, func(bool) {})
	peer, own := accepted(t)
	if err := q.Start(&Conn{tcp: own, Params: iwarp.Params{}}, func(bool) {}); !errors.Is(err, transport.ErrState) {
		t.Errorf("in RTS: %v", err)
	}
	ended(t, peer)
}

// A port is free for an address unless a socket listens there, in either family. What cannot be tried counts as free.
func TestPortIsFree(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		at := netip.MustParseAddr(host)
		l, err := Listen(netip.AddrPortFrom(at, 0), false, func(*Request) {})
		if err != nil {
			t.Log(err) // no such address here
			continue
		}
		port := l.Port()
		if PortIsFree(netip.AddrPortFrom(at, port)) {
			t.Errorf("%v: the port of a listener is free", at)
		}
		if !PortIsFree(netip.AddrPortFrom(at.WithZone("lo"), port)) && at.Is6() {
			t.Error("an address with a zone is not tried")
		}
		l.Close()
		if !PortIsFree(netip.AddrPortFrom(at, port)) {
			t.Errorf("%v: the port is not free after the end of the listener", at)
		}
	}
	if !PortIsFree(netip.MustParseAddrPort("192.0.2.1:7471")) {
		t.Error("a port of an address that is not of this host is in use")
	}
}

// A reset drops the receives of the QP's own queue, and leaves those of a shared one to its other QPs.
func TestResetLeavesSharedReceives(t *testing.T) {
	for _, shared := range []bool{false, true} {
		rq := transport.NewRecvQueue(4, 1, shared, 1)
		q, err := new(Device).NewQP(Config{Num: 1, SQ: transport.NewSendQueue(4, 1, 0), RQ: rq, SendCQ: sinkCQ{},
			RecvCQ: sinkCQ{}, Up: sinkCQ{}})
		if err != nil {
			t.Fatal(err)
		}
		if err := rq.Post(7, nil); err != nil {
			t.Fatal(err)
		}
		q.Reset()
		want := 0
		if shared {
			want = 1
		}
		if n := rq.Posted(); n != want {
			t.Errorf("shared %v: %d receives after the reset, want %d", shared, n, want)
		}
		q.Destroy()
	}
}

// The counters of a device are those of its QPs, and of the QPs that have been destroyed. A socket that is closed is
// not watched any more.
func TestCountersOfADevice(t *testing.T) {
	d := new(Device)
	q, peer, key := responderOf(t, d, 1, func(bool) {})
	if _, err := peer.Write(readRequest(key, 4)); err != nil {
		t.Fatal(err)
	}
	if n, err := peer.Read(make([]byte, 64)); n == 0 || err != nil {
		t.Fatalf("%d bytes, %v", n, err)
	}
	list, sum := d.Views()
	if len(list) != 1 || sum.TxBytes == 0 || sum.TxBytes != list[0].Counters.TxBytes || sum.RxBytes == 0 ||
		sum.RxBytes != list[0].Counters.RxBytes || sum.RxPackets == 0 {
		t.Errorf("%d QPs, %+v in all", len(list), sum)
	}
	l := q.loop
	q.Fail()
	l.mu.Lock()
	if len(l.qps) != 0 {
		t.Errorf("%d sockets are watched", len(l.qps))
	}
	l.mu.Unlock()
	q.Destroy()
	if list, gone := d.Views(); len(list) != 0 || gone.TxBytes != sum.TxBytes || gone.RxBytes != sum.RxBytes {
		t.Errorf("%d QPs; %+v after the end, %+v before", len(list), gone, sum)
	}
	d.ResetCounters()
	if _, none := d.Views(); none.TxBytes != 0 || none.RxBytes != 0 {
		t.Errorf("%+v after the reset", none)
	}
}

// A request is answered once.
func TestSecondAnswerToARequest(t *testing.T) {
	_, at, asked := listener(t)
	r := askFrom(t, "127.0.0.1", at, asked)
	c, err := r.Accept(iwarp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := r.Reject(nil); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a refusal after the acceptance: %v", err)
	}
	if c, err := r.Accept(iwarp.Options{}); c != nil || !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a second acceptance: %v", err)
	}
	r.Close() // the connection is the program's
	if err := c.tcp.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Errorf("the connection is closed: %v", err)
	}
	r = askFrom(t, "127.0.0.1", at, asked)
	r.Close()
	if err := r.Reject(nil); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a refusal after Close: %v", err)
	}
	if c, err := r.Accept(iwarp.Options{}); c != nil || !errors.Is(err, syscall.EINVAL) {
		t.Errorf("an acceptance after Close: %v", err)
	}
	r = askFrom(t, "127.0.0.1", at, asked)
	r.Close()
	if c, err := r.Accept(iwarp.Options{}); c != nil || !errors.Is(err, syscall.EINVAL) {
		t.Errorf("an acceptance just after Close: %v", err)
	}
	r = askFrom(t, "127.0.0.1", at, asked)
	_ = r.tcp.Close()
	if c, err := r.Accept(iwarp.Options{}); c != nil || !errors.Is(err, net.ErrClosed) {
		t.Errorf("an acceptance that TCP does not take: %v", err)
	}
	r = askFrom(t, "127.0.0.1", at, asked)
	if err := r.Reject(nil); err != nil {
		t.Error(err)
	}
	if err := r.Reject(nil); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a second refusal: %v", err)
	}
}

// A request that is refused ends with its answer: the client sees the end of the stream, and neither side keeps it.
func TestRefusalEndsTheConnection(t *testing.T) {
	_, at, asked := listener(t)
	c := from(t, "127.0.0.1", at)
	s, out := iwarp.Initiate(0, iwarp.Options{})
	if _, err := c.Write(out); err != nil {
		t.Fatal(err)
	}
	r := <-asked
	if err := r.Reject([]byte("no")); err != nil {
		t.Fatal(err)
	}
	if step, err := readFrame(c, s); step != iwarp.Refused || string(s.Peer().Private) != "no" {
		t.Fatalf("step %v, %v, %q", step, err, s.Peer().Private)
	}
	ended(t, c)
	if err := r.tcp.SetDeadline(time.Time{}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the socket is not closed: %v", err)
	}
}

// recorder is a tap that keeps what it sees.
type recorder struct {
	mu  sync.Mutex
	all []pcap.Segment
}

func (r *recorder) Segment(g *pcap.Segment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := *g
	kept.Data = bytes.Clone(g.Data)
	r.all = append(r.all, kept)
}

// A tap sees the handshake of TCP, then the bytes of both directions from the frames of the start-up on, and the end.
func TestTapSeesTheStream(t *testing.T) {
	d, r := new(Device), &recorder{}
	d.SetTaps([]Tap{r})
	q, _, key := responderOf(t, d, 5, func(bool) {})
	q.Reset()
	if err := q.Init(mr.RemoteRead); err != nil {
		t.Fatal(err)
	}
	r.all = nil
	peer, tcp := accepted(t)
	ask := readRequest(key, 4)
	if err := q.Start(&Conn{tcp: tcp, Params: iwarp.Params{IRD: 1, ORD: 1}, request: []byte("request"),
		reply: []byte("reply"), rest: ask}, func(bool) {}); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 64)
	n, err := peer.Read(answer)
	if err != nil {
		t.Fatal(err)
	}
	q.Fail()
	d.SetTaps(nil)
	const asked, replied = 1 + uint32(len("request")), 1 + uint32(len("reply"))
	const data = pcap.FlagACK | pcap.FlagPSH
	end := asked + uint32(len(ask))
	want := []pcap.Segment{
		{Flags: pcap.FlagSYN}, {Sent: true, Flags: pcap.FlagSYN | pcap.FlagACK, Ack: 1},
		{Flags: pcap.FlagACK, Seq: 1, Ack: 1}, {Flags: data, Seq: 1, Ack: 1, Data: []byte("request")},
		{Sent: true, Flags: data, Seq: 1, Ack: asked, Data: []byte("reply")},
		{Flags: data, Seq: asked, Ack: replied, Data: ask},
		{Sent: true, Flags: data, Seq: replied, Ack: end, Data: answer[:n]},
		{Sent: true, Flags: pcap.FlagRST | pcap.FlagACK, Seq: replied + uint32(n), Ack: end},
	}
	own, far := plain(peer.RemoteAddr()), plain(peer.LocalAddr())
	for i := range want {
		w := &want[i]
		if w.QPN, w.Src, w.Dst = 5, far, own; w.Sent {
			w.Src, w.Dst = own, far
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !reflect.DeepEqual(r.all, want) {
		t.Errorf("seen: %+v\nwant: %+v", r.all, want)
	}
}

// A tap that was taken away sees nothing of later streams.
func TestTapThatWasTakenAway(t *testing.T) {
	d, r := new(Device), &recorder{}
	for _, none := range [][]Tap{nil, {}} {
		d.SetTaps([]Tap{r})
		d.SetTaps(none)
		q, _, _ := responderOf(t, d, 5, func(bool) {})
		q.Fail()
		q.Destroy()
	}
	if len(r.all) != 0 {
		t.Errorf("%d segments", len(r.all))
	}
}
