package soft_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// windowed is two connected ends; the only access right of b's region is the binding of memory windows.
type windowed struct {
	a, b   *end
	qa, qb *verbs.QP
	mr     *verbs.MR // of b
	t      *testing.T
}

func newWindowed(t *testing.T, n *network, typ verbs.QPType) *windowed {
	ends := newEnds(t, n, 2, nil)
	w := &windowed{a: ends[0], b: ends[1], t: t}
	w.mr = get(w.b.pd.RegMR(make([]byte, 8192), verbs.AccessLocalWrite|verbs.AccessMWBind))(t)
	t.Cleanup(func() { must(t, w.mr.Close()) }) // after the windows
	w.qa, w.qb = connect(w.a, w.b, typ, nil)
	return w
}

func (w *windowed) window(typ verbs.MWType) *verbs.MW {
	w.t.Helper()
	mw := get(w.b.pd.AllocMW(typ))(w.t)
	w.t.Cleanup(func() { must(w.t, mw.Close()) })
	return mw
}

const remoteAccess = verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

// part returns n bytes of b's region, from offset off on.
func (w *windowed) part(off, n int, access verbs.AccessFlags) verbs.MWBindInfo {
	return verbs.MWBindInfo{MR: w.mr, Addr: w.mr.Addr() + uint64(off), Length: uint64(n), Access: access}
}

// bind posts a bind with either call and waits for its completion.
func (w *windowed) bind(mw *verbs.MW, info verbs.MWBindInfo) verbs.WC {
	w.t.Helper()
	if mw.Type() == verbs.MWType1 {
		must(w.t, w.qb.BindMW(mw, &verbs.MWBind{WRID: 77, Flags: verbs.SendSignaled, Info: info}))
	} else {
		must(w.t, w.qb.PostSend(verbs.SendWR{
			WRID: 77, Opcode: verbs.WRBindMW, Flags: verbs.SendSignaled, MW: mw, RKey: verbs.IncRKey(mw.RKey()), BindInfo: &info,
		}))
	}
	wc := w.b.poll(1)[0]
	if wc.WRID != 77 {
		w.t.Fatalf("completion %+v", wc)
	}
	return wc
}

// write posts a WRITE of n bytes to b's region and returns its status.
func (w *windowed) write(rkey uint32, off, n int) verbs.WCStatus {
	w.t.Helper()
	must(w.t, w.qa.PostSend(verbs.SendWR{
		Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGList: []verbs.SGE{w.a.mr.SGE(0, n)},
		RemoteAddr: w.mr.Addr() + uint64(off), RKey: rkey,
	}))
	return w.a.poll(1)[0].Status
}

func TestV_MW_02_WindowsOfBothTypes(t *testing.T) { // V-MW-01, V-MW-03, V-MW-04
	onEach(t, func(t *testing.T, n *network) {
		for _, typ := range []verbs.MWType{verbs.MWType1, verbs.MWType2} {
			t.Run(typ.String(), func(t *testing.T) { bindAndUnbind(t, n, typ) })
		}
	})
}

// A FLUSH through a window needs the window's right, not the region's, and its bounds, but for FlushMR, which is of the
// whole window.
func TestD_41_V_MW_02_FlushThroughWindows(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		for _, typ := range []verbs.MWType{verbs.MWType1, verbs.MWType2} {
			for _, c := range []struct {
				access verbs.AccessFlags
				off, n int
				level  verbs.SelectivityLevel
				want   verbs.WCStatus
			}{
				{remoteAccess | verbs.AccessFlushGlobal, 100, 200, verbs.FlushRange, verbs.WCSuccess},
				{verbs.AccessFlushGlobal, 299, 1, verbs.FlushRange, verbs.WCSuccess},
				{verbs.AccessFlushGlobal, 0, 0, verbs.FlushMR, verbs.WCSuccess},
				{verbs.AccessFlushGlobal, 299, 2, verbs.FlushRange, verbs.WCRemAccessErr},
				{verbs.AccessFlushGlobal, 99, 1, verbs.FlushRange, verbs.WCRemAccessErr},
				{remoteAccess, 100, 1, verbs.FlushRange, verbs.WCRemAccessErr},
				{remoteAccess, 100, 1, verbs.FlushMR, verbs.WCRemAccessErr},
			} {
				t.Run(fmt.Sprint(typ, c.access, c.level, c.off, c.n), func(t *testing.T) {
					w := newWindowed(t, n, verbs.QPTypeRC)
					must(t, w.qb.Modify(&verbs.QPAttr{QPAccessFlags: allAccess | verbs.AccessFlushGlobal}, verbs.QPAttrAccessFlags))
					mw := w.window(typ)
					if wc := w.bind(mw, w.part(100, 200, c.access)); wc.Err() != nil {
						t.Fatal(wc.Err())
					}
					must(t, w.qa.PostSend(verbs.SendWR{
						Opcode: verbs.WRFlush, Flags: verbs.SendSignaled, RemoteAddr: w.mr.Addr() + uint64(c.off), RKey: mw.RKey(),
						Flush: verbs.Flush{Length: uint32(c.n), Type: verbs.FlushGlobal, Level: c.level},
					}))
					if wc := w.a.poll(1)[0]; wc.Status != c.want {
						t.Errorf("%v, window %v, %v of %d bytes at %d: %v", typ, c.access, c.level, c.n, c.off, wc.Err())
					}
				})
			}
		}
	})
}

func bindAndUnbind(t *testing.T, n *network, typ verbs.MWType) {
	w := newWindowed(t, n, verbs.QPTypeRC)
	w.a.fill(3)
	mw := w.window(typ)
	old := mw.RKey()
	if wc := w.bind(mw, w.part(100, 200, remoteAccess)); wc.Err() != nil || wc.Opcode != verbs.WCBindMW {
		t.Fatalf("%v: %+v: %v", typ, wc, wc.Err())
	}
	if mw.RKey() == old {
		t.Errorf("%v: the key did not change", typ)
	}
	if st := w.write(mw.RKey(), 100, 200); st != verbs.WCSuccess || !bytes.Equal(w.mr.Bytes()[100:300], w.a.buf[:200]) {
		t.Errorf("%v: WRITE into the window: %v", typ, st)
	}
	if typ == verbs.MWType1 {
		w.bind(mw, verbs.MWBindInfo{})
	} else {
		must(t, w.qb.PostSend(verbs.SendWR{Opcode: verbs.WRLocalInv, Flags: verbs.SendSignaled, InvalidateRKey: mw.RKey()}))
		if wc := w.b.good(1)[0]; wc.Opcode != verbs.WCLocalInv {
			t.Errorf("%+v", wc)
		}
	}
	if st := w.write(old+1, 100, 1); st != verbs.WCRemAccessErr {
		t.Errorf("%v: WRITE after the end of the binding: %v", typ, st)
	}
}

func TestV_MW_02_OneByteOutsideOfAWindow(t *testing.T) {
	for _, off := range []int{99, 101} {
		w := newWindowed(t, &networks[0], verbs.QPTypeRC)
		w.a.fill(3)
		mw := w.window(verbs.MWType2)
		w.bind(mw, w.part(100, 200, remoteAccess))
		if st := w.write(mw.RKey(), off, 200); st != verbs.WCRemAccessErr {
			t.Errorf("offset %d: %v", off, st)
		}
		if bytes.Count(w.mr.Bytes(), []byte{0}) != len(w.mr.Bytes()) {
			t.Errorf("offset %d: memory was written", off)
		}
	}
}

func TestV_MW_06_WindowsOnUC(t *testing.T) {
	w := newWindowed(t, &networks[0], verbs.QPTypeUC)
	w.a.fill(3)
	for _, typ := range []verbs.MWType{verbs.MWType1, verbs.MWType2} {
		mw := w.window(typ)
		wc := w.bind(mw, w.part(0, 200, verbs.AccessRemoteWrite))
		must(t, wc.Err())
		clear(w.mr.Bytes())
		w.write(mw.RKey(), 0, 200)
		waitFor(t, "the WRITE", func() bool { return counter(w.b.dev, "rx_write_requests") >= uint64(typ) })
		if !bytes.Equal(w.mr.Bytes()[:200], w.a.buf[:200]) {
			t.Errorf("%v: the bytes differ", typ)
		}
	}
}

// TestV_MW_05_KeyInASendBehindTheBind: V-MW-05: a SEND posted after the bind, before its completion, may carry the
// key.
func TestV_MW_05_KeyInASendBehindTheBind(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		w := newWindowed(t, n, verbs.QPTypeRC)
		mw := w.window(verbs.MWType2)
		key := mw.RKey()
		for i := range 100 {
			key = verbs.IncRKey(key)
			must(t, w.qa.PostRecv(recv(w.a, 5, 100)))
			info := w.part(i, 100, verbs.AccessRemoteWrite)
			must(t, w.qb.PostSend(
				verbs.SendWR{Opcode: verbs.WRBindMW, MW: mw, RKey: key, BindInfo: &info},
				send(w.b, 8),
			))
			w.a.good(1)
			w.b.good(1)
			if st := w.write(key, i, 100); st != verbs.WCSuccess {
				t.Fatalf("round %d: %v", i, st)
			}
			must(t, w.qb.PostRecv(recv(w.b, 6, 100)))
			inv := send(w.a, 4)
			inv.Opcode, inv.InvalidateRKey = verbs.WRSendWithInv, key
			must(t, w.qa.PostSend(inv))
			w.a.good(1)
			if wc := w.b.good(1)[0]; wc.WCFlags&verbs.WCWithInv == 0 || wc.InvalidatedRKey != key || wc.Opcode != verbs.WCRecv {
				t.Fatalf("round %d: %+v", i, wc)
			}
		}
		if st := w.write(key, 0, 1); st != verbs.WCRemAccessErr { // V-WR-18
			t.Errorf("WRITE after SEND_WITH_INV: %v", st)
		}
	})
}

func TestV_WC_05_MWBindErr(t *testing.T) { // X-MW-01
	for name, c := range map[string]struct {
		access  verbs.AccessFlags // of the region
		info    func(w *windowed) verbs.MWBindInfo
		twice   bool
		request string
	}{
		"no MW_BIND": {allAccess, func(w *windowed) verbs.MWBindInfo { return w.part(0, 8, 0) }, false,
			"does not permit"},
		"write to a read-only": {verbs.AccessMWBind, func(w *windowed) verbs.MWBindInfo {
			return w.part(0, 8,
				verbs.AccessRemoteWrite)
		}, false, "does not permit"},
		"atomics on a read-only": {verbs.AccessMWBind, func(w *windowed) verbs.MWBindInfo {
			return w.part(0, 8,
				verbs.AccessRemoteAtomic)
		}, false, "does not permit"},
		"range": {verbs.AccessMWBind, func(w *windowed) verbs.MWBindInfo { return w.part(1, 8192, 0) },
			false, "outside"},
		"no memory": {verbs.AccessMWBind, func(w *windowed) verbs.MWBindInfo { return w.part(1, 0, 0) }, false,
			"at least 1 byte"},
		"bound already": {verbs.AccessMWBind, func(w *windowed) verbs.MWBindInfo { return w.part(0, 8, 0) }, true,
			"is bound"},
	} {
		w := newWindowed(t, &networks[0], verbs.QPTypeRC)
		must(t, w.mr.Rereg(verbs.ReregChangeAccess, nil, nil, c.access))
		mw := w.window(verbs.MWType2)
		if c.twice {
			wc := w.bind(mw, c.info(w))
			must(t, wc.Err())
		}
		wc := w.bind(mw, c.info(w))
		if wc.Status != verbs.WCMWBindErr || !strings.Contains(wc.Err().Error(), c.request) {
			t.Errorf("%s: %v", name, wc.Err())
		}
		if w.qb.State() != verbs.QPSErr {
			t.Errorf("%s: the QP is in %v", name, w.qb.State())
		}
	}
}

// TestV_PD_02_BindAcrossDomains: a bind fails if its region is closed or belongs to another PD when it is executed,
// or if the QP has another PD.
func TestV_PD_02_BindAcrossDomains(t *testing.T) {
	w := newWindowed(t, &networks[0], verbs.QPTypeRC)
	other := get(w.b.ctx.AllocPD())(t)
	defer func() { must(t, other.Close()) }()
	mw := get(other.AllocMW(verbs.MWType2))(t)
	defer func() { must(t, mw.Close()) }()
	if wc := w.bind(mw, w.part(0, 8, 0)); wc.Status != verbs.WCMWBindErr {
		t.Errorf("a window of another PD: %v", wc.Err())
	}
}

func TestV_MR_21_V_MW_11_BoundRegionIsBusy(t *testing.T) { // V-MW-11
	for _, typ := range []verbs.MWType{verbs.MWType1, verbs.MWType2} {
		w := newWindowed(t, &networks[0], verbs.QPTypeRC)
		mr := get(w.b.pd.RegMR(make([]byte, 100), verbs.AccessMWBind|verbs.AccessLocalWrite))(t)
		mw := get(w.b.pd.AllocMW(typ))(t)
		w.bind(mw, verbs.MWBindInfo{MR: mr, Addr: mr.Addr(), Length: 100, Access: verbs.AccessRemoteWrite})
		if err := mr.Close(); !errors.Is(err, verbs.EBUSY) || !strings.Contains(err.Error(), "windows") {
			t.Errorf("%v: Close: %v", typ, err)
		}
		var re *verbs.ReregError
		err := mr.Rereg(verbs.ReregChangeAccess, nil, nil, 0)
		if !errors.Is(err, verbs.EBUSY) || !errors.As(err, &re) || re.Code != verbs.ReregErrInput {
			t.Errorf("%v: Rereg: %v", typ, err)
		}
		key := mw.RKey()
		must(t, mw.Close())
		must(t, w.qa.PostSend(verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: []verbs.SGE{w.a.mr.SGE(0, 1)},
			RemoteAddr: mr.Addr(), RKey: key}))
		if wc := w.a.poll(1)[0]; wc.Status != verbs.WCRemAccessErr {
			t.Errorf("%v: a WRITE through the closed window: %v", typ, wc.Status)
		}
		must(t, mr.Close())
	}
}

// TestV_MW_02_WindowsThroughAnotherQP: a type 2 window works with its QP only; one of type 1 works with every QP of
// the PD, in every shard.
func TestV_MW_02_WindowsThroughAnotherQP(t *testing.T) {
	for _, typ := range []verbs.MWType{verbs.MWType1, verbs.MWType2} {
		w := newWindowed(t, &networks[0], verbs.QPTypeRC)
		mw := w.window(typ)
		w.bind(mw, w.part(0, 100, verbs.AccessRemoteWrite))
		w.qa, w.qb = connect(w.a, w.b, verbs.QPTypeRC, nil)
		want := verbs.WCSuccess
		if typ == verbs.MWType2 {
			want = verbs.WCRemAccessErr
		}
		if st := w.write(mw.RKey(), 0, 100); st != want {
			t.Errorf("%v: %v, want %v", typ, st, want)
		}
	}
}

func TestV_MW_10_ZeroBasedWindow(t *testing.T) {
	w := newWindowed(t, &networks[0], verbs.QPTypeRC)
	w.a.fill(8)
	mw := w.window(verbs.MWType2)
	w.bind(mw, w.part(1000, 100, verbs.AccessRemoteWrite|verbs.AccessZeroBased))
	must(t, w.qa.PostSend(verbs.SendWR{
		Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGList: []verbs.SGE{w.a.mr.SGE(0, 90)}, RemoteAddr: 10,
		RKey: mw.RKey(),
	}))
	w.a.good(1)
	if !bytes.Equal(w.mr.Bytes()[1010:1100], w.a.buf[:90]) {
		t.Error("the bytes or their place differ")
	}
}
