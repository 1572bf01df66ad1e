package verbs

import (
	"bytes"
	"sync"
	"testing"
	"time"
)

func TestV_WR_02_V_WR_03_V_WR_09_V_WR_11_EveryBuilder(t *testing.T) {
	x, drv := newRC(t)
	x.WRID = 100 // before Start
	x.Start()
	x.RDMARead(1, 2)
	x.SetSGE(SGE{3, 4, 5})
	x.WRID, x.WRFlags = 101, SendSignaled|SendFence
	x.RDMAWrite(6, 7)
	x.SetSGEList([]SGE{{8, 9, 10}, {11, 12, 13}})
	x.WRID, x.WRFlags = 102, SendSolicited
	x.RDMAWriteImm(14, 15, 16)
	x.SetInlineData([]byte("write"))
	x.WRFlags = 0
	x.Send()
	x.SetInlineDataList([][]byte{[]byte("a"), nil, []byte("bc")})
	x.SendImm(17)
	x.SetSGEList(nil)
	x.SendInv(18)
	x.SetInlineData(nil)
	x.AtomicCmpSwp(19, 24, 20, 21)
	x.SetSGE(SGE{Length: 8})
	x.AtomicFetchAdd(22, 32, 23)
	x.SetSGE(SGE{Length: 8})
	if len(drv.sent) != 0 {
		t.Fatal("something was posted before Complete") // V-WR-04
	}
	ok(t, x.Complete())
	want := []string{
		`100 RDMA_READ 0 [{3 4 5}] "" rkey=1 addr=2 imm=0 inv=0 cmp=0 swap=0`,
		`101 RDMA_WRITE FENCE|SIGNALED [{8 9 10} {11 12 13}] "" rkey=6 addr=7 imm=0 inv=0 cmp=0 swap=0`,
		`102 RDMA_WRITE_WITH_IMM SOLICITED|INLINE [] "write" rkey=14 addr=15 imm=16 inv=0 cmp=0 swap=0`,
		`102 SEND INLINE [] "abc" rkey=0 addr=0 imm=0 inv=0 cmp=0 swap=0`,
		`102 SEND_WITH_IMM 0 [] "" rkey=0 addr=0 imm=17 inv=0 cmp=0 swap=0`,
		`102 SEND_WITH_INV INLINE [] "" rkey=0 addr=0 imm=0 inv=18 cmp=0 swap=0`,
		`102 ATOMIC_CMP_AND_SWP 0 [{0 8 0}] "" rkey=19 addr=24 imm=0 inv=0 cmp=20 swap=21`,
		`102 ATOMIC_FETCH_AND_ADD 0 [{0 8 0}] "" rkey=22 addr=32 imm=0 inv=0 cmp=23 swap=0`,
	}
	if len(drv.all) != len(want) {
		t.Fatalf("%d requests", len(drv.all))
	}
	for i, w := range want {
		if got := brief(&drv.all[i]); got != w+" qpn=0 qkey=0 srqn=0" {
			t.Errorf("%d: %s\nwant %s", i, got, w)
		}
	}
}

func TestV_WR_15_BindAndInvalidate(t *testing.T) {
	x, drv := newRC(t)
	mw := must(x.QP().PD().AllocMW(MWType2))(t)
	mr := must(x.QP().PD().RegMR(make([]byte, 8), AccessMWBind))(t)
	old, key := mw.RKey(), IncRKey(mw.RKey())
	info := MWBindInfo{MR: mr, Addr: mr.Addr(), Length: 3, Access: AccessRemoteRead}
	x.Start()
	x.BindMW(mw, key, &info)
	info.Length = 4
	x.LocalInv(key)
	if mw.RKey() != old {
		t.Error("the key has changed before Complete")
	}
	ok(t, x.Complete())
	b, l := &drv.all[0], &drv.all[1]
	if b.Opcode != WRBindMW || b.MW != mw || b.RKey != key || b.BindInfo.Length != 3 || b.BindInfo.MR != mr ||
		mw.RKey() != key {
		t.Errorf("%+v", b)
	}
	if l.Opcode != WRLocalInv || l.InvalidateRKey != key {
		t.Errorf("%+v", l)
	}
	for name, build := range map[string]func(){
		"no window":     func() { x.BindMW(nil, key, &info) },
		"no info":       func() { x.BindMW(mw, key, nil) },
		"another key":   func() { x.BindMW(mw, key+0x100, &info) },
		"needless data": func() { x.LocalInv(key); x.SetSGE(SGE{}) },
		"needless SGEs": func() { x.BindMW(mw, key, &info); x.SetSGEList(nil) },
	} {
		x.Start()
		build()
		if err := x.Complete(); err == nil || len(drv.all) != 2 {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i := range x.wrs[:cap(x.wrs)] {
		if x.wrs[:cap(x.wrs)][i].MW != nil {
			t.Error("the QPEx keeps the window")
		}
	}
}

func TestD_41_FlushAndAtomicWriteOfTheBuilder(t *testing.T) {
	x, drv := newRC(t)
	data := [8]byte{1, 2, 3, 4, 5, 6, 7, 8}
	x.Start()
	x.WRID = 1
	x.Flush(2, 3, 1<<31, FlushGlobal|FlushPersistent, FlushMR)
	x.WRID, x.WRFlags = 4, SendFence
	x.AtomicWrite(5, 6, data)
	data[0] = 9
	ok(t, x.Complete())
	f, w := &drv.all[0], &drv.all[1]
	if f.WRID != 1 || f.Opcode != WRFlush || f.RKey != 2 || f.RemoteAddr != 3 || f.Flags != 0 ||
		f.Flush != (Flush{1 << 31, FlushGlobal | FlushPersistent, FlushMR}) {
		t.Errorf("%+v", f)
	}
	if w.WRID != 4 || w.Opcode != WRAtomicWrite || w.RKey != 5 || w.RemoteAddr != 6 || w.Flags != SendFence|SendInline ||
		!bytes.Equal(w.Inline, []byte{1, 2, 3, 4, 5, 6, 7, 8}) {
		t.Errorf("%+v", w)
	}
	qp := x.QP()
	for _, wr := range []SendWR{
		{Opcode: WRFlush},
		{Opcode: WRAtomicWrite},
		{Opcode: WRAtomicWrite, SGList: []SGE{{Length: 7}}},
		{Opcode: WRAtomicWrite, SGList: []SGE{{Length: 4}, {Length: 5}}},
		{Opcode: WRAtomicWrite, Flags: SendInline, Inline: make([]byte, 9)},
	} {
		wantPost(t, qp.PostSend(wr), 0, EINVAL)
	}
	ok(t, qp.PostSend(SendWR{Opcode: WRAtomicWrite, SGList: []SGE{{Length: 4}, {Length: 4}}},
		SendWR{Opcode: WRAtomicWrite, Flags: SendInline, Inline: make([]byte, 8)}))
}

func TestV_WR_05_AnErrorDropsTheBatch(t *testing.T) {
	x, drv := newRC(t)
	good := func() { x.Send(); x.SetSGE(SGE{}) }
	cases := []struct {
		name  string
		build func()
		errno Errno
		part  string
	}{
		{"no data setter at the end", func() { x.Send() }, EINVAL,
			"request 1: SEND: the data (SetSGE and others) is missing"},
		{"no data setter", func() { x.Send(); good() }, EINVAL, "request 1: SEND: the data"},
		{"two data setters", func() { good(); x.SetSGE(SGE{}) }, EINVAL, "set twice"},
		{"address on RC", func() { x.Send(); x.SetUDAddr(nil, 1, 1) }, EINVAL,
			"the address (SetUDAddr) is set twice or does not apply"},
		{"SRQ on RC", func() { x.Send(); x.SetXRCSRQN(1) }, EINVAL, "the SRQ (SetXRCSRQN)"},
		{"inline flag", func() { x.WRFlags = SendInline; good() }, EINVAL, "INLINE"},
		{"unknown flag", func() { x.WRFlags = 1 << 5; good() }, EINVAL, "unknown flags"},
		{"checksum", func() { x.WRFlags = SendIPCsum; good() }, EINVAL, "no checksum offload"},
		{"solicited read", func() { x.WRFlags = SendSolicited; x.RDMARead(1, 1); x.SetSGE(SGE{}) }, EINVAL, "SOLICITED"},
		{"inline read", func() { x.RDMARead(1, 1); x.SetInlineData(nil) }, EINVAL, "INLINE"},
		{"inline too long", func() { x.Send(); x.SetInlineData(make([]byte, 65)) }, EINVAL,
			"65 bytes of inline data: must be 0 to 64"},
		{"inline list too long", func() { x.Send(); x.SetInlineDataList([][]byte{make([]byte, 64), {1}}) }, EINVAL,
			"65 bytes"},
		{"too many SGEs", func() { x.Send(); x.SetSGEList(make([]SGE, 5)) }, EINVAL, "5 SGEs: must be 0 to 4"},
		{"small atomic", func() { x.AtomicFetchAdd(1, 8, 1); x.SetSGE(SGE{Length: 7}) }, EINVAL,
			"7 bytes for the result: must be 8 or more"},
		{"flush with data", func() { x.Flush(1, 8, 8, FlushGlobal, FlushRange); x.SetSGE(SGE{}) }, EINVAL,
			"FLUSH: the data (SetSGE and others) is set twice or does not apply"},
		{"flush of no type", func() { x.Flush(1, 8, 8, 0, FlushRange) }, EINVAL,
			"FLUSH: unknown placement type 0; must be of GLOBAL|PERSISTENT"},
		{"flush of another type", func() { x.Flush(1, 8, 8, 1<<2, FlushRange) }, EINVAL,
			"; must be of GLOBAL|PERSISTENT"},
		{"flush of another level", func() { x.Flush(1, 8, 8, FlushGlobal, 2) }, EINVAL,
			"SelectivityLevel(2); must be RANGE or MR"},
		{"flush of too much", func() { x.Flush(1, 8, 1<<31+1, FlushGlobal, FlushRange) }, EINVAL,
			"2147483649 bytes: must be 0 to"},
		{"atomic write with data", func() { x.AtomicWrite(1, 8, [8]byte{}); x.SetInlineData(nil) }, EINVAL,
			"ATOMIC_WRITE: the data (SetSGE and others) is set twice or does not apply"},
		{"solicited flush", func() { x.WRFlags = SendSolicited; x.Flush(1, 8, 8, FlushGlobal, FlushRange) }, EINVAL,
			"SOLICITED"},
		{"TSO", func() { x.SendTSO([]byte{1}, 100) }, EINVAL, "TSO: must be of"},
		{"queue full", func() {
			for range 8 {
				good()
			}
		}, ENOMEM, "room for 8"},
	}
	for _, c := range cases {
		x.Start()
		x.WRFlags = 0
		good()
		c.build()
		x.WRFlags = 0
		x.Send()
		x.SetSGE(SGE{})
		err := x.Complete()
		refused(t, err, c.errno, "wr_complete", c.part)
		if len(drv.all) != 0 {
			t.Errorf("%s: posted %v", c.name, drv.all)
		}
	}
	// Requests that fit exactly.
	x.Start()
	for range 7 {
		x.Send()
		x.SetInlineData(make([]byte, 64))
	}
	x.Send()
	x.SetSGEList(make([]SGE, 4))
	ok(t, x.Complete())
	if len(drv.all) != 8 {
		t.Errorf("posted %d", len(drv.all))
	}
	drv.room = 9
	x.Start()
	good()
	good()
	refused(t, x.Complete(), ENOMEM, "request 1 of 2") // the driver's
	if len(drv.all) != 8 {
		t.Errorf("posted %d", len(drv.all))
	}
}

// TestPostAllOrNone posts lists of requests that the program built: all or none.
func TestPostAllOrNone(t *testing.T) {
	x, drv := newRC(t)
	send := SendWR{WRID: 1, Opcode: WRSend, Flags: SendSignaled, SGList: []SGE{{1, 2, 3}}}
	ok(t, x.Post())
	ok(t, x.Post(send, send))
	if len(drv.all) != 2 || drv.all[1].WRID != 1 {
		t.Fatalf("posted %v", drv.all)
	}
	bad := send
	bad.Flags |= 1 << 20
	refused(t, x.Post(send, bad), EINVAL, "request 1 of 2 is invalid; none is posted")
	refused(t, x.Post(send, SendWR{Opcode: WRTSO}), EOPNOTSUPP, "request 1 of 2")
	drv.room = 3
	refused(t, x.Post(send, send), ENOMEM, "request 1 of 2")
	if len(drv.all) != 2 {
		t.Errorf("posted %v", drv.all)
	}
	// A list that is being built is independent.
	x.Start()
	x.WRID = 7
	x.Send()
	x.SetSGE(SGE{1, 2, 3})
	ok(t, x.Post(send))
	x.Abort()
	if len(drv.all) != 3 || drv.all[2].WRID != 1 {
		t.Errorf("posted %v", drv.all)
	}
	x.drv = quiet{drv}
	if n := testing.AllocsPerRun(100, func() {
		sges := [1]SGE{{1, 2, 3}}
		if x.Post(SendWR{Opcode: WRSend, SGList: sges[:]}) != nil {
			t.Error("refused")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestV_WR_01_OperationsOfTheQP(t *testing.T) {
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	init := exInit(t, pd, QPTypeRC)
	init.SendOpsFlags, init.Cap.MaxSendSGE = QPExWithSend|QPExWithRDMARead, 1
	qp := must(pd.CreateQP(init))(t)
	drv := qp.drv.(*fakeQP)
	forceState(qp, drv, QPSRTS)
	x := must(qp.Ex())(t)
	x.Start()
	x.RDMAWrite(1, 1)
	x.SetSGE(SGE{})
	refused(t, x.Complete(), EINVAL, "RDMA_WRITE: must be of SEND, RDMA_READ")
	x.Start()
	x.RDMARead(1, 1)
	x.SetSGE(SGE{})
	ok(t, x.Complete())
	ok(t, qp.PostSend(SendWR{Opcode: WRRDMAWrite})) // V-WR-06: PostSend has all operations of the type
}

func TestV_WR_04_AbortDropsTheBatch(t *testing.T) {
	x, drv := newRC(t)
	for range 3 {
		x.Start()
		x.Send()
		x.SetSGE(SGE{})
		x.Send() // without a data setter
		x.Abort()
	}
	x.Abort() // has no effect
	x.Start()
	ok(t, x.Complete()) // nothing
	x.Start()
	x.SendTSO(nil, 0)
	x.Abort()
	x.Start()
	x.WRID = 7
	x.Send()
	x.SetSGE(SGE{})
	ok(t, x.Complete()) // Abort cleared the error
	if len(drv.all) != 1 || drv.all[0].WRID != 7 {
		t.Errorf("%+v", drv.all)
	}
}

func TestTSOOfTheBuilder(t *testing.T) {
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	init := exInit(t, pd, QPTypeRawPacket)
	init.SendOpsFlags, init.MaxTSOHeader, init.Cap.MaxSendSGE = sendOpsOf(QPTypeRawPacket), 20, 1
	qp := must(pd.CreateQP(init))(t)
	drv := qp.drv.(*fakeQP)
	forceState(qp, drv, QPSRTS)
	x := must(qp.Ex())(t)
	hdr := []byte("head")
	x.Start()
	for i := range 3 { // requests of one list have headers of their own
		x.WRID = uint64(i)
		x.SendTSO(hdr[:i+1], uint16(100+i))
		x.SetSGE(SGE{Length: uint32(i)})
	}
	clear(hdr) // may be reused
	ok(t, x.Complete())
	if len(drv.all) != 3 {
		t.Fatalf("%d requests", len(drv.all))
	}
	for i, wr := range drv.all {
		if wr.WRID != uint64(i) || wr.Opcode != WRTSO || wr.TSO == nil || string(wr.TSO.Hdr) != "head"[:i+1] ||
			wr.TSO.MSS != uint16(100+i) || len(wr.SGList) != 1 || wr.SGList[0].Length != uint32(i) {
			t.Errorf("%d: %+v, TSO %+v", i, wr, wr.TSO)
		}
	}
	x.Start()
	x.SendTSO(make([]byte, 21), 100)
	x.SetSGE(SGE{})
	refused(t, x.Complete(), EINVAL, "21 bytes of headers: must be 1 to 20")
}

func TestV_WR_02_OnlyBetweenStartAndEnd(t *testing.T) {
	x, drv := newRC(t)
	for range 2 {
		x.Send()
		x.SetSGE(SGE{})
		x.SetInlineData([]byte{1})
		x.SetSGEList([]SGE{{}})
		x.SetInlineDataList([][]byte{{1}})
		x.SetUDAddr(&AH{}, 1, 1)
		x.SetXRCSRQN(1)
		x.LocalInv(1)
		x.BindMW(nil, 1, nil)
		x.SendTSO(nil, 1)
		refused(t, x.Complete(), EINVAL, "call Start first")
		x.Start()
		ok(t, x.Complete()) // these calls had no effect
	}
	x.Start()
	x.SetSGE(SGE{}) // before a builder
	refused(t, x.Complete(), EINVAL, "before a request was begun")
	if x.none.AH != nil {
		t.Error("the QPEx keeps the AH of a setter without a request")
	}
	if len(drv.sent) != 0 {
		t.Error(drv.sent)
	}
}

func TestV_WR_04_States(t *testing.T) { // like V-QPS-04
	x, drv := newRC(t)
	for s := QPSReset; s <= QPSErr; s++ {
		forceState(x.QP(), drv, s)
		drv.sent = nil
		x.Start()
		x.Send()
		x.SetSGE(SGE{})
		err := x.Complete()
		if s < QPSRTS {
			refused(t, err, EINVAL, "wr_complete: not possible in "+s.String())
		} else {
			ok(t, err)
		}
		if (len(drv.sent) == 1) != (s >= QPSRTS) {
			t.Errorf("%v: %v", s, drv.sent)
		}
	}
	ok(t, x.QP().Close())
	x.Start()
	x.Send()
	x.SetSGE(SGE{})
	refused(t, x.Complete(), EINVAL, "closed")
}

func TestV_WR_06_BesidePostSend(t *testing.T) {
	x, drv := newRC(t)
	x.Start()
	x.WRID = 2
	x.Send()
	x.SetSGE(SGE{})
	ok(t, x.QP().PostSend(SendWR{WRID: 1, Opcode: WRSend}))
	ok(t, x.Complete())
	ok(t, x.QP().PostSend(SendWR{WRID: 3, Opcode: WRSend}))
	if len(drv.sent) != 3 || drv.sent[0] != 1 || drv.sent[1] != 2 || drv.sent[2] != 3 {
		t.Error(drv.sent)
	}
}

func TestV_WR_07_OneBatchAtATime(t *testing.T) { // within a TD: TestV_TD_02_V_TD_03_D_28_V_WR_07_NoLocksWithinATD
	x, drv := newRC(t)
	var done sync.WaitGroup
	x.Start()
	done.Go(func() {
		x.Start()
		x.WRID = 2
		x.Send()
		x.SetSGE(SGE{})
		if err := x.Complete(); err != nil {
			t.Error(err)
		}
	})
	time.Sleep(5 * time.Millisecond)
	x.WRID = 1
	x.Send()
	x.SetSGE(SGE{})
	ok(t, x.Complete())
	done.Wait()
	if len(drv.sent) != 2 || drv.sent[0] != 1 || drv.sent[1] != 2 {
		t.Error(drv.sent)
	}
}

func TestV_WR_08_AddressOfDatagrams(t *testing.T) {
	vctx, _ := openFake(t)
	pd := newPD(t, vctx)
	x, drv := newEx(t, pd, QPTypeUD)
	attr := goodAH()
	ah := must(pd.CreateAH(&attr))(t)
	x.Start()
	x.Send()
	x.SetSGE(SGE{})
	refused(t, x.Complete(), EINVAL, "SEND: the address (SetUDAddr) is missing")
	x.Start()
	x.Send()
	x.SetUDAddr(ah, 1, 2)
	refused(t, x.Complete(), EINVAL, "the data (SetSGE and others) is missing")
	x.Start()
	x.Send()
	x.SetUDAddr(nil, 1, 2)
	x.SetSGE(SGE{})
	refused(t, x.Complete(), EINVAL, "the address handle is missing", "request 0 of 1")
	data := []byte("one")
	x.Start()
	x.Send() // setters in either order
	x.SetInlineData(data)
	x.SetUDAddr(ah, 3, 4)
	copy(data, "two")
	x.SendImm(5)
	x.SetUDAddr(ah, 6, 7)
	x.SetSGE(SGE{8, 9, 10})
	ok(t, x.Complete())
	for i, want := range []string{
		`0 SEND INLINE [] "one" rkey=0 addr=0 imm=0 inv=0 cmp=0 swap=0 qpn=3 qkey=4 srqn=0`,
		`0 SEND_WITH_IMM 0 [{8 9 10}] "" rkey=0 addr=0 imm=5 inv=0 cmp=0 swap=0 qpn=6 qkey=7 srqn=0`,
	} {
		if got := brief(&drv.all[i]); got != want || drv.all[i].AH != ah {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	for _, wr := range x.wrs[:cap(x.wrs)] {
		if wr.AH != nil {
			t.Error("the QPEx keeps the address handle")
		}
	}
	xrc, xrcDrv := newEx(t, pd, QPTypeXRCSend)
	xrc.Start()
	xrc.Send()
	xrc.SetSGE(SGE{})
	refused(t, xrc.Complete(), EINVAL, "the SRQ (SetXRCSRQN) is missing")
	xrc.Start()
	xrc.RDMARead(1, 2)
	xrc.SetSGE(SGE{})
	xrc.SetXRCSRQN(0xffffff)
	ok(t, xrc.Complete())
	if xrcDrv.all[0].RemoteSRQN != 0xffffff {
		t.Errorf("%+v", xrcDrv.all)
	}
}

func TestV_WR_10_InlineIsCopied(t *testing.T) { // also beyond the first buffer
	x, drv := newRC(t)
	buf := make([]byte, 64)
	x.Start()
	for i := range 8 {
		for j := range buf {
			buf[j] = byte(i)
		}
		x.Send()
		if i%2 == 0 {
			x.SetInlineData(buf)
		} else {
			x.SetInlineDataList([][]byte{buf[:10], buf[10:]})
		}
		x.data = x.data[:len(x.data):len(x.data)] // the next one must grow it
	}
	ok(t, x.Complete())
	for i, wr := range drv.all {
		if len(wr.Inline) != 64 || wr.Inline[0] != byte(i) || wr.Inline[63] != byte(i) {
			t.Errorf("%d: %v", i, wr.Inline)
		}
	}
}

func TestV_WR_12_Sample(t *testing.T) {
	x, drv := newRC(t)
	mr := must(x.QP().PD().RegMR(make([]byte, 64), 0))(t)
	x.Start()
	x.WRID, x.WRFlags = 1, 0
	x.RDMAWrite(11, 22)
	x.SetSGE(mr.SGE(0, 32))
	x.WRID, x.WRFlags = 2, SendSignaled
	x.RDMAWriteImm(11, 54, 33)
	x.SetSGE(mr.SGE(32, 32))
	ok(t, x.Complete())
	if len(drv.all) != 2 || drv.all[0].Flags != 0 || drv.all[1].Flags != SendSignaled || drv.all[1].ImmData != 33 {
		t.Errorf("%+v", drv.all)
	}
}

// A batch uses only memory of the QPEx, even if the arguments are variables on the stack.
func TestQPExAllocatesNothing(t *testing.T) {
	x, drv := newRC(t)
	x.drv = quiet{drv}
	if n := testing.AllocsPerRun(100, func() {
		data := [8]byte{1}
		x.Start()
		for i := range 8 {
			x.WRID = uint64(i)
			switch i % 4 {
			case 0:
				x.RDMAWrite(1, 2)
				x.SetSGEList([]SGE{{1, 2, 3}, {4, 5, 6}})
			case 1:
				x.Send()
				x.SetInlineData(data[:])
			case 2:
				x.SendImm(5)
				x.SetInlineDataList([][]byte{data[:4], data[4:]})
			case 3:
				x.AtomicFetchAdd(1, 8, 2)
				x.SetSGE(SGE{Length: 8})
			}
		}
		if err := x.Complete(); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// quiet is a driver that accepts requests and does nothing.
type quiet struct{ *fakeQP }

func (quiet) PostSendAll(wrs []SendWR) (int, error) { return len(wrs), nil }
func (quiet) PostSend(wrs []SendWR) (int, error)    { return len(wrs), nil }

// The time of each way to post, in the verbs layer only.
func BenchmarkPostEx(b *testing.B) {
	x, drv := newRC(b)
	x.drv, x.qp.drv = quiet{drv}, quiet{drv}
	qp := x.QP()
	b.Run("PostSend", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := qp.PostSend(SendWR{WRID: 1, Opcode: WRSend, Flags: SendSignaled, SGList: []SGE{{1, 2, 3}}}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("QPEx", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			x.Start()
			x.WRID, x.WRFlags = 1, SendSignaled
			x.Send()
			x.SetSGE(SGE{1, 2, 3})
			if err := x.Complete(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
