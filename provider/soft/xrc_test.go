package soft_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"sync"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// openXRCD opens a new domain, or another reference to the domain of a file.
func (e *end) openXRCD(attr *verbs.XRCDInitAttr) *verbs.XRCD {
	e.tb.Helper()
	d := get(e.ctx.OpenXRCD(attr))(e.tb)
	e.tb.Cleanup(func() { must(e.tb, d.Close()) })
	return d
}

// xrcSRQ makes an SRQ of a domain, which completes into the end's CQ, and returns its number.
func (e *end) xrcSRQ(d *verbs.XRCD) (*verbs.SRQ, uint32) {
	e.tb.Helper()
	srq := get(e.pd.CreateSRQ(&verbs.SRQInitAttr{
		Attr: verbs.SRQAttr{MaxWR: 64, MaxSGE: 4}, Type: verbs.SRQTypeXRC, XRCD: d, CQ: e.cq,
	}))(e.tb)
	e.tb.Cleanup(func() {
		if err := srq.Close(); !errors.Is(err, verbs.ErrClosed) {
			must(e.tb, err)
		}
	})
	return srq, get(srq.Num())(e.tb)
}

func (e *end) xrcRecv(d *verbs.XRCD) *verbs.QP {
	e.tb.Helper()
	qp := get(d.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeXRCRecv}))(e.tb)
	e.tb.Cleanup(func() {
		if err := qp.Close(); !errors.Is(err, verbs.ErrClosed) {
			must(e.tb, err)
		}
	})
	return qp
}

func to(srqn uint32, wr verbs.SendWR) verbs.SendWR {
	wr.RemoteSRQN = srqn
	return wr
}

// xrc is a sender, and two programs on one device that share a domain by a file: each has its own SRQ, and one of
// them the QP that the sender is connected to.
type xrc struct {
	a, b, c  *end
	qs, qr   *verbs.QP
	db, dc   *verbs.XRCD
	sb, sc   *verbs.SRQ
	nb, nc   uint32
	fileAttr verbs.XRCDInitAttr
}

func newXRC(tb testing.TB, n *network, opts *verbs.ConnectOptions) *xrc {
	ends := newEnds(tb, n, 2, nil)
	x := &xrc{a: ends[0], b: ends[1], c: newEnd(tb, ends[1].dev), fileAttr: domainFile(tb)}
	x.db, x.dc = x.b.openXRCD(&x.fileAttr), x.c.openXRCD(&x.fileAttr)
	x.sb, x.nb = x.b.xrcSRQ(x.db)
	x.qs, x.qr = x.a.qp(verbs.QPTypeXRCSend, nil), x.b.xrcRecv(x.db)
	x.sc, x.nc = x.c.xrcSRQ(x.dc)
	join(tb, x.qs, x.qr, opts)
	return x
}

func TestV_SEND_15_TwoProgramsShareAConnection(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		x := newXRC(t, n, nil)
		x.a.fill(3)
		for i := range uint64(20) {
			must(t, x.sb.PostRecv(recv(x.b, i, 10000)))
			must(t, x.sc.PostRecv(recv(x.c, 100+i, 10000)))
		}
		for i := range 20 {
			wr := to(x.nb, send(x.a, 10000))
			if i%3 == 0 {
				wr = to(x.nc, wr)
				wr.Opcode, wr.ImmData = verbs.WRSendWithImm, uint32(i)
			}
			must(t, x.qs.PostSend(wr))
		}
		x.a.good(20)
		for i, wc := range x.b.good(13) {
			if wc.WRID != uint64(i) || wc.QPNum != x.qr.QPN() || wc.ByteLen != 10000 || wc.Opcode != verbs.WCRecv {
				t.Errorf("%+v", wc)
			}
		}
		for i, wc := range x.c.good(7) {
			if wc.WRID != uint64(100+i) || wc.QPNum != x.qr.QPN() || wc.ImmData != uint32(3*i) {
				t.Errorf("%+v", wc)
			}
		}
		if !bytes.Equal(x.b.buf[:10000], x.a.buf[:10000]) || !bytes.Equal(x.c.buf[:10000], x.a.buf[:10000]) {
			t.Error("the received bytes differ")
		}
	})
}

// TestV_GEN_07_RDMAInTheDomainOfTheSRQ: RDMA accesses the memory of the program whose SRQ the request names, and no
// other memory.
func TestV_GEN_07_RDMAInTheDomainOfTheSRQ(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		x := newXRC(t, n, nil)
		x.a.fill(5)
		x.c.fill(6)
		binary.NativeEndian.PutUint64(x.c.buf[1<<16:], 40)
		rdma := func(op verbs.WROpcode, at, size int) verbs.SendWR {
			return verbs.SendWR{
				Opcode: op, Flags: verbs.SendSignaled, SGList: []verbs.SGE{x.a.mr.SGE(at, size)}, RemoteSRQN: x.nc,
				RemoteAddr: x.c.mr.Addr() + uint64(at), RKey: x.c.mr.RKey(), CompareAdd: 2,
			}
		}
		must(t, x.sc.PostRecv(recv(x.c, 7, 0)))
		must(t, x.qs.PostSend(rdma(verbs.WRRDMAWrite, 0, 20000), rdma(verbs.WRRDMARead, 30000, 20000),
			rdma(verbs.WRAtomicFetchAndAdd, 1<<16, 8), rdma(verbs.WRRDMAWriteWithImm, 70000, 3000)))
		x.a.good(4)
		if wc := x.c.good(1)[0]; wc.WRID != 7 || wc.Opcode != verbs.WCRecvRDMAWithImm || wc.ByteLen != 3000 {
			t.Errorf("%+v", wc)
		}
		for _, r := range [][2]int{{0, 20000}, {30000, 50000}, {70000, 73000}} {
			if !bytes.Equal(x.a.buf[r[0]:r[1]], x.c.buf[r[0]:r[1]]) {
				t.Errorf("bytes %d to %d differ", r[0], r[1])
			}
		}
		was, is := binary.NativeEndian.Uint64(x.a.buf[1<<16:]), binary.NativeEndian.Uint64(x.c.buf[1<<16:])
		if was != 40 || is != 42 {
			t.Errorf("the atomic found %d and left %d", was, is)
		}
		must(t, x.qs.PostSend(to(x.nb, rdma(verbs.WRRDMAWrite, 0, 8)))) // the other program's SRQ
		if wc := x.a.poll(1)[0]; wc.Status != verbs.WCRemAccessErr {
			t.Errorf("%+v", wc)
		}
	})
}

func TestV_GEN_12_XRCReceiverNotReady(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		x := newXRC(t, n, &verbs.ConnectOptions{MinRNRTimer: 1})
		must(t, x.sc.PostRecv(recv(x.c, 1, 10)))
		must(t, x.qs.PostSend(to(x.nb, send(x.a, 10))))
		for counter(x.b.dev, "send_rnr_err") == 0 {
			_ = get(x.a.cq.Poll(make([]verbs.WC, 1)))(t)
			_ = get(x.b.cq.Poll(make([]verbs.WC, 1)))(t)
		}
		must(t, x.sb.PostRecv(recv(x.b, 2, 10)))
		x.a.good(1)
		if wc := x.b.good(1)[0]; wc.WRID != 2 {
			t.Errorf("%+v", wc)
		}
	})
}

// TestV_TR_02_XRCDespiteLoss: all messages arrive complete and in order over a network that loses packets.
func TestV_TR_02_XRCDespiteLoss(t *testing.T) {
	x := newXRC(t, onFabric(mem.NewFabric(mem.Config{Seed: 7, Faults: lossy})), nil)
	x.a.fill(4)
	const msgs, size = 30, 20000
	for i := range msgs {
		must(t, x.sb.PostRecv(verbs.RecvWR{WRID: uint64(i), SGList: []verbs.SGE{x.b.mr.SGE(i*size, size)}}))
		must(t, x.qs.PostSend(verbs.SendWR{Opcode: verbs.WRSend, SGList: []verbs.SGE{x.a.mr.SGE(i*size, size)},
			RemoteSRQN: x.nb}))
	}
	for i, wc := range x.b.good(msgs) {
		if wc.WRID != uint64(i) || wc.ByteLen != size {
			t.Fatalf("%+v", wc)
		}
	}
	if !bytes.Equal(x.a.buf[:msgs*size], x.b.buf[:msgs*size]) {
		t.Error("the received bytes differ")
	}
}

// TestV_AE_13_XRCToUnknownSRQ: a message to an unknown or closed SRQ ends the connection, and both sides get an
// error.
func TestV_AE_13_XRCToUnknownSRQ(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		for name, srqn := range map[string]func(x *xrc) uint32{
			"never":  func(x *xrc) uint32 { return x.nb ^ x.nc ^ 0x800000 },
			"closed": func(x *xrc) uint32 { must(t, x.sc.Close()); return x.nc },
			"other domain": func(x *xrc) uint32 {
				_, num := x.b.xrcSRQ(x.b.openXRCD(nil))
				return num
			},
		} {
			t.Run(name, func(t *testing.T) {
				x := newXRC(t, n, nil)
				must(t, x.sb.PostRecv(recv(x.b, 1, 10)))
				must(t, x.qs.PostSend(to(srqn(x), send(x.a, 10))))
				if wc := x.a.poll(1)[0]; wc.Status != verbs.WCRemInvReqErr {
					t.Errorf("%+v", wc)
				}
				for _, want := range []verbs.EventType{verbs.EventQPReqErr, verbs.EventQPLastWQEReached} {
					if ev := nextEvent(t, x.b); ev.Type != want || ev.QP != x.qr {
						t.Errorf("event %+v, want %v", ev, want)
					}
				}
				if x.qr.State() != verbs.QPSErr {
					t.Errorf("in %v", x.qr.State())
				}
				if k := get(x.b.cq.Poll(make([]verbs.WC, 1)))(t); k != 0 {
					t.Error("a receive of the SRQ was flushed")
				}
			})
		}
	})
}

func TestV_AE_20_XRCLimit(t *testing.T) {
	x := newXRC(t, &networks[0], nil)
	for i := range uint64(2) {
		must(t, x.sc.PostRecv(recv(x.c, i, 10)))
	}
	must(t, x.sc.Modify(&verbs.SRQAttr{SRQLimit: 2}, verbs.SRQAttrLimit))
	must(t, x.qs.PostSend(to(x.nc, send(x.a, 1))))
	x.c.good(1)
	if ev := nextEvent(t, x.c); ev.Type != verbs.EventSRQLimitReached || ev.SRQ != x.sc {
		t.Errorf("event %+v", ev)
	}
}

// TestV_AE_21_XRCWithOverflowedCQ: after an overflow of the CQ of an SRQ the SRQ is in error, and so is the QP that
// delivered to it. The other program's SRQ works.
func TestV_AE_21_XRCWithOverflowedCQ(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		x := newXRC(t, n, nil)
		small := get(x.c.ctx.CreateCQ(2, nil))(t)
		t.Cleanup(func() { must(t, small.Close()) })
		srq := get(x.c.pd.CreateSRQ(&verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: 8, MaxSGE: 1}, Type: verbs.SRQTypeXRC,
			XRCD: x.dc, CQ: small}))(t)
		t.Cleanup(func() { must(t, srq.Close()) })
		num := get(srq.Num())(t)
		for i := range small.Cap() + 1 {
			must(t, srq.PostRecv(recv(x.c, uint64(i), 10)))
			must(t, x.qs.PostSend(to(num, send(x.a, 10))))
		}
		if ev := nextEvent(t, x.c); ev.Type != verbs.EventCQErr || ev.CQ != small {
			t.Errorf("event %+v", ev)
		}
		if ev := nextEvent(t, x.c); ev.Type != verbs.EventSRQErr || ev.SRQ != srq {
			t.Errorf("event %+v", ev)
		}
		if ev := nextEvent(t, x.b); ev.Type != verbs.EventQPFatal || ev.QP != x.qr || x.qr.State() != verbs.QPSErr {
			t.Errorf("event %+v, the QP is in %v", ev, x.qr.State())
		}
		if ev := nextEvent(t, x.b); ev.Type != verbs.EventQPLastWQEReached || ev.QP != x.qr {
			t.Errorf("event %+v", ev)
		}
		// Any other QP that delivers to the SRQ fails as well: for the device the SRQ does not exist any
		// more.
		late, next := x.a.qp(verbs.QPTypeXRCSend, nil), x.b.xrcRecv(x.db)
		join(t, late, next, nil)
		must(t, late.PostSend(to(num, send(x.a, 10))))
		if ev := nextEvent(t, x.b); ev.Type != verbs.EventQPReqErr || ev.QP != next || next.State() != verbs.QPSErr {
			t.Errorf("event %+v, the next QP is in %v", ev, next.State())
		}
		if _, err := x.c.pd.CreateSRQ(&verbs.SRQInitAttr{
			Attr: verbs.SRQAttr{MaxWR: 8, MaxSGE: 1}, Type: verbs.SRQTypeXRC, XRCD: x.dc, CQ: small,
		}); !errors.Is(err, syscall.EIO) {
			t.Errorf("one more SRQ on that CQ: %v", err)
		}
		// The same through another connection.
		qs, qr := x.a.qp(verbs.QPTypeXRCSend, nil), x.b.xrcRecv(x.db)
		join(t, qs, qr, nil)
		must(t, x.sb.PostRecv(recv(x.b, 5, 10)))
		must(t, qs.PostSend(to(x.nb, send(x.a, 10))))
		if wc := x.b.good(1)[0]; wc.WRID != 5 {
			t.Errorf("%+v", wc)
		}
		// The same through the failed QP, after a reset.
		must(t, x.qr.Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, verbs.QPAttrState))
		again := x.a.qp(verbs.QPTypeXRCSend, nil)
		join(t, again, x.qr, nil)
		must(t, x.sb.PostRecv(recv(x.b, 6, 10)))
		must(t, again.PostSend(to(x.nb, send(x.a, 10))))
		if wc := x.b.good(1)[0]; wc.WRID != 6 {
			t.Errorf("%+v", wc)
		}
	})
}

// TestV_QPD_03_XRCCompletionsStay: completions of receives stay in the CQ after the QP is destroyed; they belong to
// the SRQ.
func TestV_QPD_03_XRCCompletionsStay(t *testing.T) {
	x := newXRC(t, &networks[0], nil)
	for i := range uint64(2) {
		must(t, x.sc.PostRecv(recv(x.c, i, 10)))
		must(t, x.qs.PostSend(to(x.nc, send(x.a, 10))))
	}
	x.a.good(2)
	must(t, x.qr.Close())
	x.c.good(2)
}

// TestV_SRQ_18_XRCCloseRemovesCompletions: closing an SRQ removes its completions from the CQ.
func TestV_SRQ_18_XRCCloseRemovesCompletions(t *testing.T) {
	x := newXRC(t, &networks[0], nil)
	must(t, x.sc.PostRecv(recv(x.c, 1, 10)))
	must(t, x.qs.PostSend(to(x.nc, send(x.a, 10))))
	x.a.good(1)
	must(t, x.sc.Close())
	if k := get(x.c.cq.Poll(make([]verbs.WC, 1)))(t); k != 0 {
		t.Error("a completion of a closed SRQ")
	}
}

func TestV_QPO_01_V_QPO_03_OpenQP(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		x := newXRC(t, n, nil)
		open := verbs.QPOpenAttr{QPNum: x.qr.QPN(), XRCD: x.dc, Type: verbs.QPTypeXRCRecv, Context: "c"}
		handle := get(x.c.ctx.OpenQP(&open))(t)
		if handle.QPN() != x.qr.QPN() || handle.State() != verbs.QPSRTS || handle.QPContext() != "c" {
			t.Errorf("%+v", handle)
		}
		attr, _, err := handle.Query(verbs.QPAttrDestQPN)
		if err != nil || attr.DestQPNum != x.qs.QPN() || attr.PortNum != 1 {
			t.Errorf("%+v, %v", attr, err)
		}
		for _, num := range []uint32{x.qs.QPN(), x.qr.QPN() ^ 0x400000} {
			_, err := x.c.ctx.OpenQP(&verbs.QPOpenAttr{QPNum: num, XRCD: x.dc, Type: verbs.QPTypeXRCRecv})
			if !errors.Is(err, verbs.EINVAL) {
				t.Errorf("QP %#x: %v", num, err)
			}
		}
		if _, err := x.b.ctx.OpenQP(&verbs.QPOpenAttr{QPNum: x.qr.QPN(), XRCD: x.b.openXRCD(nil),
			Type: verbs.QPTypeXRCRecv}); !errors.Is(err, verbs.EINVAL) {
			t.Errorf("in another domain: %v", err)
		}

		// V_QPO_03: the QP exists as long as a handle does.
		must(t, x.qr.Close())
		must(t, x.sc.PostRecv(recv(x.c, 1, 10)))
		must(t, x.qs.PostSend(to(x.nc, send(x.a, 10))))
		x.a.good(1)
		x.c.good(1)
		must(t, handle.Close())
		if _, err := x.c.ctx.OpenQP(&open); !errors.Is(err, verbs.EINVAL) {
			t.Errorf("the QP still exists: %v", err)
		}
	})
}

// TestX_QPO_01_HandlesShareTheQP: all handles have the QP's state, whichever handle modified it, and receive its
// events.
func TestX_QPO_01_HandlesShareTheQP(t *testing.T) {
	x := newXRC(t, &networks[0], nil)
	open := verbs.QPOpenAttr{QPNum: x.qr.QPN(), XRCD: x.dc, Type: verbs.QPTypeXRCRecv}
	handle := get(x.c.ctx.OpenQP(&open))(t)
	t.Cleanup(func() { must(t, handle.Close()) })
	must(t, handle.Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, verbs.QPAttrState))
	if x.qr.State() != verbs.QPSErr {
		t.Errorf("in %v", x.qr.State())
	}
	for _, e := range []struct {
		*end
		qp *verbs.QP
	}{{x.b, x.qr}, {x.c, handle}} {
		if ev := nextEvent(t, e.end); ev.Type != verbs.EventQPLastWQEReached || ev.QP != e.qp {
			t.Errorf("event %+v", ev)
		}
	}
	// One handle modifies it to INIT, the other one further.
	must(t, x.qs.Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, verbs.QPAttrState))
	must(t, x.qr.Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, verbs.QPAttrState))
	must(t, x.qr.Modify(&verbs.QPAttr{QPState: verbs.QPSInit, PortNum: 1, QPAccessFlags: verbs.AccessRemoteWrite},
		verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags))
	if handle.State() != verbs.QPSInit {
		t.Errorf("the handle is in %v", handle.State())
	}
	join(t, x.qs, handle, nil)
	if x.qr.State() != verbs.QPSRTS {
		t.Errorf("in %v", x.qr.State())
	}
	must(t, x.sb.PostRecv(recv(x.b, 1, 10)))
	must(t, x.qs.PostSend(to(x.nb, send(x.a, 10))))
	x.b.good(1)
}

// TestXRCConcurrently: handles, SRQs and messages are made and closed concurrently.
func TestXRCConcurrently(t *testing.T) {
	x := newXRC(t, &networks[0], nil)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	again := func(f func()) {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					f()
				}
			}
		})
	}
	again(func() {
		qp, err := x.c.ctx.OpenQP(&verbs.QPOpenAttr{QPNum: x.qr.QPN(), XRCD: x.dc, Type: verbs.QPTypeXRCRecv})
		if err == nil {
			_, _, err = qp.Query(verbs.QPAttrState)
		}
		if err == nil {
			err = qp.Close()
		}
		if err != nil {
			t.Error(err)
		}
	})
	again(func() {
		srq, err := x.c.pd.CreateSRQ(&verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: 1, MaxSGE: 1}, Type: verbs.SRQTypeXRC,
			XRCD: x.dc, CQ: x.c.cq})
		if err == nil {
			err = srq.Close()
		}
		if err != nil {
			t.Error(err)
		}
	})
	again(func() {
		d, err := x.c.ctx.OpenXRCD(&x.fileAttr)
		if err == nil {
			err = d.Close()
		}
		if err != nil {
			t.Error(err)
		}
	})
	for i := range uint64(50) {
		must(t, x.sb.PostRecv(recv(x.b, i, 5000)))
		must(t, x.qs.PostSend(to(x.nb, send(x.a, 5000))))
		x.a.good(1)
		if wc := x.b.good(1)[0]; wc.WRID != i {
			t.Errorf("%+v", wc)
		}
	}
	close(stop)
	wg.Wait()
}

// TestV_GEN_07_XRCFlush: a FLUSH carries the SRQ number, as every request of an XRC connection, even as the first
// request of its queue.
func TestV_GEN_07_XRCFlush(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		x := newXRC(t, n, nil)
		mr := get(x.c.pd.RegMR(make([]byte, 64), allAccess|verbs.AccessFlushGlobal))(t)
		defer func() { must(t, mr.Close()) }()
		must(t, x.qr.Modify(&verbs.QPAttr{QPAccessFlags: allAccess | verbs.AccessFlushGlobal}, verbs.QPAttrAccessFlags))
		must(t, x.qs.PostSend(verbs.SendWR{
			Opcode: verbs.WRFlush, Flags: verbs.SendSignaled, RemoteAddr: mr.Addr(), RKey: mr.RKey(), RemoteSRQN: x.nc,
			Flush: verbs.Flush{Length: 64, Type: verbs.FlushGlobal},
		}))
		if wc := x.a.good(1)[0]; wc.Opcode != verbs.WCFlush {
			t.Errorf("%+v", wc)
		}
	})
}
