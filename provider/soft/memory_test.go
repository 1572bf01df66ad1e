package soft_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

func TestV_MR_26_V_MR_27_V_DM_01_DeviceMemory(t *testing.T) { // V-MR-23..25
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		qa, qb := connect(a, b, verbs.QPTypeRC, nil)
		dm := get(b.ctx.AllocDM(verbs.AllocDMAttr{Length: 10000, LogAlignReq: 3}))(t)
		defer func() { must(t, dm.Close()) }()
		mr := get(b.pd.RegDMMR(dm, 1000, 5000, allAccess|verbs.AccessZeroBased))(t)
		defer func() { must(t, mr.Close()) }()
		if err := dm.Close(); !errors.Is(err, verbs.EBUSY) { // V-DM-03
			t.Errorf("Close of registered memory: %v", err)
		}
		a.fill(5)

		// A receive, a WRITE and a fetch-and-add into device memory, and a READ from it.
		must(t, qb.PostRecv(verbs.RecvWR{WRID: 1, SGList: []verbs.SGE{mr.SGE(0, 1000)}}))
		must(t, qa.PostSend(
			send(a, 1000),
			verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: []verbs.SGE{a.mr.SGE(1000, 4000)}, RemoteAddr: 1000,
				RKey: mr.RKey()},
		))
		b.good(1)
		a.good(1)
		must(t, qa.PostSend(verbs.SendWR{
			Opcode: verbs.WRAtomicFetchAndAdd, Flags: verbs.SendSignaled, SGList: []verbs.SGE{a.mr.SGE(20000, 8)},
			RemoteAddr: 4992, RKey: mr.RKey(),
			CompareAdd: 1,
		}, verbs.SendWR{
			Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled, SGList: []verbs.SGE{a.mr.SGE(30000, 5000)}, RKey: mr.RKey(),
		}))
		a.good(2)
		want := bytes.Clone(a.buf[:5000])
		was := binary.NativeEndian.Uint64(want[4992:])
		binary.NativeEndian.PutUint64(want[4992:], was+1)
		if binary.NativeEndian.Uint64(a.buf[20000:]) != was || !bytes.Equal(a.buf[30000:35000], want) {
			t.Error("wrong result of the atomic or the READ")
		}
		got := make([]byte, 10000)
		must(t, dm.CopyFrom(got, 0))
		if !bytes.Equal(got[1000:6000], want) || bytes.Count(got[:1000], []byte{0}) != 1000 || bytes.Count(got[6000:],
			[]byte{0}) != 4000 {
			t.Error("wrong contents of the device memory")
		}

		// A SEND from it.
		must(t, dm.CopyTo(1000, []byte("from the device")))
		must(t, qa.PostRecv(recv(a, 2, 100)))
		must(t, qb.PostSend(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled,
			SGList: []verbs.SGE{mr.SGE(0, 15)}}))
		a.good(1)
		b.good(1)
		if string(a.buf[:15]) != "from the device" {
			t.Errorf("got %q", a.buf[:15])
		}
		// An access beyond the region fails.
		must(t, qa.PostSend(verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: []verbs.SGE{a.mr.SGE(0, 2)}, RemoteAddr: 4999,
			RKey: mr.RKey()}))
		if wc := a.poll(1)[0]; wc.Status != verbs.WCRemAccessErr {
			t.Errorf("a WRITE beyond the region: %v", wc.Status)
		}
	})
}

func TestV_DM_02_DeviceMemoryIsBounded(t *testing.T) { // V-QDX-02
	e := newEnds(t, &networks[0], 1, nil)[0]
	most := get(e.ctx.QueryDevice())(t).MaxDMSize
	for _, n := range []uint64{most + 1, math.MaxUint64} {
		if _, err := e.ctx.AllocDM(verbs.AllocDMAttr{Length: n}); !errors.Is(err, verbs.ENOMEM) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	if _, err := e.ctx.AllocDM(verbs.AllocDMAttr{Length: 1, LogAlignReq: 22}); !errors.Is(err, verbs.EINVAL) {
		t.Errorf("alignment 2^22: %v", err)
	}
	a := get(e.ctx.AllocDM(verbs.AllocDMAttr{Length: most - 1, LogAlignReq: 21}))(t)
	b := get(e.ctx.AllocDM(verbs.AllocDMAttr{Length: 1}))(t)
	if _, err := e.ctx.AllocDM(verbs.AllocDMAttr{Length: 1}); !errors.Is(err, verbs.ENOMEM) {
		t.Errorf("one byte more: %v", err)
	}
	must(t, a.Close())
	must(t, b.Close())
	must(t, get(e.ctx.AllocDM(verbs.AllocDMAttr{Length: most}))(t).Close())
}

func TestX_MR_03_NullRegionAtWork(t *testing.T) {
	ends := newEnds(t, &networks[0], 2, nil)
	a, b := ends[0], ends[1]
	qa, qb := connect(a, b, verbs.QPTypeRC, nil)
	na, nb := get(a.pd.AllocNullMR())(t), get(b.pd.AllocNullMR())(t)
	defer func() { must(t, na.Close()); must(t, nb.Close()) }()
	a.fill(1)
	b.fill(2)
	before := bytes.Clone(a.buf)

	// 300 bytes, 1000 zeroes, 300 bytes; the middle part of the receive is discarded.
	must(t, qb.PostRecv(verbs.RecvWR{WRID: 1, SGList: []verbs.SGE{b.mr.SGE(0, 400), nb.SGE(0, 500), b.mr.SGE(400, 700)}}))
	must(t, qa.PostSend(verbs.SendWR{
		Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: []verbs.SGE{a.mr.SGE(0, 300), na.SGE(12345, 1000),
			a.mr.SGE(300, 300)},
	}))
	a.good(1)
	b.good(1)
	sent := append(append(bytes.Clone(a.buf[:300]), make([]byte, 1000)...), a.buf[300:600]...)
	if !bytes.Equal(b.buf[:400], sent[:400]) || !bytes.Equal(b.buf[400:1100], sent[900:]) {
		t.Error("the received bytes differ")
	}

	// A READ, an atomic and an inline SEND.
	must(t, qb.PostRecv(recv(b, 2, 100)))
	must(t, qa.PostSend(
		verbs.SendWR{Opcode: verbs.WRRDMARead, SGList: []verbs.SGE{na.SGE(0, 100000)}, RemoteAddr: b.mr.Addr(),
			RKey: b.mr.RKey()},
		verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, SGList: []verbs.SGE{na.SGE(0, 8)}, RemoteAddr: b.mr.Addr() + 4096,
			RKey: b.mr.RKey()},
		verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline | verbs.SendSignaled, SGList: []verbs.SGE{na.SGE(0, 50)}},
	))
	a.good(1)
	b.good(1)
	if bytes.Count(b.buf[:50], []byte{0}) != 50 {
		t.Error("inline data of a null region is not 0")
	}
	if !bytes.Equal(a.buf, before) {
		t.Error("memory of the requester changed")
	}
	// A peer cannot access it.
	must(t, qa.PostSend(verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: []verbs.SGE{a.mr.SGE(0, 1)}, RKey: nb.LKey()}))
	if wc := a.poll(1)[0]; wc.Status != verbs.WCRemAccessErr {
		t.Errorf("a WRITE to a null region: %v", wc.Status)
	}
}

func TestV_MR_13_V_MR_14_V_MR_15_V_QDX_02_OnDemandAndRelaxedOrdering(t *testing.T) { // V-MR-14, V-MR-15, V-QDX-02
	ends := newEnds(t, &networks[0], 2, nil)
	a, b := ends[0], ends[1]
	caps := get(a.ctx.QueryDevice())(t).ODPCaps
	if caps.General != verbs.ODPSupport|verbs.ODPSupportImplicit || caps.RC != 0x3f|verbs.ODPFlush|verbs.ODPAtomicWrite ||
		caps.UC != verbs.ODPSend|verbs.ODPRecv|verbs.ODPWrite ||
		caps.UD != verbs.ODPSend|verbs.ODPRecv|verbs.ODPSRQRecv {
		t.Errorf("%+v", caps)
	}
	qa, _ := connect(a, b, verbs.QPTypeRC, nil)
	for i, extra := range []verbs.AccessFlags{
		verbs.AccessOnDemand, verbs.AccessOnDemand | verbs.AccessHugeTLB, verbs.AccessRelaxedOrdering, 1 << 29,
	} {
		mr := get(b.pd.RegMR(make([]byte, 1000), allAccess|extra))(t)
		a.fill(byte(i))
		must(t, qa.PostSend(verbs.SendWR{
			Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGList: []verbs.SGE{a.mr.SGE(0, 1000)},
			RemoteAddr: mr.Addr(), RKey: mr.RKey(),
		}))
		a.good(1)
		if !bytes.Equal(mr.Bytes(), a.buf[:1000]) {
			t.Errorf("%v: the bytes differ", extra)
		}
		must(t, mr.Close())
	}
}

// TestV_MR_13_V_QDX_02_OnDemandOverXRC: the XRC capabilities equal the operations that work there with on-demand
// regions, at both ends.
func TestV_MR_13_V_QDX_02_OnDemandOverXRC(t *testing.T) {
	x := newXRC(t, &networks[0], nil)
	const want = verbs.ODPSend | verbs.ODPWrite | verbs.ODPRead | verbs.ODPAtomic | verbs.ODPSRQRecv |
		verbs.ODPFlush | verbs.ODPAtomicWrite
	if caps := get(x.a.ctx.QueryDevice())(t).XRCODPCaps; caps != want {
		t.Errorf("%v, want %v", caps, want)
	}
	here, there := make([]byte, 1000), make([]byte, 1000)
	ours := get(x.a.pd.RegMR(here, allAccess|verbs.AccessOnDemand))(t)
	theirs := get(x.b.pd.RegMR(there, allAccess|verbs.AccessOnDemand))(t)
	defer func() { must(t, ours.Close()); must(t, theirs.Close()) }()
	for i, op := range []verbs.WROpcode{verbs.WRSend, verbs.WRRDMAWrite, verbs.WRRDMARead, verbs.WRAtomicFetchAndAdd} {
		for k := range here {
			here[k], there[k] = byte(k+i), byte(k*3)
		}
		n := 1000
		if op == verbs.WRAtomicFetchAndAdd {
			n = 8
		}
		before := bytes.Clone(there)
		must(t, x.sb.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{theirs.SGE(0, 1000)}}))
		must(t, x.qs.PostSend(verbs.SendWR{
			Opcode: op, Flags: verbs.SendSignaled, SGList: []verbs.SGE{ours.SGE(0, n)}, RemoteSRQN: x.nb,
			RemoteAddr: theirs.Addr(), RKey: theirs.RKey(),
		}))
		x.a.good(1)
		if op == verbs.WRSend {
			x.b.good(1)
		}
		if !bytes.Equal(here[:n], there[:n]) || op >= verbs.WRRDMARead && !bytes.Equal(there, before) {
			t.Errorf("%v: the bytes differ", op)
		}
	}
}

func TestX_MR_03_Advice(t *testing.T) {
	e := newEnds(t, &networks[0], 1, nil)[0]
	buf := get(verbs.AllocBuffer(1 << 20))(t)
	mr := get(e.pd.RegMR(buf, verbs.AccessOnDemand|verbs.AccessLocalWrite))(t)
	ro := get(e.pd.RegMR(buf, verbs.AccessOnDemand))(t)
	other := get(e.ctx.AllocPD())(t)
	foreign := get(other.RegMR(buf, verbs.AccessOnDemand))(t)
	buf[5000] = 7
	for advice := verbs.AdvicePrefetch; advice <= verbs.AdvicePrefetchNoFault; advice++ {
		must(t, e.pd.AdviseMR(advice, verbs.AdviseMRFlush, mr.SGE(0, 1<<20), mr.SGE(4097, 1), mr.SGE(1<<20, 0)))
		for errno, s := range map[verbs.Errno]verbs.SGE{
			verbs.EINVAL:   {LKey: mr.LKey() ^ 1, Addr: mr.Addr(), Length: 1},
			syscall.EPERM:  foreign.SGE(0, 1),
			syscall.EFAULT: mr.SGE(1, 1<<20),
		} {
			if err := e.pd.AdviseMR(advice, 0, mr.SGE(0, 1), s); !errors.Is(err, errno) {
				t.Errorf("%v: %v, want %v", advice, err, errno)
			}
		}
		err := e.pd.AdviseMR(advice, 0, ro.SGE(0, 1))
		if want := advice == verbs.AdvicePrefetchWrite; errors.Is(err, syscall.EPERM) != want || !want && err != nil {
			t.Errorf("%v of a read-only region: %v", advice, err)
		}
	}
	if bytes.Count(buf, []byte{0}) != len(buf)-1 || buf[5000] != 7 {
		t.Error("the memory changed")
	}
	for _, m := range []*verbs.MR{mr, ro, foreign} {
		must(t, m.Close())
	}
	must(t, other.Close())
	must(t, verbs.FreeBuffer(buf))
}

// TestV_MR_18_ReregAtWork: rereg with every flag, seen by a peer: the old memory is not accessible any more, the new
// memory is.
func TestV_MR_18_ReregAtWork(t *testing.T) { // V-MR-17
	onEach(t, func(t *testing.T, n *network) {
		for _, c := range []struct {
			name  string
			flags verbs.ReregFlags
			write bool // a WRITE to the region works afterwards
		}{
			{"translation", verbs.ReregChangeTranslation, true},
			{"access", verbs.ReregChangeAccess, false},
			{"PD", verbs.ReregChangePD, false},
		} {
			t.Run(c.name, func(t *testing.T) { reregAtWork(t, n, c.flags, c.write) })
		}
	})
}

func reregAtWork(t *testing.T, n *network, flags verbs.ReregFlags, works bool) {
	ends := newEnds(t, n, 2, nil)
	a, b := ends[0], ends[1]
	qa, _ := connect(a, b, verbs.QPTypeRC, nil)
	old, fresh := make([]byte, 1000), make([]byte, 2000)
	mr := get(b.pd.RegMR(old, allAccess))(t)
	other := get(b.ctx.AllocPD())(t)
	a.fill(1)
	var pd *verbs.PD
	var buf []byte
	var access verbs.AccessFlags
	switch flags {
	case verbs.ReregChangeTranslation:
		buf = fresh
	case verbs.ReregChangeAccess:
		access = verbs.AccessRemoteRead
	default:
		pd = other
	}
	must(t, mr.Rereg(flags, pd, buf, access))
	must(t, qa.PostSend(verbs.SendWR{
		Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGList: []verbs.SGE{a.mr.SGE(0, 1000)}, RemoteAddr: mr.Addr(),
		RKey: mr.RKey(),
	}))
	if st := a.poll(1)[0].Status; (st == verbs.WCSuccess) != works || st != verbs.WCSuccess && st != verbs.WCRemAccessErr {
		t.Error(st)
	}
	if bytes.Count(old, []byte{0}) != len(old) || works && !bytes.Equal(fresh[:1000], a.buf[:1000]) {
		t.Error("the wrong memory was written")
	}
	must(t, mr.Close())
	must(t, other.Close())
}

// TestV_MR_07_LocalReadIsAlwaysAllowed: a region without access rights can be sent; unregistered memory can be sent
// only inline.
func TestV_MR_07_LocalReadIsAlwaysAllowed(t *testing.T) { // V-MR-12
	ends := newEnds(t, &networks[0], 2, nil)
	a, b := ends[0], ends[1]
	qa, qb := connect(a, b, verbs.QPTypeRC, nil)
	text := []byte("a region without rights")
	mr := get(a.pd.RegMR(text, 0))(t)
	defer func() { must(t, mr.Close()) }()
	n := len(text)
	must(t, qb.PostRecv(recv(b, 1, 100), verbs.RecvWR{WRID: 2, SGList: []verbs.SGE{b.mr.SGE(200, 100)}}))
	must(t, qa.PostSend(
		verbs.SendWR{Opcode: verbs.WRSend, SGList: []verbs.SGE{mr.SGE(0, n)}},
		verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: []verbs.SGE{mr.SGE(0, n)}, RemoteAddr: b.mr.Addr() + 100,
			RKey: b.mr.RKey()},
		verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled | verbs.SendInline, Inline: []byte("not registered")},
	))
	a.good(1)
	b.good(2)
	for off, want := range map[int]string{0: string(text), 100: string(text), 200: "not registered"} {
		if got := string(b.buf[off : off+len(want)]); got != want {
			t.Errorf("offset %d: %q", off, got)
		}
	}
	stranger := mr.SGE(0, n)
	stranger.Addr += uint64(n)
	must(t, qa.PostSend(verbs.SendWR{Opcode: verbs.WRSend, SGList: []verbs.SGE{stranger}}))
	if wc := a.poll(1)[0]; wc.Status != verbs.WCLocProtErr {
		t.Errorf("memory that is not registered: %v", wc.Status)
	}
}

// TestV_TR_06_TheLongestMessage: a message of the maximum length, 2^31 bytes, between null regions: its length and
// its 524288 packets are real.
func TestV_TR_06_TheLongestMessage(t *testing.T) {
	if testing.Short() || raceDetector {
		t.Skip("it takes several seconds")
	}
	ends := newEnds(t, &networks[0], 2, nil)
	a, b := ends[0], ends[1]
	na, nb := get(a.pd.AllocNullMR())(t), get(b.pd.AllocNullMR())(t)
	defer func() { must(t, na.Close()); must(t, nb.Close()) }()
	qa, qb := connect(a, b, verbs.QPTypeRC, nil)
	all := func(m *verbs.MR) (list []verbs.SGE) {
		for range 4 {
			list = append(list, m.SGE(0, 1<<29))
		}
		return list
	}
	must(t, qb.PostRecv(verbs.RecvWR{WRID: 1, SGList: all(nb)}))
	must(t, qa.PostSend(verbs.SendWR{WRID: 2, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: all(na)}))
	for i, e := range ends {
		var wcs [1]verbs.WC
		for start := time.Now(); get(e.cq.Poll(wcs[:]))(t) == 0; time.Sleep(time.Millisecond) {
			if time.Since(start) > 2*time.Minute {
				t.Fatalf("end %d: no completion", i)
			}
		}
		must(t, wcs[0].Err())
		if i == 1 && wcs[0].ByteLen != 1<<31 {
			t.Errorf("received %d bytes", wcs[0].ByteLen)
		}
	}
}
