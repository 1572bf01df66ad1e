package soft

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/bits"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/iwarp"
	"github.com/verbena-rdma/verbena/internal/iwtcp"
	"github.com/verbena-rdma/verbena/verbs"
)

// Devices of provider/iwarp, which this package makes. The connections are made as package rdmacm makes them.

// streamEnd is one end of a connection over TCP.
type streamEnd struct {
	t    *testing.T
	dev  *device
	drv  *deviceContext
	ctx  *verbs.Context
	pd   *verbs.PD
	send *verbs.CQ
	recv *verbs.CQ
	qp   *verbs.QP
	mem  []byte
	mr   *verbs.MR
	over chan bool // what the end of the connection reported
}

// streamAddr is an address of the loopback interface that concurrent runs of these tests do not use.
func streamAddr() netip.Addr {
	pid := os.Getpid()
	return netip.AddrFrom4([4]byte{127, byte(pid>>8)&0x3f | 0x40, byte(pid), 9})
}

// newStreamEnd makes a device with a QP in INIT.
func newStreamEnd(t *testing.T, name string, change func(e *streamEnd, in *verbs.QPInitAttr)) *streamEnd {
	t.Helper()
	e := &streamEnd{t: t, over: make(chan bool, 1), mem: make([]byte, 1<<16)}
	e.dev = newDevice(spec{name: name, iface: "lo", addrs: []netip.Addr{streamAddr()}, streams: true})
	var err error
	e.ctx, err = driver.NewDevice(e.dev).Open()
	okay(t, err)
	t.Cleanup(func() { okay(t, e.ctx.Close()) })
	e.drv = driver.Of[*deviceContext](e.ctx)
	e.pd, err = e.ctx.AllocPD()
	okay(t, err)
	t.Cleanup(func() { okay(t, e.pd.Close()) })
	for _, cq := range []**verbs.CQ{&e.send, &e.recv} {
		*cq, err = e.ctx.CreateCQ(64, nil)
		okay(t, err)
		t.Cleanup(func() { okay(t, (*cq).Close()) })
	}
	e.mr, err = e.pd.RegMR(e.mem, verbs.AccessLocalWrite|verbs.AccessRemoteRead|verbs.AccessRemoteWrite|
		verbs.AccessRemoteAtomic|verbs.AccessMWBind)
	okay(t, err)
	t.Cleanup(func() { okay(t, e.mr.Close()) })
	in := verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: e.send, RecvCQ: e.recv, SigAll: true,
		Cap: verbs.QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInlineData: 64}}
	if change != nil {
		change(e, &in)
	}
	e.qp, err = e.pd.CreateQP(&in)
	okay(t, err)
	t.Cleanup(func() { okay(t, e.qp.Close()) })
	e.toInit(verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic)
	return e
}

func (e *streamEnd) toInit(access verbs.AccessFlags) {
	e.t.Helper()
	okay(e.t, e.qp.Modify(&verbs.QPAttr{QPState: verbs.QPSInit, PortNum: 1, QPAccessFlags: access},
		verbs.QPAttrState|verbs.QPAttrPort|verbs.QPAttrPKeyIndex|verbs.QPAttrAccessFlags))
}

// start gives a QP its connection, by its number as rdmacm does for a program that names one.
func (e *streamEnd) start(c *iwtcp.Conn) {
	e.t.Helper()
	s := e.drv.FindStream(e.qp.QPN())
	if s == nil {
		e.t.Fatalf("the device does not find QP %d", e.qp.QPN())
	}
	okay(e.t, s.Start(c, func(silent bool) { e.over <- silent }))
}

// joinStreams connects two ends: the first one is the initiator.
func joinStreams(t *testing.T, a, b *streamEnd) {
	t.Helper()
	requests := make(chan *iwtcp.Request, 1)
	l, err := iwtcp.Listen(netip.AddrPortFrom(streamAddr(), 0), false, func(r *iwtcp.Request) { requests <- r })
	okay(t, err)
	defer l.Close()
	answered := make(chan *iwtcp.Conn, 1)
	go func() {
		c, err := (<-requests).Accept(iwarp.Options{IRD: 4, ORD: 4, MaxIRD: 4})
		if err != nil {
			t.Error(err)
		}
		answered <- c
	}()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ca, err := iwtcp.Dial(ctx, netip.AddrPortFrom(streamAddr(), 0), netip.AddrPortFrom(streamAddr(), l.Port()),
		iwarp.Options{IRD: 4, ORD: 4})
	okay(t, err)
	cb := <-answered
	b.start(cb)
	a.start(ca)
}

func streamPair(t *testing.T) (a, b *streamEnd) {
	t.Helper()
	a, b = newStreamEnd(t, "vrw_a", nil), newStreamEnd(t, "vrw_b", nil)
	joinStreams(t, a, b)
	return a, b
}

func (e *streamEnd) sge(at, n int) []verbs.SGE {
	return []verbs.SGE{{Addr: e.mr.Addr() + uint64(at), Length: uint32(n), LKey: e.mr.LKey()}}
}

func (e *streamEnd) wait(cq *verbs.CQ) verbs.WC {
	e.t.Helper()
	var wc [1]verbs.WC
	for start := time.Now(); time.Since(start) < time.Minute; runtime.Gosched() {
		n, err := cq.Poll(wc[:])
		okay(e.t, err)
		if n == 1 {
			return wc[0]
		}
	}
	e.t.Fatal("no completion")
	return wc[0]
}

// done posts a request and expects it to succeed.
func (e *streamEnd) done(wr verbs.SendWR) {
	e.t.Helper()
	okay(e.t, e.qp.PostSend(wr))
	if wc := e.wait(e.send); wc.Status != verbs.WCSuccess || wc.WRID != wr.WRID {
		e.t.Fatalf("%v: %+v", wr.Opcode, wc)
	}
}

// TestStreamOperations: each operation of a QP over TCP takes its operands from the request.
func TestStreamOperations(t *testing.T) {
	a, b := streamPair(t)
	for i := range a.mem {
		a.mem[i] = byte(3*i) ^ byte(i>>7)
	}
	to, key := b.mr.Addr()+4096, b.mr.RKey()
	a.done(verbs.SendWR{WRID: 1, Opcode: verbs.WRRDMAWrite, RemoteAddr: to, RKey: key,
		SGList: append(a.sge(16, 1000), a.sge(2000, 500)...)})
	okay(t, b.qp.PostRecv(verbs.RecvWR{WRID: 21, SGList: b.sge(0, 64)}))
	a.done(verbs.SendWR{WRID: 2, Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: []byte("hello")})
	if wc := b.wait(b.recv); wc.WRID != 21 || wc.ByteLen != 5 || wc.QPNum != b.qp.QPN() || string(b.mem[:5]) != "hello" {
		t.Errorf("the SEND: %+v, %q", wc, b.mem[:5])
	}
	if want := append(bytes.Clone(a.mem[16:1016]), a.mem[2000:2500]...); !bytes.Equal(b.mem[4096:4096+1500], want) {
		t.Error("the WRITE of two SGEs has left other bytes")
	}
	okay(t, b.qp.PostRecv(verbs.RecvWR{WRID: 22}))
	a.done(verbs.SendWR{WRID: 3, Opcode: verbs.WRRDMAWriteWithImm, SGList: a.sge(0, 10), RemoteAddr: to, RKey: key,
		ImmData: 0x01020304})
	if wc := b.wait(b.recv); wc.WRID != 22 || wc.ImmData != 0x01020304 || wc.Opcode != verbs.WCRecvRDMAWithImm {
		t.Errorf("the WRITE with immediate data: %+v", wc)
	}
	a.done(verbs.SendWR{WRID: 4, Opcode: verbs.WRRDMARead, SGList: a.sge(8192, 100), RemoteAddr: to + 100, RKey: key})
	if !bytes.Equal(a.mem[8192:8292], b.mem[4196:4296]) {
		t.Error("the READ has brought other bytes")
	}
	binary.NativeEndian.PutUint64(b.mem[64:], 40)
	a.done(verbs.SendWR{WRID: 5, Opcode: verbs.WRAtomicFetchAndAdd, SGList: a.sge(0, 8), RemoteAddr: b.mr.Addr() + 64,
		RKey: key, CompareAdd: 2})
	a.done(verbs.SendWR{WRID: 6, Opcode: verbs.WRAtomicCmpAndSwp, SGList: a.sge(8, 8), RemoteAddr: b.mr.Addr() + 64,
		RKey: key, CompareAdd: 42, Swap: 7})
	if x, y, z := binary.NativeEndian.Uint64(a.mem), binary.NativeEndian.Uint64(a.mem[8:]),
		binary.NativeEndian.Uint64(b.mem[64:]); x != 40 || y != 42 || z != 7 {
		t.Errorf("the atomics returned %d and %d and left %d, want 40, 42 and 7", x, y, z)
	}
}

// TestStreamWindows: a window is bound with its rights and its range, and ends with the key that a SEND or the
// program invalidates.
func TestStreamWindows(t *testing.T) {
	a, b := streamPair(t)
	mw, err := b.pd.AllocMW(verbs.MWType2)
	okay(t, err)
	t.Cleanup(func() { okay(t, mw.Close()) })
	key := verbs.IncRKey(mw.RKey())
	bind := verbs.SendWR{WRID: 1, Opcode: verbs.WRBindMW, MW: mw, RKey: key, BindInfo: &verbs.MWBindInfo{
		MR: b.mr, Addr: b.mr.Addr() + 1024, Length: 16, Access: verbs.AccessRemoteWrite}}
	b.done(bind)
	copy(a.mem, "through a window")
	write := verbs.SendWR{WRID: 2, Opcode: verbs.WRRDMAWrite, SGList: a.sge(0, 16), RemoteAddr: b.mr.Addr() + 1024,
		RKey: key}
	a.done(write)
	okay(t, b.qp.PostRecv(verbs.RecvWR{WRID: 9, SGList: b.sge(0, 8)}))
	a.done(verbs.SendWR{WRID: 3, Opcode: verbs.WRSendWithInv, SGList: a.sge(0, 4), InvalidateRKey: key})
	if wc := b.wait(b.recv); wc.WCFlags&verbs.WCWithInv == 0 || wc.InvalidatedRKey != key ||
		string(b.mem[1024:1040]) != "through a window" {
		t.Errorf("%+v, %q", wc, b.mem[1024:1040])
	}
	bind.RKey = verbs.IncRKey(key)
	b.done(bind)
	b.done(verbs.SendWR{WRID: 4, Opcode: verbs.WRLocalInv, InvalidateRKey: bind.RKey})
	okay(t, a.qp.PostRecv(verbs.RecvWR{WRID: 10, SGList: a.sge(0, 8)}))
	write.RKey = bind.RKey
	okay(t, a.qp.PostSend(write)) // the peer refuses it, and ends the connection
	if wc := a.wait(a.recv); wc.WRID != 10 || wc.Status != verbs.WCWRFlushErr {
		t.Errorf("after a WRITE with a key that is not valid any more: %+v", wc)
	}
	for _, e := range []*streamEnd{a, b} {
		if <-e.over {
			t.Error("the end counts as a peer that does not answer")
		}
	}
}

// TestStreamRequestsThatAreRefused: a request that iWARP does not have is refused, with those after it; PostSendAll
// then posts none.
func TestStreamRequestsThatAreRefused(t *testing.T) {
	a, b := streamPair(t)
	bad := map[string]struct {
		wr   verbs.SendWR
		want error
	}{
		"immediate data of a SEND": {verbs.SendWR{Opcode: verbs.WRSendWithImm}, verbs.EOPNOTSUPP},
		"a READ of two SGEs": {verbs.SendWR{Opcode: verbs.WRRDMARead, SGList: append(a.sge(0, 4), a.sge(8, 4)...),
			RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}, verbs.EINVAL},
		"more than the longest message": {verbs.SendWR{Opcode: verbs.WRSend, SGList: []verbs.SGE{
			{Length: 1 << 31, LKey: 1}, {Length: 1, LKey: 1}}}, verbs.EINVAL},
	}
	drv := driver.Of[*streamQP](a.qp)
	good := verbs.SendWR{WRID: 7, Opcode: verbs.WRRDMAWrite, SGList: a.sge(0, 4), RemoteAddr: b.mr.Addr(),
		RKey: b.mr.RKey()}
	for name, c := range bad {
		if n, err := drv.PostSend([]verbs.SendWR{good, c.wr, good}); n != 1 || !errors.Is(err, c.want) {
			t.Errorf("%s: %d posted, %v, want 1 and %v", name, n, err, c.want)
		}
		if wc := a.wait(a.send); wc.WRID != 7 || wc.Status != verbs.WCSuccess {
			t.Errorf("%s: the request before it: %+v", name, wc)
		}
		if _, err := drv.PostSendAll([]verbs.SendWR{good, c.wr}); !errors.Is(err, c.want) {
			t.Errorf("%s: all or none: %v", name, err)
		}
	}
	a.done(verbs.SendWR{WRID: 8, Opcode: verbs.WRRDMAWrite, SGList: a.sge(0, 4), RemoteAddr: b.mr.Addr(),
		RKey: b.mr.RKey()}) // of PostSendAll nothing has completed before it
	if n, err := drv.PostSendAll([]verbs.SendWR{good, good}); n != 2 || err != nil {
		t.Errorf("all: %d, %v", n, err)
	}
	for range 2 {
		a.wait(a.send)
	}
}

// TestStreamQPsThatAreRefused: QPs over TCP are of type RC, without what a TCP stream does not have, and have the room
// that they report.
func TestStreamQPsThatAreRefused(t *testing.T) {
	var got verbs.QPCap
	e := newStreamEnd(t, "vrw_a", func(e *streamEnd, in *verbs.QPInitAttr) {
		for name, c := range map[string]struct {
			change func(in *verbs.QPInitAttr)
			want   error
		}{
			"UD":         {func(in *verbs.QPInitAttr) { in.Type = verbs.QPTypeUD }, verbs.EOPNOTSUPP},
			"UC":         {func(in *verbs.QPInitAttr) { in.Type = verbs.QPTypeUC }, verbs.EOPNOTSUPP},
			"RAW_PACKET": {func(in *verbs.QPInitAttr) { in.Type = verbs.QPTypeRawPacket }, verbs.EOPNOTSUPP},
			"FLUSH": {func(in *verbs.QPInitAttr) { in.SendOpsFlags = verbs.QPExWithSend | verbs.QPExWithFlush },
				verbs.EOPNOTSUPP},
			"immediate data": {func(in *verbs.QPInitAttr) { in.SendOpsFlags = verbs.QPExWithSendWithImm },
				verbs.EOPNOTSUPP},
			"inline data": {func(in *verbs.QPInitAttr) { in.Cap.MaxInlineData = maxInline + 1 }, verbs.EINVAL},
		} {
			bad := *in
			c.change(&bad)
			if q, err := driver.Of[*pd](e.pd).CreateQP(&bad, nil); !errors.Is(err, c.want) || q != nil {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
		}
		if q, err := driver.Of[*pd](e.pd).CreateGSI(in, nil); !errors.Is(err, verbs.EOPNOTSUPP) || q != nil {
			t.Errorf("QP 1: %v", err)
		}
		in.SendOpsFlags, in.Cap.MaxInlineData = streamOps, maxInline
	})
	_, init, err := e.qp.Query(0)
	okay(t, err)
	if got = init.Cap; got.MaxSendWR < 8 || got.MaxRecvWR < 8 || got.MaxSendSGE < 2 || got.MaxRecvSGE < 2 ||
		got.MaxInlineData != maxInline {
		t.Errorf("the QP has %+v", got)
	}
	drv := driver.Of[*streamQP](e.qp)
	for name, c := range map[string]struct{ says, has int }{
		"sends":            {int(got.MaxSendWR), drv.SQ.Cap()},
		"receives":         {int(got.MaxRecvWR), drv.RQ.Cap()},
		"SGEs of sends":    {int(got.MaxSendSGE), drv.SQ.MaxSGE()},
		"SGEs of receives": {int(got.MaxRecvSGE), drv.RQ.MaxSGE()},
	} {
		if c.says != c.has {
			t.Errorf("%s: the attributes say %d, the queue has %d", name, c.says, c.has)
		}
	}
	if e.drv.FindStream(e.qp.QPN()+1) != nil {
		t.Error("the device finds a QP of another number")
	}
	if num := drv.QPN(); num != e.qp.QPN() || num < minQPN {
		t.Errorf("QP number %d, %d", num, e.qp.QPN())
	}
}

// TestStreamStates: the program moves a QP over TCP to INIT, ERR and RESET; the connection moves it to RTS.
func TestStreamStates(t *testing.T) {
	a, b := newStreamEnd(t, "vrw_a", nil), newStreamEnd(t, "vrw_b", nil)
	drv := driver.Of[*streamQP](a.qp)
	const state = verbs.QPAttrState
	for _, to := range []verbs.QPState{verbs.QPSRTR, verbs.QPSSQD, verbs.QPSSQE} {
		want := error(verbs.EOPNOTSUPP)
		if to == verbs.QPSRTR {
			want = verbs.EINVAL
		}
		if err := drv.Modify(&verbs.QPAttr{QPState: to}, state); !errors.Is(err, want) {
			t.Errorf("to %v: %v, want %v", to, err, want)
		}
	}
	if q, err := drv.Query(); err != nil || q.QPState != verbs.QPSInit || q.PortNum != 1 ||
		q.QPAccessFlags != verbs.AccessRemoteRead|verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic {
		t.Errorf("in INIT: %+v, %v", q, err)
	}
	okay(t, a.qp.PostRecv(verbs.RecvWR{WRID: 1, SGList: a.sge(0, 8)}))
	joinStreams(t, a, b)
	for mask, want := range map[verbs.QPAttrMask]error{state: nil, state | verbs.QPAttrCurState: nil,
		state | verbs.QPAttrAccessFlags: verbs.EOPNOTSUPP} {
		if err := drv.Modify(&verbs.QPAttr{QPState: verbs.QPSRTS}, mask); !errors.Is(err, want) {
			t.Errorf("RTS to RTS with %v: %v, want %v", mask, err, want)
		}
	}
	if err := drv.Modify(&verbs.QPAttr{QPState: verbs.QPSInit}, state); err == nil {
		t.Error("a connected QP went to INIT")
	}
	if q, err := drv.Query(); err != nil || q.QPState != verbs.QPSRTS {
		t.Errorf("connected: %v, %v", q.QPState, err)
	}
	okay(t, drv.Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, state))
	if wc := a.wait(a.recv); wc.WRID != 1 || wc.Status != verbs.WCWRFlushErr {
		t.Errorf("the receive of a QP in ERR: %+v", wc)
	}
	okay(t, a.qp.PostRecv(verbs.RecvWR{WRID: 2, SGList: a.sge(0, 8)}))
	if wc := a.wait(a.recv); wc.WRID != 2 || wc.Status != verbs.WCWRFlushErr {
		t.Errorf("a receive posted in ERR: %+v", wc)
	}
	okay(t, drv.Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, state))
	if q, err := drv.Query(); err != nil || q.QPState != verbs.QPSReset || q.PortNum != 0 || q.QPAccessFlags != 0 {
		t.Errorf("after RESET: %+v, %v", q, err)
	}
	if n, err := drv.PostRecv([]verbs.RecvWR{{WRID: 3}}); n != 0 || !errors.Is(err, verbs.EINVAL) {
		t.Errorf("a receive in RESET: %d, %v", n, err)
	}
}

// TestStreamRightsOfAQP: a peer has the rights that the QP got in INIT, whatever its regions permit.
func TestStreamRightsOfAQP(t *testing.T) {
	a, b := newStreamEnd(t, "vrw_a", nil), newStreamEnd(t, "vrw_b", nil)
	b.toInit(verbs.AccessRemoteWrite)
	joinStreams(t, a, b)
	a.done(verbs.SendWR{WRID: 1, Opcode: verbs.WRRDMAWrite, SGList: a.sge(0, 4), RemoteAddr: b.mr.Addr(),
		RKey: b.mr.RKey()})
	okay(t, a.qp.PostSend(verbs.SendWR{WRID: 2, Opcode: verbs.WRRDMARead, SGList: a.sge(0, 4), RemoteAddr: b.mr.Addr(),
		RKey: b.mr.RKey()}))
	if wc := a.wait(a.send); wc.WRID != 2 || wc.Status != verbs.WCRemAccessErr {
		t.Errorf("a READ without the right: %+v", wc)
	}
}

// TestStreamSharedReceives: a QP over TCP takes receives from an SRQ, which keeps its size.
func TestStreamSharedReceives(t *testing.T) {
	var srq *verbs.SRQ
	a := newStreamEnd(t, "vrw_a", nil)
	b := newStreamEnd(t, "vrw_b", func(e *streamEnd, in *verbs.QPInitAttr) {
		var err error
		srq, err = e.pd.CreateSRQ(&verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: 4, MaxSGE: 1}})
		okay(t, err)
		t.Cleanup(func() { okay(t, srq.Close()) })
		if _, err := driver.Of[*pd](e.pd).CreateSRQ(&verbs.SRQInitAttr{Type: verbs.SRQTypeTM}, nil); !errors.Is(err,
			verbs.EOPNOTSUPP) {
			t.Errorf("an SRQ with tag matching: %v", err)
		}
		in.SRQ, in.Cap.MaxRecvWR, in.Cap.MaxRecvSGE = srq, 0, 0
	})
	okay(t, srq.PostRecv(verbs.RecvWR{WRID: 5, SGList: b.sge(0, 8)}))
	joinStreams(t, a, b)
	a.done(verbs.SendWR{WRID: 1, Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: []byte{1, 2, 3}})
	if wc := b.wait(b.recv); wc.WRID != 5 || wc.ByteLen != 3 || wc.Status != verbs.WCSuccess {
		t.Errorf("%+v", wc)
	}
	d := b.dev.describe(true)
	if len(d.Objects.SRQs) != 1 || !slices.Equal(d.Objects.SRQs[0].QPs, []uint32{b.qp.QPN()}) {
		t.Errorf("the report has %+v", d.Objects.SRQs)
	}
}

// TestStreamReports: reports have the QPs over TCP with both ends of the connection, and the counters of the traffic.
func TestStreamReports(t *testing.T) {
	a, b := newStreamEnd(t, "vrw_a", nil), newStreamEnd(t, "vrw_b", nil)
	for i, want := range []string{"INIT", "RTS"} {
		if i == 1 {
			joinStreams(t, a, b)
			a.done(verbs.SendWR{WRID: 1, Opcode: verbs.WRRDMAWrite, SGList: a.sge(0, 1000), RemoteAddr: b.mr.Addr(),
				RKey: b.mr.RKey()})
		}
		d := a.dev.describe(true)
		if len(d.QPs) != 1 || len(d.Counters) == 0 {
			t.Fatalf("%+v", d)
		}
		q := d.QPs[0]
		if q.Num != a.qp.QPN() || q.Type != "RC" || q.State != want || q.Mig != "MIGRATED" || len(q.Counters) == 0 {
			t.Errorf("%+v", q)
		}
		if i == 0 && (q.Port != 0 || q.Peer != "" || q.Local != "") || i == 1 && (q.Port != 1 || q.Peer == "" ||
			q.Local == "" || q.Local == q.Peer) {
			t.Errorf("in %v: port %d, %q to %q", want, q.Port, q.Local, q.Peer)
		}
		users := 0
		for _, cq := range d.Objects.CQs {
			users += cq.Users
		}
		if users != 2 || len(d.Objects.PDs) != 1 || d.Objects.PDs[0].Users != 2 || d.Objects.PDs[0].Num != q.PD {
			t.Errorf("the objects have the users %+v, %+v", d.Objects.CQs, d.Objects.PDs)
		}
	}
	sent := func(list []Counter) uint64 {
		i := slices.IndexFunc(list, func(c Counter) bool { return c.Name == "tx_data_bytes" })
		if i < 0 {
			t.Fatalf("%+v", list)
		}
		return list[i].Value
	}
	for where, list := range map[string][]Counter{"QP": QPCounters(a.qp), "device": Counters(a.ctx.Device()),
		"device itself": a.dev.counters()} {
		if n := sent(list); n != 1000 {
			t.Errorf("%s: %d bytes", where, n)
		}
	}
	if list := ShardCounters(a.ctx.Device()); list != nil {
		t.Errorf("counters of shards, which an iWARP device does not have: %+v", list)
	}
}

// TestStreamAttributes: the attributes of an iWARP device leave out what it does not have.
func TestStreamAttributes(t *testing.T) {
	e := newStreamEnd(t, "vrw_a", nil)
	a, err := e.ctx.QueryDevice()
	okay(t, err)
	groups := a.MaxMcastGrp | a.MaxMcastQPAttach | a.MaxTotalMcastQPAttach
	if a.MaxSGE != streamSGE || a.MaxSGERd != streamRdSGE || groups != 0 || a.MaxAH != 0 || a.XRCODPCaps != 0 ||
		a.ODPCaps != (verbs.ODPCaps{}) || a.TMCaps != (verbs.TMCaps{}) || a.TSOCaps != (verbs.TSOCaps{}) ||
		a.PacketPacingCaps != (verbs.PacketPacingCaps{}) {
		t.Errorf("%+v", a)
	}
	const want = verbs.DevicePortActiveEvent | verbs.DeviceSysImageGUID | verbs.DeviceSRQResize | verbs.DeviceMemWindow |
		verbs.DeviceMemMgtExtensions | verbs.DeviceMemWindowType2B
	if got := a.DeviceCapFlags &^ want; got != 0 || bits.OnesCount64(uint64(a.DeviceCapFlags)) !=
		bits.OnesCount64(uint64(want)) {
		t.Errorf("capabilities %v, want %v", a.DeviceCapFlags, want)
	}
	if _, err := e.drv.OpenXRCD(-1, os.O_CREATE); !errors.Is(err, verbs.EOPNOTSUPP) {
		t.Errorf("an XRC domain: %v", err)
	}
	if _, err := driver.Of[*pd](e.pd).CreateAH(verbs.AHAttr{PortNum: 1}); !errors.Is(err, verbs.EOPNOTSUPP) {
		t.Errorf("an address handle: %v", err)
	}
	if _, err := driver.Of[*pd](e.pd).CreateWQ(&verbs.WQInitAttr{}, nil); !errors.Is(err, verbs.ENOSYS) {
		t.Errorf("a work queue: %v", err)
	}
}
