package conformance

import (
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/verbs"
)

// Access rights to memory (section 37). The completions and events of refused requests are in status.go.
var memoryCases = []testCase{
	{"V_MR_07_LocalReadNeedsNoRight", localRead},
	{"V_MR_08_ResultsNeedLocalWrite", localWrite},
	{"V_MR_09_V_GEN_05_RegionAndQPMustBothPermit", bothPermit},
	{"V_MR_12_SGEsNeedRegisteredMemory", needsRegistration},
	{"V_MR_13_ZeroBasedRegions", zeroBased},
	{"V_MR_18_ReregisteredAsIfAnew", reregistered},
	{"V_MR_22_KeysEndWithTheRegion", keysEnd},
	{"V_MR_22_KeysOfPostedReceivesEnd", keysOfReceivesEnd},
	{"V_KC_07_V_MR_21_WindowsGrantAndRevokeParts", windowsGrant},
	{"V_MR_08_V_MR_22_AccessRevokedDuringARequest", accessRevoked},
}

func localRead(t *T) {
	a, b := t.ends()
	qa, qb := connect(a, b, verbs.QPTypeRC, nil)
	text := []byte("may be read, no more")
	mr := a.region(text, 0)
	sge := []verbs.SGE{mr.SGE(0, len(text))}
	t.must(qb.PostRecv(b.recv(1, 0, 100)))
	send, write := a.send(1, 0, 0), a.rdma(verbs.WRRDMAWrite, 2, b, 1000, 0)
	send.SGList, write.SGList = sge, sge
	t.must(qa.PostSend(send, write))
	t.good(a.sendCQ, 2)
	t.good(b.rcvQ, 1)
	t.equal("the SEND", b.buf[:len(text)], text)
	t.equal("the WRITE", b.buf[1000:1000+len(text)], text)
}

func localWrite(t *T) {
	for _, op := range []verbs.WROpcode{verbs.WRRDMARead, verbs.WRAtomicFetchAndAdd, verbs.WRAtomicCmpAndSwp,
		verbs.WRSend} {
		a, b := t.ends()
		qa, qb := connect(a, b, verbs.QPTypeRC, nil)
		memory := []byte("12345678")
		readOnly := []verbs.SGE{a.region(memory, 0).SGE(0, 8)}
		if op == verbs.WRSend { // into the read-only buffer
			t.must(qa.PostRecv(verbs.RecvWR{WRID: 1, SGList: readOnly}))
			t.must(qb.PostSend(b.send(1, 0, 8)))
			same(t, "the receive", t.poll(a.rcvQ, 1)[0].Status, verbs.WCLocProtErr)
			same(t, "the send", t.poll(b.sendCQ, 1)[0].Status, verbs.WCRemOpErr)
		} else {
			wr := a.rdma(op, 1, b, 0, 8)
			wr.SGList = readOnly
			t.must(qa.PostSend(wr))
			same(t, op.String(), t.poll(a.sendCQ, 1)[0].Status, verbs.WCLocProtErr)
		}
		same(t, "the memory", string(memory), "12345678")
		t.is(qa, verbs.QPSErr)
	}
}

func bothPermit(t *T) {
	for _, c := range []struct {
		op   verbs.WROpcode
		need verbs.AccessFlags
	}{
		{verbs.WRRDMAWrite, verbs.AccessRemoteWrite}, {verbs.WRRDMARead, verbs.AccessRemoteRead},
		{verbs.WRAtomicFetchAndAdd, verbs.AccessRemoteAtomic}, {verbs.WRAtomicCmpAndSwp, verbs.AccessRemoteAtomic},
	} {
		const others = verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic
		for _, k := range []struct {
			ofQP, ofMR verbs.AccessFlags
			want       verbs.WCStatus
		}{
			{c.need, c.need | verbs.AccessLocalWrite, verbs.WCSuccess}, // exactly the required rights
			{others, allAccess &^ c.need, verbs.WCRemAccessErr},
			{others &^ c.need, allAccess, verbs.WCRemInvReqErr}, // see docs/differences.md
		} {
			a, b := t.ends()
			qa, qb := a.qp(verbs.QPTypeRC, nil), b.qp(verbs.QPTypeRC, nil)
			ia, ib := t.info(qa), t.info(qb)
			t.must(qa.Connect(ib, longTimeout(nil)))
			t.must(qb.Connect(ia, &verbs.ConnectOptions{Access: k.ofQP}))
			target := b.region(make([]byte, 64), k.ofMR)
			wr := a.rdma(c.op, 1, b, 0, 8)
			wr.RemoteAddr, wr.RKey, wr.CompareAdd, wr.Swap = target.Addr(), target.RKey(), 0, 77
			if c.op == verbs.WRAtomicFetchAndAdd {
				wr.CompareAdd = 1
			}
			t.must(qa.PostSend(wr))
			if got := t.poll(a.sendCQ, 1)[0].Status; got != k.want {
				t.Errorf("%v with the QP's %v and the region's %v: %s, want %s", c.op, k.ofQP, k.ofMR, got.Name(), k.want.Name())
			}
			if k.want != verbs.WCSuccess && string(target.Bytes()) != string(make([]byte, 64)) {
				t.Errorf("%v was refused but wrote", c.op)
			}
		}
	}
}

func needsRegistration(t *T) {
	a, b := t.ends()
	qa, _ := connect(a, b, verbs.QPTypeRC, nil)
	loose := make([]byte, 64)
	mr, err := a.pd.RegMR(loose, 0)
	t.must(err)
	wr := a.send(1, 0, 0)
	wr.SGList = []verbs.SGE{mr.SGE(0, 64)}
	t.must(mr.Close()) // after this the memory is not registered
	t.must(qa.PostSend(wr))
	same(t, "status", t.poll(a.sendCQ, 1)[0].Status, verbs.WCLocProtErr)
}

func zeroBased(t *T) {
	a, b := t.ends()
	qa, qb := connect(a, b, verbs.QPTypeRC, nil)
	local, remote := a.region(a.buf[:4096], allAccess|verbs.AccessZeroBased),
		b.region(b.buf[8192:12288], allAccess|verbs.AccessZeroBased)
	iova := closing(t, get(b.pd.RegMRIOVA(b.buf[20000:21000], 1<<40, allAccess))(t))
	same(t, "the addresses", [3]uint64{local.Addr(), remote.Addr(), iova.Addr()}, [3]uint64{0, 0, 1 << 40})
	write := func(off, n int, mr *verbs.MR, to uint64) verbs.WCStatus {
		wr := a.send(1, 0, 0)
		wr.Opcode, wr.SGList = verbs.WRRDMAWrite, []verbs.SGE{{Addr: uint64(off), Length: uint32(n), LKey: local.LKey()}}
		wr.RemoteAddr, wr.RKey = to, mr.RKey()
		t.must(qa.PostSend(wr))
		return t.poll(a.sendCQ, 1)[0].Status
	}
	same(t, "offset 100 to offset 50", write(100, 10, remote, 50), verbs.WCSuccess)
	t.equal("the data", b.buf[8242:8252], a.buf[100:110])
	same(t, "to the iova", write(200, 10, iova, 1<<40+990), verbs.WCSuccess)
	t.equal("the data", b.buf[20990:21000], a.buf[200:210])
	same(t, "an address of the process", write(0, 10, remote, b.mr.Addr()+8192), verbs.WCRemAccessErr)
	t.is(qb, verbs.QPSErr)
}

func reregistered(t *T) {
	a, b := t.ends()
	store := make([]byte, 8192)
	mr := b.region(store[:4096], verbs.AccessLocalWrite|verbs.AccessRemoteRead)
	write := func(addr uint64, rkey uint32) verbs.WCStatus {
		t.Helper()
		qa, _ := connect(a, b, verbs.QPTypeRC, nil)
		wr := a.rdma(verbs.WRRDMAWrite, 1, b, 0, 8)
		wr.RemoteAddr, wr.RKey = addr, rkey
		t.must(qa.PostSend(wr))
		return t.poll(a.sendCQ, 1)[0].Status
	}
	same(t, "without REMOTE_WRITE", write(mr.Addr(), mr.RKey()), verbs.WCRemAccessErr)
	t.must(mr.Rereg(verbs.ReregChangeAccess, nil, nil, allAccess))
	same(t, "with new rights", write(mr.Addr(), mr.RKey()), verbs.WCSuccess)
	old, oldKey := mr.Addr(), mr.RKey()
	t.must(mr.Rereg(verbs.ReregChangeTranslation, nil, store[4096:], 0))
	clear(store)
	same(t, "the new memory", write(mr.Addr()+100, mr.RKey()), verbs.WCSuccess)
	t.equal("the data", store[4196:4204], a.buf[:8])
	same(t, "the old memory with the new key", write(old, mr.RKey()), verbs.WCRemAccessErr)
	same(t, "the old memory with the old key", write(old, oldKey), verbs.WCRemAccessErr)
	if string(store[:4096]) != string(make([]byte, 4096)) {
		t.Error("the old memory was written")
	}
	other := closing(t, get(b.ctx.AllocPD())(t))
	t.must(mr.Rereg(verbs.ReregChangePD, other, nil, 0))
	same(t, "from another PD", write(mr.Addr(), mr.RKey()), verbs.WCRemAccessErr)
	t.must(mr.Rereg(verbs.ReregChangePD, b.pd, nil, 0))
	same(t, "back in the PD", write(mr.Addr(), mr.RKey()), verbs.WCSuccess)
	t.must(mr.Close())
}

func keysEnd(t *T) {
	a, b := t.ends()
	for _, c := range []struct {
		name string
		do   func(dead *verbs.MR) verbs.SendWR // on a's side or b's
		at   *end
		want verbs.WCStatus
	}{
		{"lkey of a SEND", func(dead *verbs.MR) verbs.SendWR {
			wr := a.send(1, 0, 0)
			wr.SGList = []verbs.SGE{dead.SGE(0, 8)}
			return wr
		}, a, verbs.WCLocProtErr},
		{"lkey of a READ's destination", func(dead *verbs.MR) verbs.SendWR {
			wr := a.rdma(verbs.WRRDMARead, 1, b, 0, 8)
			wr.SGList = []verbs.SGE{dead.SGE(0, 8)}
			return wr
		}, a, verbs.WCLocProtErr},
		{"rkey of a READ", func(dead *verbs.MR) verbs.SendWR {
			wr := a.rdma(verbs.WRRDMARead, 1, b, 0, 8)
			wr.RemoteAddr, wr.RKey = dead.Addr(), dead.RKey()
			return wr
		}, b, verbs.WCRemAccessErr},
		{"rkey of a WRITE", func(dead *verbs.MR) verbs.SendWR {
			wr := a.rdma(verbs.WRRDMAWrite, 1, b, 0, 8)
			wr.RemoteAddr, wr.RKey = dead.Addr(), dead.RKey()
			return wr
		}, b, verbs.WCRemAccessErr},
		{"rkey of an atomic", func(dead *verbs.MR) verbs.SendWR {
			wr := a.rdma(verbs.WRAtomicFetchAndAdd, 1, b, 0, 8)
			wr.RemoteAddr, wr.RKey = dead.Addr(), dead.RKey()
			return wr
		}, b, verbs.WCRemAccessErr},
	} {
		qa, qb := connect(a, b, verbs.QPTypeRC, nil)
		t.must(qb.PostRecv(b.recv(0, 0, 100)))
		mr, err := c.at.pd.RegMR(make([]byte, 4096), allAccess) // a page, so that the atomic is aligned
		t.must(err)
		wr := c.do(mr)
		t.must(qa.PostSend(wr))
		t.good(a.sendCQ, 1) // while the region exists
		t.must(mr.Close())
		t.must(qa.PostSend(wr))
		same(t, c.name, t.poll(a.sendCQ, 1)[0].Status.Name(), c.want.Name())
	}
}

func keysOfReceivesEnd(t *T) {
	a, b := t.ends()
	for _, srq := range []*verbs.SRQ{nil, b.srq(4)} {
		qa, qb := a.qp(rc, nil), b.qp(rc, func(init *verbs.QPInitAttr) { init.SRQ = srq })
		t.join(qa, qb, nil)
		mr, err := b.pd.RegMR(make([]byte, 100), allAccess)
		t.must(err)
		wr := verbs.RecvWR{WRID: 1, SGList: []verbs.SGE{mr.SGE(0, 100)}}
		if srq != nil {
			t.must(srq.PostRecv(wr))
		} else {
			t.must(qb.PostRecv(wr))
		}
		t.must(mr.Close())
		t.must(qa.PostSend(a.send(1, 0, 10)))
		same(t, "the receive", t.poll(b.rcvQ, 1)[0].Status, verbs.WCLocProtErr)
		same(t, "the send", t.poll(a.sendCQ, 1)[0].Status, verbs.WCRemOpErr)
	}
}

func accessRevoked(t *T) {
	for _, op := range []verbs.WROpcode{verbs.WRRDMARead, verbs.WRAtomicFetchAndAdd} {
		for _, end := range []func(mr *verbs.MR) error{
			func(mr *verbs.MR) error { return mr.Rereg(verbs.ReregChangeAccess, nil, nil, 0) },
			(*verbs.MR).Close,
		} {
			e := t.end()
			p := e.rawPeer(verbs.QPTypeRC, slow)
			buf := []byte("12345678")
			mr := e.region(buf, verbs.AccessLocalWrite)
			wr := e.rdma(op, 1, e, 0, 8)
			wr.SGList = []verbs.SGE{mr.SGE(0, 8)}
			t.must(p.qp.PostSend(wr))
			f := p.next()
			t.must(end(mr))
			if op == verbs.WRRDMARead {
				p.answer(wire.ReadRespOnly, f.PSN, wire.SynAck, full[:8])
			} else {
				p.answer(wire.AtomicAck, f.PSN, wire.SynAck, nil)
			}
			same(t, op.String(), t.poll(e.sendCQ, 1)[0].Status, verbs.WCLocProtErr)
			same(t, "the memory", string(buf), "12345678")
			t.is(p.qp, verbs.QPSErr)
		}
	}
}

func windowsGrant(t *T) {
	a, b := t.ends()
	if get(b.ctx.QueryDevice())(t).MaxMW == 0 {
		t.Skip("the device has no memory windows")
	}
	store := make([]byte, 4096)
	mr := b.region(store, verbs.AccessLocalWrite|verbs.AccessMWBind)
	qa, qb := connect(a, b, rc, nil)
	access := func(qp *verbs.QP, op verbs.WROpcode, mw *verbs.MW, off int) verbs.WCStatus {
		t.Helper()
		wr := a.rdma(op, 1, b, 0, 100)
		wr.RemoteAddr, wr.RKey = mr.Addr()+uint64(off), mw.RKey()
		t.must(qp.PostSend(wr))
		return t.poll(a.sendCQ, 1)[0].Status
	}
	bind := func(rights verbs.AccessFlags, off, n int) *verbs.MW {
		t.Helper()
		mw := closing(t, get(b.pd.AllocMW(verbs.MWType1))(t))
		t.must(qb.BindMW(mw, &verbs.MWBind{Flags: verbs.SendSignaled,
			Info: verbs.MWBindInfo{MR: mr, Addr: mr.Addr() + uint64(off), Length: uint64(n), Access: rights}}))
		same(t, "the binding", t.good(b.sendCQ, 1)[0].Opcode, verbs.WCBindMW)
		return mw
	}
	// The windows overlap and have different rights; the region itself grants none.
	reads, writes := bind(verbs.AccessRemoteRead, 0, 2000), bind(verbs.AccessRemoteWrite, 1000, 2000)
	same(t, "a WRITE", access(qa, verbs.WRRDMAWrite, writes, 1000), verbs.WCSuccess)
	t.equal("the data written", store[1000:1100], a.buf[:100])
	same(t, "a READ", access(qa, verbs.WRRDMARead, reads, 1000), verbs.WCSuccess)
	t.refused("deregistering a region with windows", mr.Close(), verbs.EBUSY)
	t.must(writes.Close()) // revokes its key
	held := string(store)
	same(t, "a WRITE after it was revoked", access(qa, verbs.WRRDMAWrite, writes, 1000), verbs.WCRemAccessErr)
	for _, c := range []struct {
		op  verbs.WROpcode
		off int
	}{{verbs.WRRDMAWrite, 0}, {verbs.WRRDMARead, 1901}} {
		other, _ := connect(a, b, rc, nil)
		same(t, "an access that the other window does not grant", access(other, c.op, reads, c.off), verbs.WCRemAccessErr)
	}
	if string(store) != held {
		t.Error("memory was written without the right")
	}
	t.must(reads.Close())
	t.must(mr.Close())
}
