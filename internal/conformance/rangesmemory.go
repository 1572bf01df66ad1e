package conformance

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

func rangesOfRegions(t *T) {
	e := t.end()
	d := get(e.ctx.QueryDevice())(t)
	at := func(iova uint64) error { return made(e.pd.RegMRIOVA(e.buf[:4096], iova, allAccess)) }
	t.sweep([]span{
		{name: "length", least: 1, most: memory, try: func(v uint64) error { return made(e.pd.RegMR(e.buf[:v], allAccess)) }},
		{name: "iova", most: math.MaxUint64 - 4095, top: top64, try: at},
	})
	_, err := e.pd.RegMR(nil, allAccess)
	t.refused("no memory", err, verbs.EINVAL)
	if d.MaxMRSize < memory {
		t.Errorf("max_mr_size is %d", d.MaxMRSize)
	}
	for bit := range 32 {
		flag := verbs.AccessFlags(1) << bit
		err := made(e.pd.RegMR(e.buf, verbs.AccessLocalWrite|flag))
		switch {
		case bit >= 20 && bit < 30 || bit < 7: // ignorable flags, and existing ones
			t.must(err)
		case bit > 9:
			t.refused(fmt.Sprintf("access flag %d", bit), err, verbs.EINVAL)
		}
	}
	for _, bad := range []verbs.AccessFlags{verbs.AccessRemoteWrite, verbs.AccessRemoteAtomic, verbs.AccessHugeTLB} {
		t.refused(bad.String()+" alone", made(e.pd.RegMR(e.buf, bad)), verbs.EINVAL)
	}
	t.refused("ZERO_BASED at an address", made(e.pd.RegMRIOVA(e.buf, 1, verbs.AccessZeroBased)), verbs.EINVAL)
}

// region has all attributes of a region.
type region struct {
	pd         *verbs.PD
	addr       uint64
	n          int
	lkey, rkey uint32
	access     verbs.AccessFlags
}

func (t *T) region(mr *verbs.MR) region {
	return region{mr.PD(), mr.Addr(), mr.Length(), mr.LKey(), mr.RKey(), mr.Access()}
}

func failedRereg(t *T) {
	a, b := t.ends()
	store := make([]byte, 4096)
	mr := b.region(store, verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessMWBind)
	other := closing(t, get(a.ctx.AllocPD())(t)) // of another context
	before := t.region(mr)
	qa, qb := connect(a, b, rc, nil)
	fails := func(name string, errno error, err error) {
		t.Helper()
		t.refused(name, err, errno)
		var e *verbs.ReregError
		if !errors.As(err, &e) || e.Code != verbs.ReregErrInput {
			t.Errorf("%s: the code of %v is not ERR_INPUT", name, err)
		}
		same(t, "the region after "+name, t.region(mr), before)
		clear(store)
		wr := a.rdma(verbs.WRRDMAWrite, 1, b, 0, 8)
		wr.RemoteAddr, wr.RKey = mr.Addr()+4088, mr.RKey()
		t.must(qa.PostSend(wr))
		t.good(a.sendCQ, 1)
		t.equal("what was written to the region after "+name, store[4088:], a.buf[:8])
	}
	const all = verbs.ReregChangeTranslation | verbs.ReregChangePD | verbs.ReregChangeAccess
	for bit := 3; bit < 32; bit++ {
		fails(fmt.Sprintf("flag %d", bit), verbs.EINVAL, mr.Rereg(verbs.ReregFlags(1)<<bit, nil, nil, 0))
	}
	fails("no flag", verbs.EINVAL, mr.Rereg(0, nil, nil, 0))
	fails("no memory", verbs.EINVAL, mr.Rereg(verbs.ReregChangeTranslation, nil, nil, 0))
	fails("empty memory", verbs.EINVAL, mr.Rereg(verbs.ReregChangeTranslation, nil, store[:0], 0))
	fails("memory without its flag", verbs.EINVAL, mr.Rereg(verbs.ReregChangeAccess, nil, store, allAccess))
	fails("no PD", verbs.EINVAL, mr.Rereg(verbs.ReregChangePD, nil, nil, 0))
	fails("a PD of another context", verbs.EINVAL, mr.Rereg(verbs.ReregChangePD, other, nil, 0))
	fails("a PD without its flag", verbs.EINVAL, mr.Rereg(verbs.ReregChangeAccess, b.pd, nil, allAccess))
	fails("rights without their flag", verbs.EINVAL, mr.Rereg(verbs.ReregChangePD, b.pd, nil, allAccess))
	fails("an unknown right", verbs.EINVAL, mr.Rereg(all, b.pd, store[:8], 1<<10))
	fails("rights that lack LOCAL_WRITE", verbs.EINVAL, mr.Rereg(all, b.pd, store[:8], verbs.AccessRemoteWrite))
	closed := get(b.ctx.AllocPD())(t)
	t.must(closed.Close())
	fails("a PD that was closed", verbs.EINVAL, mr.Rereg(all, closed, store[:8], allAccess))
	if get(b.ctx.QueryDevice())(t).MaxMW == 0 {
		return
	}
	mw := closing(t, get(b.pd.AllocMW(verbs.MWType1))(t))
	t.must(qb.BindMW(mw, &verbs.MWBind{Flags: verbs.SendSignaled,
		Info: verbs.MWBindInfo{MR: mr, Addr: mr.Addr(), Length: 8, Access: verbs.AccessRemoteRead}}))
	t.good(b.sendCQ, 1)
	fails("a bound window", verbs.EBUSY, mr.Rereg(all, b.pd, store[:8], allAccess))
	t.refused("deregistering with a bound window", mr.Close(), verbs.EBUSY)
	same(t, "the region", t.region(mr), before)
}

func rangesOfDeviceMemory(t *T) {
	e := t.end()
	most := get(e.ctx.QueryDevice())(t).MaxDMSize
	if most == 0 {
		t.Skip("the device has no device memory")
	}
	const n = 4096
	alloc := func(length uint64, align uint32) error {
		return made(e.ctx.AllocDM(verbs.AllocDMAttr{Length: length, LogAlignReq: align}))
	}
	t.must(alloc(1, 0))
	t.refused("0 bytes", alloc(0, 0), verbs.EINVAL)
	t.refused("one byte more than available", alloc(most+1, 0), verbs.ENOMEM)
	t.refused("2^64-1 bytes", alloc(top64, 0), verbs.ENOMEM)
	widest := uint32(0) // no attribute reports it
	for alloc(8, widest+1) == nil && widest < 64 {
		widest++
	}
	if widest < 3 || widest >= 48 {
		t.Errorf("the largest alignment is 2^%d; atomics need 2^3", widest)
	}
	for _, align := range []uint32{widest + 1, 48, 63, 64, top32} {
		t.refused(fmt.Sprintf("an alignment of 2^%d", align), alloc(8, align), verbs.EINVAL)
	}
	dm := closing(t, get(e.ctx.AllocDM(verbs.AllocDMAttr{Length: n, LogAlignReq: 3}))(t))
	pattern := slices.Clone(e.buf[:n])
	t.must(dm.CopyTo(0, pattern))
	got := make([]byte, n)
	for _, c := range []struct {
		offset uint64
		n      int
		fits   bool
	}{
		{0, 0, true}, {0, 1, true}, {0, n, true}, {n - 1, 1, true}, {n, 0, true}, {8, n - 8, true}, {3, 13, true},
		{0, n + 1, false}, {1, n, false}, {n, 1, false}, {n + 1, 0, false}, {top64, 1, false}, {top64 - n + 2, n, false},
		{1 << 63, 8, false},
	} {
		if t.adapter && c.fits && (c.offset|uint64(c.n))%4 != 0 {
			continue
		}
		b, in := make([]byte, c.n), slices.Repeat([]byte{canary}, c.n)
		from, to := dm.CopyFrom(b, c.offset), dm.CopyTo(c.offset, in)
		name := fmt.Sprintf("%d bytes at %d of %d", c.n, c.offset, n)
		if !c.fits {
			t.refused("copying from "+name, from, syscall.EFAULT)
			t.refused("copying to "+name, to, syscall.EFAULT)
			if !slices.Equal(b, make([]byte, c.n)) {
				t.Errorf("a refused copy from %s wrote", name)
			}
		} else if from != nil || to != nil {
			t.Errorf("%s: %v, %v", name, from, to)
		} else {
			t.equal("data read from "+name, b, pattern[c.offset:c.offset+uint64(c.n)])
			copy(got, pattern)
			copy(got[c.offset:], in)
			held := make([]byte, n)
			t.must(dm.CopyFrom(held, 0))
			t.equal("all memory after a copy to "+name, held, got)
			t.must(dm.CopyTo(0, pattern))
		}
		t.must(dm.CopyFrom(got, 0))
		t.equal("the device memory after "+name, got, pattern)
		if c.n > 0 {
			err := made(e.pd.RegDMMR(dm, c.offset, uint64(c.n), allAccess|verbs.AccessZeroBased))
			if c.fits {
				t.must(err)
			} else {
				t.refused("a region of "+name, err, verbs.EINVAL)
			}
		}
	}
	t.refused("a region of 0 bytes", made(e.pd.RegDMMR(dm, 0, 0, allAccess|verbs.AccessZeroBased)), verbs.EINVAL)
	t.refused("a region of 2^64-1 bytes", made(e.pd.RegDMMR(dm, 0, top64, allAccess|verbs.AccessZeroBased)), verbs.EINVAL)
	t.refused("a region without ZERO_BASED", made(e.pd.RegDMMR(dm, 0, 8, allAccess)), verbs.EINVAL)
	t.refused("a region of nothing", made(e.pd.RegDMMR(nil, 0, 8, allAccess|verbs.AccessZeroBased)), verbs.EINVAL)
}

// rangesOfWindows binds windows to all of a region and one byte beyond. A failed bind leaves the previous
// binding in place.
func rangesOfWindows(t *T) {
	a, b := t.ends()
	if get(b.ctx.QueryDevice())(t).MaxMW == 0 {
		t.Skip("the device has no memory windows")
	}
	for v := range verbs.MWType(4) {
		if err := made(b.pd.AllocMW(v)); v == verbs.MWType1 || v == verbs.MWType2 {
			t.must(err)
		} else {
			t.refused(fmt.Sprintf("type %d", v), err, verbs.EINVAL)
		}
	}
	const n = 4096
	store := make([]byte, n+100)
	mr := b.region(store[:n], verbs.AccessLocalWrite|verbs.AccessMWBind)
	plain := b.region(store, verbs.AccessLocalWrite) // without MW_BIND
	readOnly := b.region(store, verbs.AccessMWBind)
	for _, typ := range []verbs.MWType{verbs.MWType1, verbs.MWType2} {
		for _, c := range []struct {
			name  string
			info  verbs.MWBindInfo
			fits  bool
			first bool // the call fails, not the completion
		}{
			{"all of it", verbs.MWBindInfo{MR: mr, Addr: mr.Addr(), Length: n, Access: verbs.AccessRemoteWrite}, true, false},
			{"the first byte", verbs.MWBindInfo{MR: mr, Addr: mr.Addr(), Length: 1, Access: verbs.AccessRemoteWrite}, true,
				false},
			{"the last byte", verbs.MWBindInfo{MR: mr, Addr: mr.Addr() + n - 1, Length: 1, Access: verbs.AccessRemoteWrite},
				true, false},
			{"one byte more", verbs.MWBindInfo{MR: mr, Addr: mr.Addr(), Length: n + 1, Access: verbs.AccessRemoteWrite}, false,
				false},
			{"one byte behind", verbs.MWBindInfo{MR: mr, Addr: mr.Addr() + n, Length: 1, Access: verbs.AccessRemoteWrite}, false,
				false},
			{"one byte before", verbs.MWBindInfo{MR: mr, Addr: mr.Addr() - 1, Length: 2, Access: verbs.AccessRemoteWrite}, false,
				false},
			{"2^64-1 bytes", verbs.MWBindInfo{MR: mr, Addr: mr.Addr(), Length: top64, Access: verbs.AccessRemoteWrite}, false,
				false},
			{"the last address", verbs.MWBindInfo{MR: mr, Addr: top64, Length: 2, Access: verbs.AccessRemoteWrite}, false,
				false},
			{"a region without MW_BIND", verbs.MWBindInfo{MR: plain, Addr: mr.Addr(), Length: 8,
				Access: verbs.AccessRemoteWrite}, false, false},
			{"a region without LOCAL_WRITE", verbs.MWBindInfo{MR: readOnly, Addr: mr.Addr(), Length: 8,
				Access: verbs.AccessRemoteWrite}, false, false},
			{"rights that windows cannot have",
				verbs.MWBindInfo{MR: mr, Addr: mr.Addr(), Length: 8, Access: verbs.AccessLocalWrite}, false, true},
			{"rights that do not exist", verbs.MWBindInfo{MR: mr, Addr: mr.Addr(), Length: 8, Access: 1 << 10}, false, true},
		} {
			t.bind(a, b, typ, mr, c.name, c.info, c.fits, c.first)
		}
	}
	mw := closing(t, get(b.pd.AllocMW(verbs.MWType1))(t))
	_, qb := connect(a, b, rc, nil)
	for name, info := range map[string]verbs.MWBindInfo{"an address without a region": {Addr: 1},
		"a length without a region": {Length: 1}} {
		key := mw.RKey()
		t.refused(name, qb.BindMW(mw, &verbs.MWBind{Info: info}), verbs.EINVAL)
		same(t, "the key after "+name, mw.RKey(), key)
	}
	for bit := range 32 {
		if f := verbs.SendFlags(1) << bit; f&(verbs.SendSignaled|verbs.SendFence) == 0 {
			t.refused(fmt.Sprintf("flag %d", bit), qb.BindMW(mw, &verbs.MWBind{Flags: f}), verbs.EINVAL)
		}
	}
}

// bind binds a window to the first 8 bytes of a region and then rebinds it, which may fail.
func (t *T) bind(a, b *end, typ verbs.MWType, mr *verbs.MR, name string, info verbs.MWBindInfo, fits, first bool) {
	t.Helper()
	qa, qb := connect(a, b, rc, nil)
	mw := get(b.pd.AllocMW(typ))(t)
	defer mw.Close()
	post := func(info verbs.MWBindInfo) error {
		if typ == verbs.MWType1 {
			return qb.BindMW(mw, &verbs.MWBind{Flags: verbs.SendSignaled, Info: info})
		}
		return qb.PostSend(verbs.SendWR{Opcode: verbs.WRBindMW, Flags: verbs.SendSignaled, MW: mw,
			RKey: verbs.IncRKey(mw.RKey()), BindInfo: &info})
	}
	old := verbs.MWBindInfo{MR: mr, Addr: mr.Addr(), Length: 8, Access: verbs.AccessRemoteWrite}
	if typ == verbs.MWType1 { // a bound window of type 2 must be invalidated first
		t.must(post(old))
		t.good(b.sendCQ, 1)
	}
	key := mw.RKey()
	err := post(info)
	if first {
		t.refused(name, err, verbs.EINVAL)
		same(t, "the key after "+name, mw.RKey(), key)
	} else {
		t.must(err)
		want := verbs.WCSuccess
		if !fits {
			want = verbs.WCMWBindErr
		}
		same(t, fmt.Sprintf("type %v: binding to %s", typ, name), t.poll(b.sendCQ, 1)[0].Status, want)
	}
	if typ != verbs.MWType1 || fits {
		return
	}
	mw.SetRKey(key)
	wr := a.rdma(verbs.WRRDMAWrite, 1, b, 0, 8)
	wr.RemoteAddr, wr.RKey = mr.Addr(), key
	t.must(qa.PostSend(wr))
	if qb.State() == verbs.QPSRTS { // otherwise the failed bind has ended the connection
		same(t, "a WRITE through the old binding after "+name, t.poll(a.sendCQ, 1)[0].Status, verbs.WCSuccess)
		return
	}
	qa, _ = connect(a, b, rc, nil)
	t.must(qa.PostSend(wr))
	same(t, "a WRITE through the old binding after "+name, t.poll(a.sendCQ, 1)[0].Status, verbs.WCSuccess)
}

func rangesOfGroups(t *T) {
	e := t.end()
	qp := e.datagrams()
	group := func(a ...byte) verbs.GID {
		g := verbs.GID{10: 0xff, 11: 0xff}
		copy(g[12:], a)
		return g
	}
	own := t.group()
	t.must(qp.AttachMcast(own, 0))
	t.must(qp.AttachMcast(own, math.MaxUint16)) // the MLID is ignored on Ethernet
	t.refused("closing an attached QP", qp.Close(), verbs.EBUSY)
	t.must(qp.DetachMcast(own, 0))
	t.refused("detaching again", qp.DetachMcast(own, 0), verbs.EINVAL)
	for name, g := range map[string]verbs.GID{
		"none": {}, "one below the IPv4 groups": group(223, 255, 255, 255), "one above them": group(240, 0, 0, 0),
		"a host":                    group(10, 0, 0, 1),
		"one below the IPv6 groups": {0: 0xfe, 1: 0xff, 15: 1}, "a link-local host": {0: 0xfe, 1: 0x80, 15: 1},
		"half a mapped address": {11: 0xff, 12: 224},
	} {
		t.refused(name, qp.AttachMcast(g, 0), verbs.EINVAL)
	}
	for _, typ := range []verbs.QPType{rc, uc} {
		t.refused("a QP that is not UD", e.qp(typ, nil).AttachMcast(own, 0), verbs.EINVAL)
	}
	t.must(qp.AttachMcast(own, 0))
	t.must(qp.DetachMcast(own, 0))
}
