package conformance

import (
	"cmp"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/verbs"
)

// Datagrams: address handles, the GRH, Q_Keys and groups (sections 38, 40, 42 and 43).
var datagramCases = []testCase{
	{"V_KC_10_V_RECV_06_The40BytesOfTheGRH", fortyBytes},
	{"V_AH_03_OneAHForSeveralQPs", oneAH},
	{"V_AH_05_PathIsInThePacket", pathInPacket},
	{"V_AH_06_V_AH_08_V_AH_10_X_AH_01_AnsweringADatagram", answering},
	{"V_AH_11_V_AH_12_V_SEND_02_AHDestroyedWhileSending", ahDestroyed},
	{"V_SEND_14_DestinationWithEachRequest", destinationOfEach},
	{"V_SEND_14_QKeyOfTheQPWithTheMSB", qkeyMSB},
	{"V_MC_03_OneCopyHoweverOftenAttached", oneCopy},
	{"V_MC_04_V_GEN_13_OnlyMembersReceive", membersOnly},
	{"V_MC_05_V_MC_06_V_QPD_04_DetachingEndsReception", detaching},
	{"V_MC_01_GroupPacketsOnTheWire", groupOnTheWire},
}

// attach attaches a QP to the network's group.
func (t *T) attach(qp *verbs.QP) {
	t.Helper()
	t.must(qp.AttachMcast(t.group(), 0))
	t.Cleanup(func() { _ = qp.DetachMcast(t.group(), 0) }) // the case may have detached it
}

func (t *T) group() verbs.GID { return verbs.GIDFromAddr(t.Group()) }

// datagrams creates a UD QP in RTS.
func (e *end) datagrams() *verbs.QP {
	e.t.Helper()
	qp := e.qp(verbs.QPTypeUD, nil)
	e.t.must(qp.Connect(verbs.QPInfo{}, nil))
	return qp
}

// ah creates an address handle from a UD QP to a GID.
func (e *end) ah(qp *verbs.QP, gid verbs.GID) *verbs.AH {
	e.t.Helper()
	attr := get(qp.AHAttrTo(verbs.QPInfo{GID: gid}, nil))(e.t)
	return closing(e.t, get(e.pd.CreateAH(&attr))(e.t))
}

// datagram addresses wr to another UD QP.
func (e *end) datagram(from, to *verbs.QP, wr verbs.SendWR) verbs.SendWR {
	e.t.Helper()
	wr.AH = e.ah(from, e.t.info(to).GID)
	wr.RemoteQPN, wr.RemoteQKey = to.QPN(), verbs.DefaultQKey
	return wr
}

func fortyBytes(t *T) {
	a, b := t.ends()
	qa, qb := a.datagrams(), b.datagrams()
	b.blank()
	t.must(qb.PostRecv(b.recv(1, 100, 40+10)))
	t.must(qa.PostSend(a.datagram(qa, qb, a.send(1, 0, 10))))
	wc := t.good(b.rcvQ, 1)[0]
	same(t, "byte_len", wc.ByteLen, 50)
	same(t, "flags", wc.WCFlags, verbs.WCGRH)
	t.equal("the message", b.buf[140:150], a.buf[:10])
	if !untouched(b.buf[:100]) || !untouched(b.buf[150:]) {
		t.Error("more than the receive was written")
	}
	if untouched(b.buf[100:140]) {
		t.Error("the GRH is missing")
	}
	// One byte less is too short. The GRH may be in an SGE of its own.
	t.must(qb.PostRecv(b.recv(2, 0, 49)))
	t.must(qa.PostSend(a.datagram(qa, qb, a.send(2, 0, 10))))
	b.counted("recv_dropped", 1)
	t.must(qa.PostSend(a.datagram(qa, qb, a.send(3, 0, 9))))
	t.good(b.rcvQ, 1)
	t.must(qb.PostRecv(verbs.RecvWR{WRID: 3, SGList: []verbs.SGE{b.mr.SGE(1000, 40), b.mr.SGE(2000, 10)}}))
	t.must(qa.PostSend(a.datagram(qa, qb, a.send(4, 500, 10))))
	t.good(b.rcvQ, 1)
	t.equal("the message", b.buf[2000:2010], a.buf[500:510])
}

func oneAH(t *T) {
	a, b := t.ends()
	q1, q2, qb := a.datagrams(), a.datagrams(), b.datagrams()
	t.must(qb.PostRecv(b.recv(1, 0, 100), b.recv(2, 0, 100)))
	wr := a.datagram(q1, qb, a.send(1, 0, 10))
	t.must(q1.PostSend(wr))
	t.must(q2.PostSend(wr))
	wcs := t.good(b.rcvQ, 2)
	if s := [2]uint32{wcs[0].SrcQP, wcs[1].SrcQP}; s != [2]uint32{q1.QPN(), q2.QPN()} &&
		s != [2]uint32{q2.QPN(), q1.QPN()} {
		t.Errorf("senders %#x, want %#x and %#x", s, q1.QPN(), q2.QPN())
	}
}

// pathInPacket sends with various hop limits and traffic classes. The receiver finds them in the GRH, for
// the path back.
func pathInPacket(t *T) {
	a, b := t.ends()
	qa, qb := a.datagrams(), b.datagrams()
	for _, hops := range []uint8{1, 9, 255, 0} {
		for _, class := range []uint8{0, 0x68, 0xff} {
			attr := pathTo(qa, t.info(qb).GID)
			attr.GRH.HopLimit, attr.GRH.TrafficClass, attr.GRH.FlowLabel = hops, class, 0x12345
			wr := a.send(1, 0, 10)
			wr.AH, wr.RemoteQPN, wr.RemoteQKey = closing(t, get(a.pd.CreateAH(&attr))(t)), qb.QPN(), verbs.DefaultQKey
			t.must(qb.PostRecv(b.recv(1, 0, 100)))
			t.must(qa.PostSend(wr))
			wc := t.good(b.rcvQ, 1)[0]
			back := get(b.ctx.InitAHFromWC(1, &wc, b.buf[:40]))(t).GRH
			if back.HopLimit != cmp.Or(hops, 64) || back.TrafficClass != class {
				t.Errorf("hop limit %d, traffic class %#x: %+v", hops, class, back)
			}
		}
	}
}

func answering(t *T) {
	a, b := t.ends()
	qa, qb := a.datagrams(), b.datagrams()
	t.must(qb.PostRecv(b.recv(1, 0, 100)))
	t.must(qa.PostRecv(a.recv(2, 0, 100)))
	t.must(qa.PostSend(a.datagram(qa, qb, a.send(1, 0, 10))))
	wc := t.good(b.rcvQ, 1)[0]
	attr := get(b.ctx.InitAHFromWC(1, &wc, b.buf[:40]))(t)
	same(t, "the sender's GID", attr.GRH.DGID, t.info(qa).GID)
	if attr.PortNum != 1 || !attr.IsGlobal || attr.GRH.HopLimit != 64 || attr.GRH.TrafficClass != 0 {
		t.Errorf("the path back is %+v", attr)
	}
	same(t, "our GID", get(b.ctx.QueryGID(1, attr.GRH.SGIDIndex))(t), t.info(qb).GID)
	wr := b.send(3, 0, 20)
	wr.AH, wr.RemoteQPN, wr.RemoteQKey = closing(t, get(b.pd.CreateAHFromWC(1, &wc, b.buf[:40]))(t)), wc.SrcQP,
		verbs.DefaultQKey
	t.must(qb.PostSend(wr))
	same(t, "src_qp of the answer", t.good(a.rcvQ, 1)[0].SrcQP, qb.QPN())
}

func ahDestroyed(t *T) {
	a, b := t.ends()
	qa, qb := a.datagrams(), b.datagrams()
	wr := a.datagram(qa, qb, a.send(1, 0, 10))
	t.must(qa.PostSend(wr))
	t.must(wr.AH.Close())
	t.poll(a.sendCQ, 1) // with success or an error
	t.refused("a send with a destroyed AH", qa.PostSend(wr), verbs.EINVAL)
	t.to(qa, verbs.QPSErr)
}

func destinationOfEach(t *T) {
	a, b := t.ends()
	qa, q1, q2 := a.datagrams(), b.datagrams(), b.datagrams()
	for _, to := range []*verbs.QP{q1, q2, q1} {
		t.must(to.PostRecv(b.recv(1, 0, 100)))
		t.must(qa.PostSend(a.datagram(qa, to, a.send(1, 0, 10))))
		same(t, "qp_num", t.good(b.rcvQ, 1)[0].QPNum, to.QPN())
	}
	wrong := a.datagram(qa, q1, a.send(1, 0, 10))
	wrong.RemoteQKey++
	t.must(q1.PostRecv(b.recv(1, 0, 100)))
	t.must(qa.PostSend(wrong))
	b.counted("bad_qkey", 1)
	t.silent("the Q_Key is wrong", b.rcvQ)
}

func qkeyMSB(t *T) {
	e := t.end()
	p := e.rawPeerFor(e.qp(verbs.QPTypeUD, nil))
	t.must(p.qp.Connect(verbs.QPInfo{}, &verbs.ConnectOptions{QKey: 0x00c0ffee}))
	for _, c := range [][2]uint32{{0x80000000, 0x00c0ffee}, {0xffffffff, 0x00c0ffee}, {0x7fffffff, 0x7fffffff}, {0, 0}} {
		wr := e.send(1, 0, 10)
		wr.AH, wr.RemoteQPN, wr.RemoteQKey = e.ah(p.qp, p.info().GID), rawPeerQPN, c[0]
		t.must(p.qp.PostSend(wr))
		f := p.expect(wire.SendOnly)
		same(t, "Q_Key", f.QKey, c[1])
		same(t, "source QPN", f.SrcQPN, p.qp.QPN())
	}
}

// multicast addresses wr to the group.
func (e *end) multicast(from *verbs.QP, wr verbs.SendWR) verbs.SendWR {
	e.t.Helper()
	wr.AH = e.ah(from, e.t.group())
	wr.RemoteQPN, wr.RemoteQKey = wire.MulticastQPN, verbs.DefaultQKey
	return wr
}

func oneCopy(t *T) {
	a, b := t.ends()
	qa := a.datagrams()
	var members []*verbs.QP
	for range 3 {
		q := b.datagrams()
		t.must(q.PostRecv(b.recv(1, 0, 100), b.recv(2, 0, 100)))
		t.attach(q)
		t.must(q.AttachMcast(t.group(), 0))
		members = append(members, q)
	}
	t.must(qa.PostSend(a.multicast(qa, a.send(1, 0, 10))))
	byQP := map[uint32]int{}
	for _, wc := range t.good(b.rcvQ, 3) {
		byQP[wc.QPNum]++
		same(t, "byte_len", wc.ByteLen, 50)
		same(t, "src_qp", wc.SrcQP, qa.QPN())
	}
	for _, q := range members {
		same(t, "copies", byQP[q.QPN()], 1)
	}
	t.silent("each has its copy", b.rcvQ)
}

func membersOnly(t *T) {
	a, b := t.ends()
	c := t.end()
	qa, member, stranger, far := a.datagrams(), b.datagrams(), b.datagrams(), c.datagrams()
	for _, q := range []*verbs.QP{member, stranger} {
		t.must(q.PostRecv(b.recv(1, 0, 100)))
	}
	t.must(far.PostRecv(c.recv(1, 0, 100)))
	t.attach(member)
	t.must(qa.PostSend(a.multicast(qa, a.send(1, 0, 10))))
	same(t, "qp_num", t.good(b.rcvQ, 1)[0].QPNum, member.QPN())
	t.silent("the others are not in the group", b.rcvQ, c.rcvQ)
}

func detaching(t *T) {
	a, b := t.ends()
	qa, q1, q2 := a.datagrams(), b.datagrams(), b.datagrams()
	for _, q := range []*verbs.QP{q1, q2} {
		t.must(q.PostRecv(b.recv(1, 0, 100), b.recv(2, 0, 100)))
		t.attach(q)
	}
	t.refused("closing a QP in a group", q1.Close(), verbs.EBUSY)
	t.must(q1.DetachMcast(t.group(), 0))
	t.refused("detaching twice", q1.DetachMcast(t.group(), 0), verbs.EINVAL)
	t.must(qa.PostSend(a.multicast(qa, a.send(1, 0, 10))))
	same(t, "qp_num", t.good(b.rcvQ, 1)[0].QPNum, q2.QPN())
	t.silent("the other is detached", b.rcvQ)
	t.must(q2.DetachMcast(t.group(), 0))
	t.must(qa.PostSend(a.multicast(qa, a.send(1, 0, 10))))
	t.silent("both are detached", b.rcvQ)
}

func groupOnTheWire(t *T) {
	e := t.end()
	qp := e.datagrams()
	t.must(qp.PostRecv(e.recv(1, 0, 100), e.recv(2, 0, 100)))
	t.attach(qp)
	p := e.rawPeerFor(qp)
	f := p.packet(wire.Fields{Opcode: wire.SendOnly, Payload: full[:8]})
	// With the QP's own number it is an ordinary datagram; with the group's number at a unicast address it
	// is dropped.
	p.put(f.Build())
	t.good(e.rcvQ, 1)
	f.DestQPN = wire.MulticastQPN
	p.put(f.Build())
	e.counted("unknown_group", 1)
	t.silent("it was not sent to the group", e.rcvQ)
}
