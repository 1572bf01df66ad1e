package conformance

import (
	"errors"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/verbs"
)

// Sends (section 43). Datagrams are in datagrams.go, solicited events in notify.go, signalling in qps.go.
var sendCases = []testCase{
	{"V_SEND_01_RequestsBeforeABadOneArePosted", sentBeforeBad},
	{"V_SEND_03_InlineIsReusableAtOnce", inlineReuse},
	{"V_SEND_09_FenceWaitsForReads", fence},
	{"V_SEND_09_FenceOnRCOnly", fenceOnRC},
	{"V_SEND_12_UnsignaledSendsAreSilent", unsignaled},
	{"V_SEND_17_ZeroLengthOfEveryKind", zeroLength},
	{"X_SEND_01_Errnos", sendErrnos},
	{"X_SEND_02_V_TR_02_V_APP_04_InOrder", inOrder},
	{"X_SEND_02_AtomicsNeedAlignmentAnd8Bytes", atomicShape},
}

// firstBad checks the index of the request that a post call refused.
func (t *T) firstBad(err error, want int) {
	t.Helper()
	var e *verbs.PostError
	if !errors.As(err, &e) || e.Index != want {
		t.Errorf("%v: want request %d refused", err, want)
	}
}

func sentBeforeBad(t *T) {
	a, b := t.ends()
	qa, qb := connect(a, b, verbs.QPTypeRC, nil)
	t.must(qb.PostRecv(b.recv(1, 0, 10), b.recv(2, 0, 10), b.recv(3, 0, 10)))
	bad := a.send(3, 0, 1)
	bad.Opcode = 99
	err := qa.PostSend(a.send(1, 0, 1), a.send(2, 0, 1), bad, a.send(4, 0, 1))
	t.refused("a bad send", err, verbs.EINVAL)
	t.firstBad(err, 2)
	same(t, "sends", t.ids(t.poll(a.sendCQ, 2), verbs.WCSuccess), "[1 2]")
	t.silent("the send behind the bad one was not posted", a.sendCQ)
	t.is(qa, verbs.QPSRTS)
}

func inlineReuse(t *T) {
	e := t.end()
	p := e.rawPeer(verbs.QPTypeRC, slow)
	t.toSQD(p.qp, false) // nothing is sent
	listed, given := e.send(1, 0, 8), e.send(2, 0, 0)
	listed.Flags |= verbs.SendInline
	copy(e.buf, "listed..")
	given.Flags |= verbs.SendInline
	given.SGList, given.Inline = nil, []byte("given...")
	t.must(p.qp.PostSend(listed, given))
	clear(e.buf)
	clear(given.Inline)
	t.to(p.qp, verbs.QPSRTS)
	for _, want := range []string{"listed..", "given..."} {
		same(t, "the payload", string(p.expect(wire.SendOnly).Payload), want)
	}
}

func fence(t *T) {
	e := t.end()
	p := e.rawPeer(verbs.QPTypeRC, slow)
	fenced := e.rdma(verbs.WRRDMAWrite, 2, e, 0, 8)
	fenced.Flags |= verbs.SendFence
	t.must(p.qp.PostSend(e.rdma(verbs.WRRDMARead, 1, e, 0, 8), fenced))
	f := p.expect(wire.ReadRequest)
	p.expectNothing("the READ is not complete")
	p.answer(wire.ReadRespOnly, f.PSN, wire.SynAck, full[:8])
	p.expect(wire.WriteOnly)
}

func fenceOnRC(t *T) {
	a, b := t.ends()
	for _, typ := range []verbs.QPType{rc, uc, ud} {
		qa, qb := connect(a, b, typ, nil)
		t.must(qb.PostRecv(b.recv(1, 0, 100)))
		wr := a.send(1, 0, 10)
		if typ == ud {
			wr = a.datagram(qa, qb, wr)
		}
		wr.Flags |= verbs.SendFence
		if typ == rc {
			t.must(qa.PostSend(wr))
			t.good(a.sendCQ, 1)
		} else {
			t.refused(typ.String(), qa.PostSend(wr), verbs.EINVAL)
		}
	}
}

func unsignaled(t *T) {
	a, b := t.ends()
	qa, qb := connect(a, b, verbs.QPTypeRC, nil)
	for i := range 5 {
		t.must(qb.PostRecv(b.recv(uint64(i), 0, 10)))
		wr := a.send(uint64(i), 0, 1)
		if i != 3 {
			wr.Flags = 0
		}
		t.must(qa.PostSend(wr))
	}
	t.good(b.rcvQ, 5)
	same(t, "sends", t.ids(t.poll(a.sendCQ, 1), verbs.WCSuccess), "[3]")
	t.silent("the others are not signaled", a.sendCQ)
}

func zeroLength(t *T) {
	for _, typ := range []verbs.QPType{verbs.QPTypeRC, verbs.QPTypeUC, verbs.QPTypeUD} {
		a, b := t.ends()
		qa, qb := connect(a, b, typ, nil)
		b.blank()
		for _, op := range []verbs.WROpcode{verbs.WRSend, verbs.WRSendWithImm, verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm,
			verbs.WRRDMARead} {
			if typ == verbs.QPTypeUD && op != verbs.WRSend && op != verbs.WRSendWithImm || typ == verbs.QPTypeUC &&
				op == verbs.WRRDMARead {
				continue
			}
			wr := a.rdma(op, 1, b, 0, 0)
			wr.RKey ^= 0x55 // an invalid key
			wr.SGList = [][]verbs.SGE{nil, {{}, {}}}[op&1]
			if typ == verbs.QPTypeUD {
				wr = a.datagram(qa, qb, wr)
			}
			receives := op != verbs.WRRDMAWrite && op != verbs.WRRDMARead
			if receives {
				t.must(qb.PostRecv(b.recv(2, 0, 40)))
			}
			t.must(qa.PostSend(wr))
			same(t, "byte_len of the send", t.good(a.sendCQ, 1)[0].ByteLen, 0)
			if receives {
				want := uint32(0)
				if typ == verbs.QPTypeUD {
					want = 40
				}
				same(t, "byte_len of the receive", t.good(b.rcvQ, 1)[0].ByteLen, want)
			}
		}
		if typ != verbs.QPTypeUD && !untouched(b.buf) {
			t.Error("a request of length 0 wrote to memory")
		}
	}
}

func sendErrnos(t *T) {
	a, b := t.ends()
	qa, _ := connect(a, b, verbs.QPTypeRC, slow)
	for _, c := range []struct {
		name   string
		change func(wr *verbs.SendWR)
	}{
		{"an unknown opcode", func(wr *verbs.SendWR) { wr.Opcode = 77 }},
		{"an opcode of another type", func(wr *verbs.SendWR) { wr.Opcode = verbs.WRTSO }},
		{"too many SGEs", func(wr *verbs.SendWR) { wr.SGList = make([]verbs.SGE, 33) }},
		{"too much inline data", func(wr *verbs.SendWR) {
			wr.SGList, wr.Flags, wr.Inline = nil, verbs.SendInline, make([]byte, 1<<16)
		}},
		{"unknown flags", func(wr *verbs.SendWR) { wr.Flags = 1 << 20 }},
	} {
		wr := a.send(1, 0, 1)
		c.change(&wr)
		t.refused(c.name, qa.PostSend(wr), verbs.EINVAL)
	}
	_, init, err := qa.Query(0)
	t.must(err)
	for i := range init.Cap.MaxSendWR {
		t.must(qa.PostSend(a.send(uint64(i), 0, 1)))
	}
	t.refused("a full queue", qa.PostSend(a.send(1, 0, 1)), verbs.ENOMEM)
	for _, s := range []verbs.QPState{verbs.QPSReset, verbs.QPSInit} {
		q := a.qp(verbs.QPTypeRC, nil)
		if s == verbs.QPSInit {
			toInit(q, 0)
		}
		t.refused("a send in "+s.String(), q.PostSend(a.send(1, 0, 1)), verbs.EINVAL)
	}
}

func inOrder(t *T) {
	for _, typ := range []verbs.QPType{verbs.QPTypeRC, verbs.QPTypeUC} {
		a, b := t.ends()
		qa, qb := connect(a, b, typ, &verbs.ConnectOptions{MTU: verbs.MTU256})
		const n = 15
		for i := range n {
			t.must(qb.PostRecv(b.recv(uint64(i), 4096*i, 4096)))
		}
		for i := range n {
			op := []verbs.WROpcode{verbs.WRSend, verbs.WRRDMAWriteWithImm, verbs.WRSendWithImm}[i%3]
			wr := a.rdma(op, uint64(i), b, 4096*i, (i*i*37)%2000)
			wr.ImmData = uint32(i)
			t.must(qa.PostSend(wr))
		}
		want := "[0 1 2 3 4 5 6 7 8 9 10 11 12 13 14]"
		same(t, "sends", t.ids(t.poll(a.sendCQ, n), verbs.WCSuccess), want)
		same(t, "receives", t.ids(t.poll(b.rcvQ, n), verbs.WCSuccess), want)
	}
}

func atomicShape(t *T) {
	for _, op := range []verbs.WROpcode{verbs.WRAtomicFetchAndAdd, verbs.WRAtomicCmpAndSwp} {
		a, b := t.ends()
		qa, _ := connect(a, b, verbs.QPTypeRC, nil)
		t.refused("7 bytes for the result", qa.PostSend(a.rdma(op, 1, b, 0, 7)), verbs.EINVAL)
		wr := a.rdma(op, 2, b, 0, 8)
		wr.SGList = []verbs.SGE{a.mr.SGE(100, 3), a.mr.SGE(200, 5)} // in pieces
		copy(b.buf, "\x01\x02\x03\x04\x05\x06\x07\x08")
		t.must(qa.PostSend(wr))
		t.good(a.sendCQ, 1)
		same(t, "the result", string(a.buf[100:103])+string(a.buf[200:205]), "\x01\x02\x03\x04\x05\x06\x07\x08")
		wr = a.rdma(op, 3, b, 0, 8)
		wr.RemoteAddr += 4
		t.must(qa.PostSend(wr))
		same(t, "a misaligned address", t.poll(a.sendCQ, 1)[0].Status, verbs.WCRemInvReqErr)
	}
}
