package conformance

import (
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// sizeCases returns transfers of many sizes, on every path MTU.
func sizeCases() []testCase {
	cases := []testCase{
		{"V_TR_04_UD_EverySize", everyDatagram},
		{"V_GEN_09_ScatterAndGatherToTheDevicesLimit", sgeLimits},
		{"V_SEND_11_InlineWriteToTheLimit", inlineWrite},
		{"V_TR_02_RC_PSNsWrapAround", func(t *T) { wrap(t, rc) }},
		{"V_TR_03_UC_PSNsWrapAround", func(t *T) { wrap(t, uc) }},
		{"V_EV_06_PingPongWithEvents", eventPingPong},
	}
	for mtu := verbs.MTU256; mtu <= verbs.MTU4096; mtu++ {
		cases = append(cases,
			testCase{fmt.Sprintf("V_GEN_16_RC_MTU%d_EverySize", mtu.Bytes()), func(t *T) { everySize(t, mtu) }},
			testCase{fmt.Sprintf("V_GEN_16_UC_MTU%d_EverySize", mtu.Bytes()), func(t *T) { everyUCSize(t, mtu) }})
	}
	return cases
}

const large = 1 << 20

// sizesFor returns lengths around a path MTU.
func sizesFor(mtu verbs.MTU) []int {
	m := mtu.Bytes()
	return []int{0, 1, m - 1, m, m + 1, 3*m + 7}
}

// wide is a second region of an end, for the large message and a margin around it.
type wide struct {
	*verbs.MR
	buf []byte
}

const margin = 64

func (e *end) wide() wide {
	e.t.Helper()
	w := wide{buf: make([]byte, large+2*margin)}
	w.MR = e.region(w.buf, e.access())
	return w
}

// fill writes n bytes that depend on seed, with the canary around them.
func (w *wide) fill(n, seed int) {
	blank(w.buf)
	for i := range n {
		w.buf[margin+i] = byte(i*5+i>>8*11+i>>16) + byte(seed)
	}
}

// check compares the n bytes with those of from, and checks the margins.
func (w *wide) check(t *T, what string, from *wide, n int) {
	t.Helper()
	t.equal(what, w.buf[margin:margin+n], from.buf[margin:margin+n])
	if !untouched(w.buf[:margin]) || !untouched(w.buf[margin+n:]) {
		t.Errorf("%s: memory around the %d bytes was written", what, n)
	}
}

func everySize(t *T, mtu verbs.MTU) {
	a, b := t.ends()
	qa, qb := connect(a, b, rc, &verbs.ConnectOptions{MTU: mtu})
	wa, wb := a.wide(), b.wide()
	for i, n := range append(sizesFor(mtu), large) {
		for k, op := range []verbs.WROpcode{verbs.WRSend, verbs.WRRDMAWrite, verbs.WRRDMARead} {
			from, to := &wa, &wb
			if op == verbs.WRRDMARead {
				from, to = to, from
			}
			from.fill(n, 10*i+k)
			to.fill(0, 0)
			if op == verbs.WRSend {
				t.must(qb.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{wb.SGE(margin, n)}}))
			}
			t.must(qa.PostSend(verbs.SendWR{
				Opcode: op, Flags: verbs.SendSignaled, SGList: []verbs.SGE{wa.SGE(margin, n)}, RemoteAddr: wb.Addr() + margin,
				RKey: wb.RKey(),
			}))
			t.good(a.sendCQ, 1)
			if op == verbs.WRSend {
				same(t, "byte_len", t.good(b.rcvQ, 1)[0].ByteLen, uint32(n))
			}
			to.check(t, fmt.Sprintf("%v of %d bytes", op, n), from, n)
		}
	}
}

func everyUCSize(t *T, mtu verbs.MTU) {
	a, b := t.ends()
	qa, qb := connect(a, b, uc, &verbs.ConnectOptions{MTU: mtu})
	wa, wb := a.wide(), b.wide()
	for i, n := range sizesFor(mtu) {
		for k, op := range []verbs.WROpcode{verbs.WRSend, verbs.WRRDMAWriteWithImm} {
			wa.fill(n, 10*i+k)
			wb.fill(0, 0)
			t.must(qb.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{wb.SGE(margin, n)}}))
			t.must(qa.PostSend(verbs.SendWR{
				Opcode: op, Flags: verbs.SendSignaled, SGList: []verbs.SGE{wa.SGE(margin, n)}, RemoteAddr: wb.Addr() + margin,
				RKey: wb.RKey(),
			}))
			t.good(a.sendCQ, 1)
			same(t, "byte_len", t.good(b.rcvQ, 1)[0].ByteLen, uint32(n))
			wb.check(t, fmt.Sprintf("%v of %d bytes", op, n), &wa, n)
		}
	}
}

func everyDatagram(t *T) {
	a, b := t.ends()
	qa, qb := a.datagrams(), b.datagrams()
	mtu := get(a.ctx.QueryPort(1))(t).ActiveMTU.Bytes()
	wr := a.datagram(qa, qb, verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled})
	for _, n := range []int{0, 1, 3, 4, 255, 256, 257, 1023, 1024, mtu - 1, mtu} {
		b.blank()
		t.must(qb.PostRecv(b.recv(1, 0, 40+n)))
		wr.SGList = []verbs.SGE{a.mr.SGE(n, n)}
		t.must(qa.PostSend(wr))
		t.good(a.sendCQ, 1)
		same(t, "byte_len", t.good(b.rcvQ, 1)[0].ByteLen, uint32(40+n))
		t.equal(fmt.Sprintf("%d bytes", n), b.buf[40:40+n], a.buf[n:2*n])
		if !untouched(b.buf[40+n:]) {
			t.Errorf("more than %d bytes were written", n)
		}
	}
}

// pieces returns n SGEs of various lengths with gaps between them, and their ranges.
func pieces(e *end, n int) (list []verbs.SGE, ranges [][2]int, total int) {
	at := 0
	for i := range n {
		size := i*i%97 + 1
		list = append(list, e.mr.SGE(at, size))
		ranges = append(ranges, [2]int{at, at + size})
		at += size + 3
		total += size
	}
	return list, ranges, total
}

func stream(buf []byte, ranges [][2]int) (out []byte) {
	for _, r := range ranges {
		out = append(out, buf[r[0]:r[1]]...)
	}
	return out
}

func sgeLimits(t *T) {
	a, b := t.ends()
	attr := get(a.ctx.QueryDevice())(t)
	most := func(init *verbs.QPInitAttr) {
		init.Cap.MaxSendSGE, init.Cap.MaxRecvSGE = uint32(max(attr.MaxSGE, attr.MaxSGERd)), uint32(attr.MaxSGE)
	}
	qa, qb := a.qp(rc, most), b.qp(rc, most)
	t.join(qa, qb, &verbs.ConnectOptions{MTU: verbs.MTU256})
	from, sent, n := pieces(a, attr.MaxSGE)
	// The receive has entries of the same lengths in reverse order.
	to, got, _ := pieces(b, attr.MaxSGE)
	for i, j := 0, len(to)-1; i < j; i, j = i+1, j-1 {
		to[i], to[j], got[i], got[j] = to[j], to[i], got[j], got[i]
	}
	t.must(qb.PostRecv(verbs.RecvWR{SGList: to}))
	t.must(qa.PostSend(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: from}))
	same(t, "byte_len", t.good(b.rcvQ, 1)[0].ByteLen, uint32(n))
	t.good(a.sendCQ, 1)
	t.equal("the SEND", stream(b.buf, got), stream(a.buf, sent))

	into, read, n := pieces(a, attr.MaxSGERd)
	b.fill()
	a.blank()
	t.must(qa.PostSend(verbs.SendWR{Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled, SGList: into,
		RemoteAddr: b.mr.Addr() + 5, RKey: b.mr.RKey()}))
	same(t, "byte_len", t.good(a.sendCQ, 1)[0].ByteLen, uint32(n))
	t.equal("the READ", stream(a.buf, read), b.buf[5:5+n])
	for i := 1; i < len(read); i++ {
		if !untouched(a.buf[read[i-1][1]:read[i][0]]) {
			t.Errorf("the READ wrote between its entries %d and %d", i-1, i)
		}
	}
	t.refused("one entry too many", qa.PostSend(verbs.SendWR{Opcode: verbs.WRSend, SGList: append(from, from...)}),
		verbs.EINVAL)
}

func inlineWrite(t *T) {
	a, b := t.ends()
	qa, limit := a.widestInline(rc)
	qb := b.qp(rc, nil)
	t.join(qa, qb, &verbs.ConnectOptions{MTU: verbs.MTU256})
	for _, n := range []int{0, 1, 255, 256, 257, limit} {
		b.blank()
		wr := a.rdma(verbs.WRRDMAWrite, 1, b, 8, n)
		wr.Flags |= verbs.SendInline
		t.must(qa.PostSend(wr))
		t.good(a.sendCQ, 1)
		t.equal(fmt.Sprintf("%d bytes", n), b.buf[8:8+n], a.buf[8:8+n])
		if !untouched(b.buf[:8]) || !untouched(b.buf[8+n:]) {
			t.Errorf("more than %d bytes were written", n)
		}
	}
}

func wrap(t *T, typ verbs.QPType) {
	a, b := t.ends()
	qa, qb := a.qp(typ, nil), b.qp(typ, nil)
	ia, ib := t.info(qa), t.info(qb)
	ia.PSN, ib.PSN = 0xfffffd, 0xffffff
	mask := rtsMask
	if typ == uc {
		mask = ucRTSMask
	}
	for _, s := range []struct {
		qp        *verbs.QP
		own, peer verbs.QPInfo
	}{{qa, ia, ib}, {qb, ib, ia}} {
		toInit(s.qp, allAccess)
		s.peer.MTU = verbs.MTU256
		toRTR(s.qp, s.peer, 12)
		mustModify(s.qp, &verbs.QPAttr{QPState: verbs.QPSRTS, SQPSN: s.own.PSN, Timeout: 19, RetryCnt: 7, RNRRetry: 7,
			MaxRdAtomic: 2}, mask)
	}
	sides := []struct {
		from, to   *end
		qfrom, qto *verbs.QP
	}{{a, b, qa, qb}, {b, a, qb, qa}}
	for i := range 6 {
		for _, s := range sides {
			n := 600 + i // three packets
			t.must(s.qto.PostRecv(s.to.recv(1, 4096, n)))
			t.must(s.qfrom.PostSend(s.from.send(2, 0, n)))
			t.good(s.from.sendCQ, 1)
			t.good(s.to.rcvQ, 1)
			t.equal("the SEND", s.to.buf[4096:4096+n], s.from.buf[:n])
		}
	}
	if typ == uc {
		return
	}
	// A READ whose response wraps around.
	t.to(qa, verbs.QPSReset)
	t.to(qb, verbs.QPSReset)
	toInit(qa, allAccess)
	toInit(qb, allAccess)
	ib.MTU, ia.MTU = verbs.MTU256, verbs.MTU256
	toRTR(qa, ib, 12)
	toRTR(qb, ia, 12)
	mustModify(qa, &verbs.QPAttr{QPState: verbs.QPSRTS, SQPSN: ia.PSN, Timeout: 19, RetryCnt: 7, RNRRetry: 7,
		MaxRdAtomic: 2}, rtsMask)
	b.fill()
	a.blank()
	t.must(qa.PostSend(a.rdma(verbs.WRRDMARead, 1, b, 0, 5000), a.rdma(verbs.WRAtomicFetchAndAdd, 2, b, 8000, 8),
		a.rdma(verbs.WRRDMARead, 3, b, 5000, 700)))
	t.good(a.sendCQ, 3)
	t.equal("the READs", a.buf[:5700], b.buf[:5700])
}

// eventPingPong exchanges messages between programs that wait for events: get the event, acknowledge it,
// arm, poll until the CQ is empty.
func eventPingPong(t *T) {
	type player struct {
		e        *end
		qp       *verbs.QP
		ch       *verbs.CompChannel
		cq       *verbs.CQ
		received int
	}
	var players [2]*player
	for i := range players {
		p := &player{e: t.end()}
		p.ch = closing(t, get(p.e.ctx.CreateCompChannel())(t))
		p.cq = p.e.cq(16, &verbs.CQOptions{Channel: p.ch})
		p.qp = p.e.qp(rc, func(init *verbs.QPInitAttr) { init.SendCQ, init.RecvCQ = p.cq, p.cq })
		t.must(p.cq.ReqNotify(false))
		players[i] = p
	}
	t.join(players[0].qp, players[1].qp, nil)
	const rounds = 50
	serve := func(p *player) {
		t.must(p.qp.PostRecv(p.e.recv(1, 0, 100)))
		t.must(p.qp.PostSend(p.e.send(2, 0, 100)))
	}
	step := func(p *player) {
		cq, err := p.ch.TryGetEvent()
		if err != nil {
			return
		}
		cq.AckEvents(1)
		t.must(cq.ReqNotify(false))
		for wcs := make([]verbs.WC, 1); get(cq.Poll(wcs))(t) > 0; {
			t.must(wcs[0].Err())
			if wcs[0].Opcode == verbs.WCRecv {
				if p.received++; p.received < rounds {
					serve(p)
				}
			}
		}
	}
	t.must(players[1].qp.PostRecv(players[1].e.recv(1, 0, 100)))
	serve(players[0])
	done := t.Await(func() bool {
		step(players[0])
		step(players[1])
		return players[1].received == rounds
	}, waitLimit)
	if !done {
		t.Errorf("no progress after %d and %d receives", players[0].received, players[1].received)
	}
}
