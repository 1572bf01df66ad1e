package soft_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

const allOps = verbs.QPExWithRDMAWrite | verbs.QPExWithRDMAWriteWithImm | verbs.QPExWithSend |
	verbs.QPExWithSendWithImm | verbs.QPExWithRDMARead |
	verbs.QPExWithAtomicCmpAndSwp | verbs.QPExWithAtomicFetchAndAdd | verbs.QPExWithLocalInv | verbs.QPExWithBindMW |
	verbs.QPExWithSendWithInv

// qpEx makes a QP with an extended posting interface for ops.
func (e *end) qpEx(t verbs.QPType, ops verbs.SendOpsFlags) *verbs.QPEx {
	e.tb.Helper()
	qp := get(e.pd.CreateQP(&verbs.QPInitAttr{
		Type: t, SendCQ: e.cq, RecvCQ: e.cq,
		Cap:          verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInlineData: 64},
		SendOpsFlags: ops,
	}))(e.tb)
	e.tb.Cleanup(func() { must(e.tb, qp.Close()) })
	return get(qp.Ex())(e.tb)
}

// connectEx makes a connected pair of RC QPs, the first with an extended posting interface.
func connectEx(a, b *end) (*verbs.QPEx, *verbs.QP) {
	a.tb.Helper()
	x, qb := a.qpEx(verbs.QPTypeRC, allOps), b.qp(verbs.QPTypeRC, nil)
	join(a.tb, x.QP(), qb, nil)
	return x, qb
}

// stepper polls a CQ in batches, into its WC.
type stepper struct {
	*verbs.CQ
	verbs.WC
}

// withCQ replaces the CQ of an end.
func (e *end) withCQ(cqe int, opts verbs.CQOptions) *stepper {
	e.tb.Helper()
	must(e.tb, e.cq.Close())
	e.cq = get(e.ctx.CreateCQ(cqe, &opts))(e.tb)
	return &stepper{CQ: e.cq}
}

// start waits for a completion and begins a batch with it.
func start(tb testing.TB, x *stepper) {
	tb.Helper()
	for begun := time.Now(); ; {
		err := x.StartPoll(&x.WC)
		if err == nil {
			return
		}
		if !errors.Is(err, verbs.ENOENT) || time.Since(begun) > 10*time.Second {
			tb.Fatal(err)
		}
	}
}

// next waits for a completion and ends its batch.
func next(tb testing.TB, x *stepper) {
	tb.Helper()
	start(tb, x)
	x.EndPoll()
	must(tb, x.Err())
}

func TestV_WR_14_V_WR_15_V_WR_16_V_WR_17_V_WR_18_D_06_EveryOperation(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		x, qb := connectEx(a, b)
		a.fill(1)
		mw := get(b.pd.AllocMW(verbs.MWType2))(t)
		region := get(b.pd.RegMR(make([]byte, 100), allAccess|verbs.AccessMWBind))(t)
		t.Cleanup(func() { must(t, mw.Close()); must(t, region.Close()) })
		key := verbs.IncRKey(mw.RKey())
		must(t, qb.PostSend(verbs.SendWR{
			Opcode: verbs.WRBindMW, Flags: verbs.SendSignaled, MW: mw, RKey: key,
			BindInfo: &verbs.MWBindInfo{MR: region, Addr: region.Addr(), Length: 100, Access: verbs.AccessRemoteWrite},
		}))
		b.good(1)
		for i := range 4 {
			must(t, qb.PostRecv(verbs.RecvWR{WRID: uint64(i), SGList: []verbs.SGE{b.mr.SGE(1000+100*i, 100)}}))
		}
		rkey, at := b.mr.RKey(), b.mr.Addr()
		binary.NativeEndian.PutUint64(b.buf[800:], 5)

		x.Start()
		x.WRID, x.WRFlags = 1, verbs.SendSignaled
		x.RDMAWrite(rkey, at)
		x.SetSGEList([]verbs.SGE{a.mr.SGE(0, 10), a.mr.SGE(20, 10)})
		x.WRID = 2
		x.RDMARead(rkey, at)
		x.SetSGE(a.mr.SGE(500, 20))
		x.WRID, x.WRFlags = 3, verbs.SendSignaled|verbs.SendFence
		x.AtomicFetchAdd(rkey, at+800, 3)
		x.SetSGE(a.mr.SGE(600, 8))
		x.WRID = 4
		x.AtomicCmpSwp(rkey, at+800, 8, 100)
		x.SetSGE(a.mr.SGE(608, 8))
		x.WRID, x.WRFlags = 5, verbs.SendSignaled
		x.Send()
		x.SetInlineData([]byte("send"))
		x.WRID = 6
		x.SendImm(66)
		x.SetInlineDataList([][]byte{[]byte("i"), []byte("mm")})
		x.WRID = 7
		x.RDMAWriteImm(rkey, at+40, 77)
		x.SetSGE(a.mr.SGE(40, 5))
		x.WRID = 8
		x.SendInv(key)
		x.SetSGE(a.mr.SGE(0, 2))
		must(t, x.Complete())

		ops := []verbs.WCOpcode{
			verbs.WCRDMAWrite, verbs.WCRDMARead, verbs.WCFetchAdd, verbs.WCCompSwap, verbs.WCSend, verbs.WCSend,
			verbs.WCRDMAWrite, verbs.WCSend,
		}
		for i, wc := range a.good(8) {
			if wc.WRID != uint64(i+1) || wc.Opcode != ops[i] {
				t.Errorf("completion %d: %+v", i, wc)
			}
		}
		wcs := b.good(4)
		for i, want := range []verbs.WC{
			{WRID: 0, Opcode: verbs.WCRecv, ByteLen: 4},
			{WRID: 1, Opcode: verbs.WCRecv, ByteLen: 3, WCFlags: verbs.WCWithImm, ImmData: 66},
			{WRID: 2, Opcode: verbs.WCRecvRDMAWithImm, ByteLen: 5, WCFlags: verbs.WCWithImm, ImmData: 77},
			{WRID: 3, Opcode: verbs.WCRecv, ByteLen: 2, WCFlags: verbs.WCWithInv, InvalidatedRKey: key},
		} {
			want.QPNum = qb.QPN()
			if wcs[i] != want {
				t.Errorf("receive %d: %+v", i, wcs[i])
			}
		}
		if !bytes.Equal(b.buf[:20], append(append([]byte(nil), a.buf[:10]...), a.buf[20:30]...)) ||
			!bytes.Equal(a.buf[500:520], b.buf[:20]) ||
			!bytes.Equal(b.buf[40:45], a.buf[40:45]) || string(b.buf[1000:1004]) != "send" || string(b.buf[1100:1103]) != "imm" {
			t.Error("wrong bytes")
		}
		u64 := binary.NativeEndian.Uint64
		if u64(a.buf[600:]) != 5 || u64(a.buf[608:]) != 8 || u64(b.buf[800:]) != 100 {
			t.Errorf("atomics: %d, %d, %d", u64(a.buf[600:]), u64(a.buf[608:]), u64(b.buf[800:]))
		}

		// Memory windows of this end.
		ownReport := get(a.pd.AllocMW(verbs.MWType2))(t)
		own := get(a.pd.RegMR(make([]byte, 100), allAccess|verbs.AccessMWBind))(t)
		t.Cleanup(func() { must(t, ownReport.Close()); must(t, own.Close()) })
		key = verbs.IncRKey(ownReport.RKey())
		x.Start()
		x.BindMW(ownReport, key, &verbs.MWBindInfo{MR: own, Addr: own.Addr(), Length: 10, Access: verbs.AccessRemoteRead})
		x.LocalInv(key)
		must(t, x.Complete())
		if wcs := a.good(2); wcs[0].Opcode != verbs.WCBindMW || wcs[1].Opcode != verbs.WCLocalInv {
			t.Errorf("%+v", wcs)
		}
	})
}

func TestV_WR_08_Datagrams(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		_, qb, ah := udPair(t, a, b)
		x := a.qpEx(verbs.QPTypeUD, verbs.QPExWithSend|verbs.QPExWithSendWithImm)
		must(t, x.QP().Connect(verbs.QPInfo{}, nil))
		must(t, qb.PostRecv(recv(b, 1, 100)))
		x.Start()
		x.WRFlags = verbs.SendSignaled
		x.SendImm(9)
		x.SetInlineData([]byte("datagram"))
		x.SetUDAddr(ah, qb.QPN(), verbs.DefaultQKey)
		must(t, x.Complete())
		a.good(1)
		wc := b.good(1)[0]
		if wc.ByteLen != 48 || wc.ImmData != 9 || wc.SrcQP != x.QP().QPN() || string(b.buf[40:48]) != "datagram" {
			t.Errorf("%+v, %q", wc, b.buf[40:48])
		}
	})
}

func TestV_WR_08_XRC(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		r := newXRC(t, n, nil)
		x := r.a.qpEx(verbs.QPTypeXRCSend, allOps)
		qr := r.b.xrcRecv(r.db)
		join(t, x.QP(), qr, nil)
		r.a.fill(1)
		must(t, r.sb.PostRecv(recv(r.b, 1, 100)))
		must(t, r.sc.PostRecv(recv(r.c, 2, 100)))
		x.Start()
		x.WRFlags = verbs.SendSignaled
		x.Send()
		x.SetXRCSRQN(r.nb)
		x.SetInlineData([]byte("to b"))
		x.SendImm(5)
		x.SetSGE(r.a.mr.SGE(0, 7))
		x.SetXRCSRQN(r.nc)
		must(t, x.Complete())
		r.a.good(2)
		if wc := r.b.good(1)[0]; wc.WRID != 1 || wc.QPNum != qr.QPN() || string(r.b.buf[:4]) != "to b" {
			t.Errorf("%+v", wc)
		}
		if wc := r.c.good(1)[0]; wc.WRID != 2 || wc.ImmData != 5 || !bytes.Equal(r.c.buf[:7], r.a.buf[:7]) {
			t.Errorf("%+v", wc)
		}
	})
}

func TestV_WR_04_V_WR_05_NothingRunsBeforeComplete(t *testing.T) {
	ends := newEnds(t, &networks[0], 2, nil)
	a, b := ends[0], ends[1]
	x, _ := connectEx(a, b)
	a.fill(1)
	write := func(n int) {
		x.RDMAWrite(b.mr.RKey(), b.mr.Addr())
		x.SetSGE(a.mr.SGE(0, n))
	}
	untouched := func(when string) {
		t.Helper()
		time.Sleep(2 * time.Millisecond)
		if wcs, err := a.cq.Poll(make([]verbs.WC, 4)); wcs != 0 || err != nil || b.buf[1] != 0 {
			t.Fatalf("%s: %d completions, %v, memory %d", when, wcs, err, b.buf[1])
		}
	}
	x.WRFlags = verbs.SendSignaled
	x.Start()
	write(2)
	untouched("not complete")
	x.Abort()
	untouched("aborted")
	x.Start()
	write(2)
	x.RDMAWrite(b.mr.RKey(), b.mr.Addr())
	// the driver refuses the length
	x.SetSGEList([]verbs.SGE{a.mr.SGE(0, 1<<20), {Addr: a.mr.Addr(), Length: 1<<32 - 1, LKey: a.mr.LKey()}})
	if err := x.Complete(); !errors.Is(err, verbs.EINVAL) {
		t.Fatal(err)
	}
	untouched("refused by the device")
	for range 63 { // all but one slot
		must(t, x.QP().PostSend(verbs.SendWR{Opcode: verbs.WRRDMAWrite}))
	}
	x.Start()
	write(2)
	write(2)
	if err := x.Complete(); !errors.Is(err, verbs.ENOMEM) {
		t.Fatal(err)
	}
	untouched("no room for both")
	x.Start()
	write(2)
	must(t, x.Complete())
	a.good(1)
	if b.buf[1] != a.buf[1] {
		t.Error("nothing was written")
	}
}

func TestV_QPX_10_OperationsOfTheDevice(t *testing.T) {
	e := newEnds(t, &networks[0], 1, nil)[0]
	for _, c := range []verbs.QPInitAttr{
		{Type: verbs.QPTypeUC, SendOpsFlags: verbs.QPExWithFlush},
		{Type: verbs.QPTypeUD, SendOpsFlags: verbs.QPExWithAtomicWrite},
		{Type: verbs.QPTypeUC, SendOpsFlags: verbs.QPExWithRDMARead},
	} {
		c.SendCQ, c.RecvCQ = e.cq, e.cq
		if _, err := e.pd.CreateQP(&c); !errors.Is(err, verbs.EOPNOTSUPP) || errors.Is(err, verbs.EINVAL) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	e.qpEx(verbs.QPTypeUC, allOps&^(verbs.QPExWithRDMARead|verbs.QPExWithAtomicCmpAndSwp|verbs.QPExWithAtomicFetchAndAdd))
}

// ipv4Datagram is the SL of a datagram that was received over IPv4.
const ipv4Datagram = 8 | 2

func TestV_CQX_13_FieldsAtWork(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		x := b.withCQ(256, verbs.CQOptions{WCFlags: verbs.WCStandardFlags})
		qa, qb := connect(a, b, verbs.QPTypeRC, nil)
		ua, ub, ah := udPair(t, a, b)
		must(t, qb.PostRecv(recv(b, 3, 100), recv(b, 4, 2)))
		must(t, ub.PostRecv(recv(b, 5, 100)))
		wr := send(a, 50)
		wr.Opcode, wr.ImmData = verbs.WRSendWithImm, 0x1020304
		must(t, qa.PostSend(wr))
		next(t, x)
		if x.WRID != 3 || x.Opcode != verbs.WCRecv || x.ByteLen != 50 || x.WCFlags != verbs.WCWithImm ||
			x.ImmData != 0x1020304 || x.QPNum != qb.QPN() || x.Timestamp != 0 {
			t.Errorf("%+v", x)
		}
		dgram := send(a, 10)
		dgram.AH, dgram.RemoteQPN, dgram.RemoteQKey = ah, ub.QPN(), verbs.DefaultQKey
		must(t, ua.PostSend(dgram))
		next(t, x)
		if x.WRID != 5 || x.ByteLen != 50 || x.WCFlags != verbs.WCGRH || x.SrcQP != ua.QPN() || x.QPNum != ub.QPN() ||
			x.SLID != 0 || x.SL != ipv4Datagram || x.DLIDPathBits != 0 || x.PKeyIndex != 0 {
			t.Errorf("%+v", x)
		}
		must(t, qa.PostSend(send(a, 3))) // too long
		start(t, x)
		if x.WRID != 4 || x.Status != verbs.WCLocLenErr || x.QPNum != qb.QPN() || !errors.Is(x.Err(), verbs.WCLocLenErr) {
			t.Errorf("%+v", x)
		}
		x.EndPoll()
	})
}

// TestV_LIB_04_ConcurrentPollsOfAnExtendedCQ: goroutines that poll a CQ with additional fields at once get each
// completion once.
func TestV_LIB_04_ConcurrentPollsOfAnExtendedCQ(t *testing.T) {
	ends := newEnds(t, &networks[0], 2, nil)
	a, b := ends[0], ends[1]
	a.withCQ(256, verbs.CQOptions{WCFlags: verbs.WCExWithCompletionTimestamp})
	qa, _ := connect(a, b, verbs.QPTypeRC, nil)
	const requests, pollers = 5000, 4
	var seen [requests]atomic.Int32
	var done atomic.Int32
	var all sync.WaitGroup
	for i := range pollers {
		all.Go(func() {
			wcs := make([]verbs.WC, i+1)
			for begun := time.Now(); done.Load() < requests && time.Since(begun) < 20*time.Second; {
				n, err := a.cq.Poll(wcs)
				if err != nil {
					t.Error(err)
					return
				}
				for _, wc := range wcs[:n] {
					seen[wc.WRID].Add(1)
				}
				done.Add(int32(n))
			}
		})
	}
	for i := range requests {
		wr := verbs.SendWR{WRID: uint64(i), Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled}
		for begun := time.Now(); errors.Is(qa.PostSend(wr), verbs.ENOMEM) && time.Since(begun) < 10*time.Second; {
			runtime.Gosched()
		}
	}
	all.Wait()
	for i := range seen {
		if n := seen[i].Load(); n != 1 {
			t.Fatalf("request %d has %d completions", i, n)
		}
	}
}

// TestV_CQX_10_BatchesAtWork: a batch takes completions one by one and leaves the rest in the CQ.
func TestV_CQX_10_BatchesAtWork(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		x := a.withCQ(256, verbs.CQOptions{})
		qa, _ := connect(a, b, verbs.QPTypeRC, nil)
		for i := range 8 {
			must(t, qa.PostSend(verbs.SendWR{WRID: uint64(i), Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled}))
		}
		var got []uint64
		for len(got) < 8 {
			start(t, x)
			got = append(got, x.WRID)
			if err := x.NextPoll(&x.WC); err == nil {
				got = append(got, x.WRID)
			} else if !errors.Is(err, verbs.ErrNoCompletion) {
				t.Fatal(err)
			}
			// During a batch the program may post, and the device continues.
			must(t, qa.PostSend(verbs.SendWR{Opcode: verbs.WRRDMAWrite}))
			x.EndPoll()
		}
		for i, id := range got {
			if id != uint64(i) {
				t.Fatal(got)
			}
		}
	})
}

func TestV_CQX_13_Timestamps(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		x := a.withCQ(256, verbs.CQOptions{WCFlags: verbs.WCExWithCompletionTimestamp |
			verbs.WCExWithCompletionTimestampWallclock})
		if attr := get(a.ctx.QueryDevice())(t); attr.CompletionTimestampMask != 1<<64-1 || attr.HCACoreClock != 1e6 {
			t.Errorf("%+v", attr)
		}
		qa, _ := connect(a, b, verbs.QPTypeRC, nil)
		var raw, wall [2]uint64
		var begin, end [2]time.Time
		for i := range 2 {
			begin[i] = time.Now()
			before := get(a.ctx.QueryRTValues())(t).RawClock
			must(t, qa.PostSend(verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled}))
			time.Sleep(20 * time.Millisecond)
			next(t, x)
			end[i] = time.Now()
			raw[i], wall[i] = x.Timestamp, x.Wallclock
			if after := get(a.ctx.QueryRTValues())(t).RawClock; raw[i] < before || raw[i] > after || after == before {
				t.Errorf("completion at %d, not between %d and %d of the device's clock", raw[i], before, after)
			}
			if w := time.Unix(0, int64(wall[i])); w.Before(begin[i].Round(0)) || w.After(end[i].Round(0)) {
				t.Errorf("completion at %v, not between %v and %v", w, begin[i], end[i])
			}
		}
		if d := time.Duration(raw[1] - raw[0]); d <= 0 || d > end[1].Sub(begin[0]) {
			t.Errorf("%v between the completions; the test took %v", d, end[1].Sub(begin[0]))
		}
	})
}

func TestV_CQX_04_FieldsOfTheDevice(t *testing.T) {
	e := newEnds(t, &networks[0], 1, nil)[0]
	for _, f := range []verbs.CreateCQWCFlags{verbs.WCExWithCVLAN, verbs.WCExWithFlowTag} {
		if _, err := e.ctx.CreateCQ(1, &verbs.CQOptions{WCFlags: f}); !errors.Is(err, verbs.EOPNOTSUPP) {
			t.Errorf("%v: %v", f, err)
		}
	}
}

func TestV_CQX_05_IgnoreOverrun(t *testing.T) {
	ends := newEnds(t, &networks[0], 2, nil)
	a, b := ends[0], ends[1]
	x := a.withCQ(4, verbs.CQOptions{Flags: verbs.CreateCQIgnoreOverrun | verbs.CreateCQSingleThreaded})
	qa, _ := connect(a, b, verbs.QPTypeRC, nil)
	for i := range 64 {
		must(t, qa.PostSend(verbs.SendWR{WRID: uint64(i), Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled}))
		time.Sleep(time.Millisecond / 4) // the device works without calls
	}
	var last uint64
	for begun := time.Now(); last != 63; {
		if time.Since(begun) > 10*time.Second {
			t.Fatalf("the last completion is %d", last)
		}
		start(t, x)
		x.EndPoll()
		if x.Status != verbs.WCSuccess || x.WRID < last {
			t.Fatalf("%+v after %d", x, last)
		}
		last = x.WRID
	}
	if qa.State() != verbs.QPSRTS {
		t.Error(qa.State())
	}
	if ev, err := a.ctx.TryGetAsyncEvent(); !errors.Is(err, verbs.EAGAIN) {
		t.Error(ev, err)
	}
	must(t, qa.PostSend(verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled})) // no slot is lost
	next(t, x)
}

func TestX_CQ_01_V_CQ_18_Moderation(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := newSleeper(t, ends[0]), ends[1]
		if caps := get(a.ctx.QueryDevice())(t).CQModCaps; caps != (verbs.CQModerationCaps{MaxCQCount: 65535,
			MaxCQPeriod: 65535}) {
			t.Errorf("%+v", caps)
		}
		qa, _ := connect(a.end, b, verbs.QPTypeRC, nil)
		write := func() {
			must(t, qa.PostSend(verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled}))
		}
		moderate := func(count, period uint16) {
			attr := verbs.ModifyCQAttr{AttrMask: verbs.CQAttrModerate, Moderate: verbs.ModerateCQ{Count: count, Period: period}}
			must(t, a.cq.Modify(&attr))
		}
		moderate(3, 0)
		must(t, a.cq.ReqNotify(false))
		write()
		write()
		a.noEvent("two of three completions came")
		write()
		a.wait()
		a.good(3)
		moderate(65535, 30000)
		must(t, a.cq.ReqNotify(false))
		begin := time.Now()
		write()
		a.wait() // the program sleeps
		if d := time.Since(begin); d < 30*time.Millisecond {
			t.Errorf("the event came after %v", d)
		}
		a.good(1)
		// A CQ may be closed while its event is delayed.
		cq := get(a.ctx.CreateCQ(16, &verbs.CQOptions{Channel: a.ch}))(t)
		must(t, cq.Modify(&verbs.ModifyCQAttr{AttrMask: verbs.CQAttrModerate, Moderate: verbs.ModerateCQ{Period: 20000}}))
		qp := get(a.pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq,
			Cap: verbs.QPCap{MaxSendWR: 4}}))(t)
		join(t, qp, b.qp(verbs.QPTypeRC, nil), nil)
		must(t, cq.ReqNotify(false))
		must(t, qp.PostSend(verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled}))
		time.Sleep(5 * time.Millisecond)
		must(t, qp.Close())
		must(t, cq.Close())
		ctx, cancel := context.WithTimeout(context.Background(), 40*time.Millisecond)
		defer cancel()
		if cq, err := a.ch.GetEvent(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error("an event of a closed CQ", cq, err)
		}
	})
}

func TestExtendedDataPathAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		cq := a.withCQ(256, verbs.CQOptions{WCFlags: verbs.WCStandardFlags | verbs.WCExWithCompletionTimestamp})
		x, _ := connectEx(a, b)
		work := func() {
			data := [8]byte{1}
			x.Start()
			x.WRFlags = verbs.SendSignaled
			x.RDMAWrite(b.mr.RKey(), b.mr.Addr())
			x.SetInlineData(data[:])
			x.RDMARead(b.mr.RKey(), b.mr.Addr())
			x.SetSGEList([]verbs.SGE{a.mr.SGE(0, 100), a.mr.SGE(200, 100)})
			if err := x.Complete(); err != nil {
				t.Fatal(err)
			}
			for got := 0; got < 2; {
				err := cq.StartPoll(&cq.WC)
				if err != nil {
					continue
				}
				for ; err == nil; err = cq.NextPoll(&cq.WC) {
					if cq.Status != verbs.WCSuccess {
						t.Fatal(cq.Err())
					}
					got++
				}
				cq.EndPoll()
			}
		}
		for range 10 {
			work()
		}
		if n := testing.AllocsPerRun(200, work); n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
}

// TestInlineRoomOfAtomicWrite checks that a QP with ATOMIC_WRITE has room for its 8 bytes, and that others have the
// room that was asked for.
func TestInlineRoomOfAtomicWrite(t *testing.T) {
	e := newEnds(t, &networks[0], 1, nil)[0]
	for _, c := range []struct {
		ops       verbs.SendOpsFlags
		ask, want uint32
	}{
		{0, 0, 0}, {verbs.QPExWithSend | verbs.QPExWithRDMAWrite, 0, 0}, {verbs.QPExWithAtomicWrite, 0, 8},
		{verbs.QPExWithAtomicWrite | verbs.QPExWithSend, 64, 64}, {0, 64, 64},
	} {
		qp := e.qp(verbs.QPTypeRC, func(i *verbs.QPInitAttr) { i.SendOpsFlags, i.Cap.MaxInlineData = c.ops, c.ask })
		_, init, err := qp.Query(verbs.QPAttrCap)
		must(t, err)
		if got := init.Cap.MaxInlineData; got != c.want {
			t.Errorf("operations %v, %d bytes asked for: room for %d, want %d", c.ops, c.ask, got, c.want)
		}
	}
}
