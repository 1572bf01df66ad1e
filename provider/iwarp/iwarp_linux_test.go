package iwarp_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"syscall"
	"testing"
	"time"

	_ "github.com/verbena-rdma/verbena/provider/iwarp"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

var loopback = netip.MustParseAddr("127.0.0.1")

// device returns the iWARP device of the loopback interface.
func device(t *testing.T) *verbs.Device {
	t.Helper()
	devices, err := verbs.Devices()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range devices {
		if d.Name() == "vrw_lo" {
			return d
		}
	}
	t.Skip("the loopback interface has no iWARP device")
	return nil
}

func newHost(t *testing.T) *rdmacm.Host {
	t.Helper()
	h := rdmacm.NewHost(device(t))
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		_, file, line, _ := runtime.Caller(1)
		t.Fatalf("%s:%d: %v", file, line, err)
	}
}

// end is one end of a connection.
type end struct {
	*rdmacm.ID
	t   *testing.T
	ch  *rdmacm.EventChannel
	mem []byte
	mr  *verbs.MR
}

func limit() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time.Minute)
}

// event waits for an event.
func event(t *testing.T, ch *rdmacm.EventChannel, want rdmacm.EventType) *rdmacm.Event {
	t.Helper()
	ctx, cancel := limit()
	defer cancel()
	ev, err := ch.GetEvent(ctx)
	if err != nil {
		t.Fatalf("waiting for %v: %v", want, err)
	}
	if ev.Type != want {
		t.Fatalf("event %v, status %d, %v; want %v", ev.Type, ev.Status, ev.Err(), want)
	}
	return ev
}

const memSize = 4 << 20

// equip gives an ID a QP and memory.
func equip(t *testing.T, id *rdmacm.ID, ch *rdmacm.EventChannel) *end {
	t.Helper()
	must(t, id.CreateQP(nil, &verbs.QPInitAttr{Cap: verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 2, MaxRecvSGE: 2,
		MaxInlineData: 64}, SigAll: true}))
	e := &end{ID: id, t: t, ch: ch, mem: make([]byte, memSize)}
	var err error
	e.mr, err = id.PD().RegMR(e.mem, verbs.AccessLocalWrite|verbs.AccessRemoteRead|verbs.AccessRemoteWrite)
	must(t, err)
	t.Cleanup(func() {
		if id.QP() != nil {
			must(t, id.DestroyQP())
		}
		must(t, e.mr.Close())
		must(t, id.Close())
	})
	return e
}

func (e *end) sge(at, n int) []verbs.SGE {
	return []verbs.SGE{{Addr: e.mr.Addr() + uint64(at), Length: uint32(n), LKey: e.mr.LKey()}}
}

func (e *end) recv(id uint64, at, n int) {
	e.t.Helper()
	must(e.t, e.QP().PostRecv([]verbs.RecvWR{{WRID: id, SGList: e.sge(at, n)}}...))
}

// wait returns the next completion of a CQ.
func (e *end) wait(cq *verbs.CQ) verbs.WC {
	e.t.Helper()
	var wc [1]verbs.WC
	for start := time.Now(); time.Since(start) < time.Minute; {
		n, err := cq.Poll(wc[:])
		must(e.t, err)
		if n == 1 {
			return wc[0]
		}
		runtime.Gosched()
	}
	e.t.Fatal("no completion")
	return wc[0]
}

// channel makes an event channel.
func channel(t *testing.T, h *rdmacm.Host) *rdmacm.EventChannel {
	t.Helper()
	ch, err := h.CreateEventChannel()
	must(t, err)
	t.Cleanup(func() { must(t, ch.Close()) })
	return ch
}

// listen makes a listener.
func listen(t *testing.T, h *rdmacm.Host) (*rdmacm.ID, *rdmacm.EventChannel) {
	t.Helper()
	ch := channel(t, h)
	id, err := h.CreateID(ch, rdmacm.PSTCP, nil)
	must(t, err)
	t.Cleanup(func() { must(t, id.Close()) })
	must(t, id.BindAddr(netip.AddrPortFrom(loopback, 0)))
	must(t, id.Listen(4))
	return id, ch
}

// resolved makes an ID whose route to a listener is resolved.
func resolved(t *testing.T, h *rdmacm.Host, to netip.AddrPort) (*rdmacm.ID, *rdmacm.EventChannel) {
	t.Helper()
	ch := channel(t, h)
	id, err := h.CreateID(ch, rdmacm.PSTCP, nil)
	must(t, err)
	must(t, id.ResolveAddr(t.Context(), netip.AddrPort{}, to, time.Second))
	must(t, event(t, ch, rdmacm.EventAddrResolved).Ack())
	must(t, id.ResolveRoute(t.Context(), time.Second))
	must(t, event(t, ch, rdmacm.EventRouteResolved).Ack())
	return id, ch
}

// connect makes a connection.
func connect(t *testing.T) (client, server *end) {
	t.Helper()
	h := newHost(t)
	l, lch := listen(t, h)
	id, ch := resolved(t, h, l.LocalAddr())
	client = equip(t, id, ch)
	must(t, id.Connect(t.Context(), &rdmacm.ConnParam{PrivateData: []byte("hello"), ResponderResources: 2,
		InitiatorDepth: 3}))
	ev := event(t, lch, rdmacm.EventConnectRequest)
	if string(ev.Conn.PrivateData) != "hello" || ev.Conn.ResponderResources != 3 || ev.Conn.InitiatorDepth != 2 {
		t.Errorf("the request has %+v", ev.Conn)
	}
	server = equip(t, ev.ID, lch)
	must(t, ev.Ack())
	must(t, server.Accept(t.Context(), &rdmacm.ConnParam{PrivateData: []byte("welcome"), ResponderResources: 3,
		InitiatorDepth: 2}))
	must(t, event(t, lch, rdmacm.EventEstablished).Ack())
	ev = event(t, ch, rdmacm.EventEstablished)
	if string(ev.Conn.PrivateData) != "welcome" {
		t.Errorf("the answer has %q", ev.Conn.PrivateData)
	}
	must(t, ev.Ack())
	if client.PeerAddr() != server.LocalAddr() || server.PeerAddr() != client.LocalAddr() {
		t.Errorf("the client has %v to %v, the server %v to %v", client.LocalAddr(), client.PeerAddr(),
			server.LocalAddr(), server.PeerAddr())
	}
	if c, s := client.QP().State(), server.QP().State(); c != verbs.QPSRTS || s != verbs.QPSRTS {
		t.Errorf("the QPs are in %v and %v", c, s)
	}
	return client, server
}

func fill(b []byte, seed byte) {
	for i := range b {
		b[i] = seed + byte(i) + byte(i>>8)
	}
}

// The private data of both sides and the addresses of TCP are those of the connection; SEND, WRITE and READ of all
// lengths arrive; Disconnect ends both sides.
func TestI_MPA_01_I_MPA_10_I_DDP_07_I_CLOSE_01_Connection(t *testing.T) {
	c, s := connect(t)
	key := s.mr.RKey()
	for _, n := range []int{0, 1, 64, 4096, 65536, memSize} {
		fill(c.mem, byte(n+1))
		s.recv(1, 0, 1)
		must(t, c.QP().PostSend(
			verbs.SendWR{WRID: 1, Opcode: verbs.WRRDMAWrite, SGList: c.sge(0, n), RemoteAddr: s.mr.Addr(), RKey: key},
			verbs.SendWR{WRID: 2, Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: []byte{7}}))
		if wc := s.wait(s.RecvCQ()); wc.Status != verbs.WCSuccess || wc.ByteLen != 1 {
			t.Fatalf("WRITE of %d bytes, then SEND: %+v", n, wc)
		}
		if n > 1 && !bytes.Equal(c.mem[1:n], s.mem[1:n]) { // byte 0 is that of the SEND
			t.Fatalf("WRITE of %d bytes: other bytes arrived", n)
		}
		for range 2 {
			if wc := c.wait(c.SendCQ()); wc.Status != verbs.WCSuccess {
				t.Fatalf("%d bytes: %+v", n, wc)
			}
		}
		fill(s.mem, byte(n+9))
		must(t, c.QP().PostSend(verbs.SendWR{WRID: 3, Opcode: verbs.WRRDMARead, SGList: c.sge(0, n),
			RemoteAddr: s.mr.Addr(), RKey: key}))
		if wc := c.wait(c.SendCQ()); wc.Status != verbs.WCSuccess || !bytes.Equal(c.mem[:n], s.mem[:n]) {
			t.Fatalf("READ of %d bytes: %+v", n, wc)
		}
	}
	c.recv(1, 0, memSize)
	must(t, s.QP().PostSend(verbs.SendWR{WRID: 4, Opcode: verbs.WRSend, SGList: s.sge(0, memSize)}))
	if wc := c.wait(c.RecvCQ()); wc.Status != verbs.WCSuccess || wc.ByteLen != memSize {
		t.Fatalf("SEND of the server: %+v", wc)
	}
	must(t, c.Disconnect(t.Context()))
	must(t, event(t, s.ch, rdmacm.EventDisconnected).Ack())
	must(t, event(t, c.ch, rdmacm.EventDisconnected).Ack())
	if a, b := c.QP().State(), s.QP().State(); a != verbs.QPSErr || b != verbs.QPSErr {
		t.Errorf("after the end the QPs are in %v and %v", a, b)
	}
	s.recv(9, 0, 1)
	if wc := s.wait(s.RecvCQ()); wc.WRID != 9 || wc.Status != verbs.WCWRFlushErr {
		t.Errorf("a receive posted in ERR: %+v", wc)
	}
}

// The maximum of Accept is what the request asks for, not the device's.
func TestC_PARM_09_MaximumOfAccept(t *testing.T) {
	h := newHost(t)
	l, lch := listen(t, h)
	id, ch := resolved(t, h, l.LocalAddr())
	equip(t, id, ch)
	must(t, id.Connect(t.Context(), &rdmacm.ConnParam{ResponderResources: 5, InitiatorDepth: 3}))
	ev := event(t, lch, rdmacm.EventConnectRequest)
	server := equip(t, ev.ID, lch)
	must(t, ev.Ack())
	must(t, server.Accept(t.Context(), &rdmacm.ConnParam{ResponderResources: rdmacm.MaxRespRes,
		InitiatorDepth: rdmacm.MaxInitDepth}))
	for ch, want := range map[*rdmacm.EventChannel][2]uint8{lch: {3, 5}, ch: {5, 3}} {
		ev := event(t, ch, rdmacm.EventEstablished)
		if got := [2]uint8{ev.Conn.ResponderResources, ev.Conn.InitiatorDepth}; got != want {
			t.Errorf("%v has %v, want %v", ev.ID.LocalAddr(), got, want)
		}
		must(t, ev.Ack())
	}
}

// A rejection brings its private data.
func TestI_MPA_11_Reject(t *testing.T) {
	h := newHost(t)
	l, lch := listen(t, h)
	id, ch := resolved(t, h, l.LocalAddr())
	equip(t, id, ch)
	must(t, id.Connect(t.Context(), nil))
	ev := event(t, lch, rdmacm.EventConnectRequest)
	must(t, ev.ID.Reject([]byte("no room")))
	must(t, ev.Ack())
	must(t, ev.ID.Close())
	ev = event(t, ch, rdmacm.EventRejected)
	if ev.Status != -int(syscall.ECONNRESET) || string(ev.Conn.PrivateData) != "no room" ||
		!errors.Is(ev.Err(), syscall.ECONNREFUSED) {
		t.Errorf("status %d, %q, %v", ev.Status, ev.Conn.PrivateData, ev.Err())
	}
	must(t, ev.Ack())
}

// Where nobody listens the connection is rejected.
func TestI_MPA_11_NobodyListens(t *testing.T) {
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: loopback.AsSlice()})
	must(t, err)
	to := l.Addr().(*net.TCPAddr).AddrPort()
	must(t, l.Close())
	h := newHost(t)
	id, ch := resolved(t, h, to)
	equip(t, id, ch)
	must(t, id.Connect(t.Context(), nil))
	ev := event(t, ch, rdmacm.EventRejected)
	if ev.Status != -int(syscall.ECONNREFUSED) {
		t.Errorf("status %d", ev.Status)
	}
	must(t, ev.Ack())
}

// A READ that the peer may not do fails with the status of the Terminate, and both sides get their events.
func TestI_TERM_02_RefusedRead(t *testing.T) {
	c, s := connect(t)
	c.recv(5, 0, 1)
	must(t, c.QP().PostSend(verbs.SendWR{WRID: 1, Opcode: verbs.WRRDMARead, SGList: c.sge(0, 8),
		RemoteAddr: s.mr.Addr() + memSize, RKey: s.mr.RKey()}))
	if wc := c.wait(c.SendCQ()); wc.WRID != 1 || wc.Status != verbs.WCRemAccessErr {
		t.Errorf("the READ: %+v", wc)
	}
	if wc := c.wait(c.RecvCQ()); wc.WRID != 5 || wc.Status != verbs.WCWRFlushErr {
		t.Errorf("the receive: %+v", wc)
	}
	ctx, cancel := limit()
	defer cancel()
	for _, want := range []verbs.EventType{verbs.EventQPAccessErr, verbs.EventQPFatal} { // one context has both QPs
		ev, err := c.Verbs().GetAsyncEvent(ctx)
		must(t, err)
		if ev.Type != want {
			t.Errorf("event %v; want %v", ev.Type, want)
		}
		ev.Ack()
	}
	must(t, event(t, c.ch, rdmacm.EventDisconnected).Ack())
	must(t, event(t, s.ch, rdmacm.EventDisconnected).Ack())
}

// What iWARP lacks is refused with EOPNOTSUPP.
func TestUnsupported(t *testing.T) {
	vctx, err := device(t).Open()
	must(t, err)
	defer vctx.Close()
	if d := vctx.Device(); d.TransportType() != verbs.TransportIWARP || d.NodeType() != verbs.NodeRNIC {
		t.Errorf("transport %v, node type %v", d.TransportType(), d.NodeType())
	}
	pd, err := vctx.AllocPD()
	must(t, err)
	defer pd.Close()
	cq, err := vctx.CreateCQ(10, nil)
	must(t, err)
	defer cq.Close()
	init := verbs.QPInitAttr{SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1}}
	for _, typ := range []verbs.QPType{verbs.QPTypeUC, verbs.QPTypeUD, verbs.QPTypeRawPacket} {
		in := init
		in.Type = typ
		if _, err := pd.CreateQP(&in); !errors.Is(err, verbs.EOPNOTSUPP) {
			t.Errorf("a QP of type %v: %v", typ, err)
		}
	}
	if _, err := vctx.OpenXRCD(nil); !errors.Is(err, verbs.EOPNOTSUPP) {
		t.Errorf("an XRC domain: %v", err)
	}
	init.Type = verbs.QPTypeRC
	qp, err := pd.CreateQP(&init)
	must(t, err)
	defer qp.Close()
	must(t, qp.Modify(&verbs.QPAttr{QPState: verbs.QPSInit, PortNum: 1}, verbs.QPAttrState|verbs.QPAttrPort|
		verbs.QPAttrPKeyIndex|verbs.QPAttrAccessFlags))
	must(t, qp.PostRecv(verbs.RecvWR{WRID: 3}))
	must(t, qp.Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, verbs.QPAttrState))
	var wc [1]verbs.WC
	if n, err := cq.Poll(wc[:]); n != 1 || wc[0].WRID != 3 || wc[0].Status != verbs.WCWRFlushErr {
		t.Errorf("the receive of a QP in ERR: %d, %+v, %v", n, wc[0], err)
	}
	if err := qp.PostSend(verbs.SendWR{Opcode: verbs.WRSendWithImm}); !errors.Is(err, verbs.EOPNOTSUPP) {
		t.Errorf("SEND with immediate data: %v", err)
	}
}
