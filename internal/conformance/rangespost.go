package conformance

import (
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

var postCases = []testCase{
	{"V_SEND_01_V_RECV_01_V_RECV_08_BadRequestAtEachPosition", badAtEachPosition},
	{"X_SEND_01_X_RECV_01_ListsAsLongAsTheQueue", fullLists},
	{"V_SEND_08_X_SEND_01_RangesOfSends", rangesOfSends},
	{"X_RECV_01_V_RECV_08_RangesOfReceives", rangesOfReceives},
	{"V_SEND_15_RangesOfSRQNumbers", rangesOfSRQNumbers},
	{"V_WR_05_V_WR_04_RangesOfTheBuilder", rangesOfBuilder},
	{"V_CQX_11_V_WR_03_EveryWRID", everyWRID},
}

// badAtEachPosition posts lists with one bad request. The requests before it are posted; it and those
// behind it are not.
func badAtEachPosition(t *T) {
	a, b := t.ends()
	const n = 5
	for at := range n {
		qa, qb := connect(a, b, rc, nil)
		var sends []verbs.SendWR
		var recvs []verbs.RecvWR
		want := []uint64{}
		for i := range n {
			s, r := a.send(uint64(i), 0, 1), b.recv(uint64(i), 0, 10)
			if i == at {
				s.SGList, r.SGList = make([]verbs.SGE, 33), make([]verbs.SGE, 33)
			}
			if i < at {
				want = append(want, uint64(i))
			}
			sends, recvs = append(sends, s), append(recvs, r)
		}
		err := qb.PostRecv(recvs...)
		t.refused("a bad receive", err, verbs.EINVAL)
		t.firstBad(err, at)
		err = qa.PostSend(sends...)
		t.refused("a bad send", err, verbs.EINVAL)
		t.firstBad(err, at)
		same(t, "sends", t.ids(t.poll(a.sendCQ, at), verbs.WCSuccess), fmt.Sprint(want))
		same(t, "receives", t.ids(t.poll(b.rcvQ, at), verbs.WCSuccess), fmt.Sprint(want))
		t.to(qb, verbs.QPSErr)
		t.silent("no other request was posted", a.sendCQ, b.rcvQ)

		srq := b.srq(8)
		err = srq.PostRecv(recvs...)
		t.refused("a bad receive of an SRQ", err, verbs.EINVAL)
		t.firstBad(err, at)
		t.must(qa.Close())
		t.must(qb.Close())
	}
}

// fullLists posts as many requests as fit into a queue in one call, and one more.
func fullLists(t *T) {
	a, b := t.ends()
	for _, depth := range []uint32{1, 7, 64} {
		change := func(i *verbs.QPInitAttr) { i.Cap.MaxSendWR, i.Cap.MaxRecvWR = depth, depth }
		qa, qb := a.qp(rc, change), b.qp(rc, change)
		t.join(qa, qb, slow)
		_, ia, err := qa.Query(0)
		t.must(err)
		_, ib, err := qb.Query(0)
		t.must(err)
		sends, recvs := int(ia.Cap.MaxSendWR), int(ib.Cap.MaxRecvWR)
		if sends < int(depth) || recvs < int(depth) {
			t.Fatalf("%d and %d requests, want %d", sends, recvs, depth)
		}
		var rl []verbs.RecvWR
		for i := range recvs + 1 {
			rl = append(rl, b.recv(uint64(i), 0, 10))
		}
		err = qb.PostRecv(rl...)
		t.refused("one receive too many", err, verbs.ENOMEM)
		t.firstBad(err, recvs)
		var sl []verbs.SendWR
		for i := range sends + 1 {
			wr := a.rdma(verbs.WRRDMAWrite, uint64(i), b, 100, 1)
			if i < min(sends, recvs) {
				wr = a.send(uint64(i), 0, 1)
			}
			sl = append(sl, wr)
		}
		t.toSQD(qa, false) // no request leaves the queue
		err = qa.PostSend(sl...)
		t.refused("one send too many", err, verbs.ENOMEM)
		t.firstBad(err, sends)
		t.to(qa, verbs.QPSRTS)
		t.good(a.sendCQ, sends)
		t.good(b.rcvQ, min(sends, recvs))
		t.silent("the others were not posted", a.sendCQ)
		t.must(qa.PostSend()) // an empty list
		t.must(qb.PostRecv())
		t.must(qa.Close())
		t.must(qb.Close())
	}
}

func rangesOfSends(t *T) {
	a, b := t.ends()
	_, limit := a.widestInline(rc)
	change := func(i *verbs.QPInitAttr) { i.Cap.MaxInlineData = uint32(limit) }
	for _, typ := range []verbs.QPType{rc, uc, ud} {
		qa, qb := a.qp(typ, change), b.qp(typ, nil)
		t.join(qa, qb, nil)
		send := func(change func(wr *verbs.SendWR)) error {
			wr := a.send(1, 0, 1)
			if typ == ud {
				wr = a.datagram(qa, qb, wr)
			}
			change(&wr)
			t.must(qb.PostRecv(b.recv(1, 0, memory)))
			err := qa.PostSend(wr)
			if err != nil {
				t.to(qb, verbs.QPSErr)
				t.poll(b.rcvQ, 1)
				qb = b.qp(typ, nil)
				t.to(qa, verbs.QPSReset)
				t.join(qa, qb, nil)
				return err
			}
			t.good(a.sendCQ, 1)
			t.good(b.rcvQ, 1)
			return nil
		}
		sges := func(n uint64) func(*verbs.SendWR) {
			return func(wr *verbs.SendWR) {
				wr.SGList = nil
				for i := range n {
					wr.SGList = append(wr.SGList, a.mr.SGE(int(i)*10, 3))
				}
			}
		}
		_, init, err := qa.Query(0)
		t.must(err)
		most := uint64(init.Cap.MaxInlineData)
		if typ == ud {
			most = min(most, uint64(get(a.ctx.QueryPort(1))(t).ActiveMTU.Bytes()))
		}
		spans := []span{
			{name: "num_sge", most: uint64(init.Cap.MaxSendSGE), top: 100, try: func(v uint64) error { return send(sges(v)) }},
			{name: "imm_data", most: top32, try: func(v uint64) error {
				return send(func(wr *verbs.SendWR) { wr.Opcode, wr.ImmData = verbs.WRSendWithImm, uint32(v) })
			}},
		}
		inline := span{name: "inline bytes", most: most, try: func(v uint64) error {
			return send(func(wr *verbs.SendWR) {
				wr.Flags |= verbs.SendInline
				wr.SGList, wr.Inline = nil, make([]byte, v)
			})
		}}
		listed := span{name: "inline bytes of a list", most: most, try: func(v uint64) error {
			return send(func(wr *verbs.SendWR) {
				wr.Flags |= verbs.SendInline
				wr.SGList = []verbs.SGE{a.mr.SGE(0, int(v/2)), a.mr.SGE(0, int(v-v/2))}
			})
		}}
		if most == uint64(init.Cap.MaxInlineData) {
			inline.top, listed.top = most+100, most+100
		}
		t.sweep(append(spans, inline, listed))
		for bit := 5; bit < 32; bit++ {
			t.refused(fmt.Sprintf("%v: flag %d", typ, bit), send(func(wr *verbs.SendWR) { wr.Flags |= 1 << bit }), verbs.EINVAL)
		}
		for op := verbs.WROpcode(11); op < 40; op++ {
			t.refused(fmt.Sprintf("%v: opcode %d", typ, op), send(func(wr *verbs.SendWR) { wr.Opcode = op }), verbs.EINVAL)
		}
		if typ == ud {
			t.refused("a QP number of 25 bits", send(func(wr *verbs.SendWR) { wr.RemoteQPN = 1 << 24 }), verbs.EINVAL)
			t.refused("the largest QP number", send(func(wr *verbs.SendWR) { wr.RemoteQPN = top32 }), verbs.EINVAL)
			t.refused("no address handle", send(func(wr *verbs.SendWR) { wr.AH = nil }), verbs.EINVAL)
		}
	}
}

// rangesOfReceives posts up to the largest number of entries and beyond, in QPs of each type and in SRQs.
func rangesOfReceives(t *T) {
	e := t.end()
	sweep := func(name string, most uint32, post func(...verbs.RecvWR) error, held func(want int) int) {
		t.Helper()
		posted := 0
		t.sweep([]span{{name: "num_sge of " + name, most: uint64(most), top: 1000,
			try: func(v uint64) error {
				wr := verbs.RecvWR{WRID: v}
				for i := range v {
					wr.SGList = append(wr.SGList, e.mr.SGE(int(i)*8, 8))
				}
				err := post(wr)
				if err == nil {
					posted++
				}
				return err
			}}})
		same(t, "receives that "+name+" holds", held(posted), posted)
	}
	for _, typ := range []verbs.QPType{rc, uc, ud} {
		qp := e.qp(typ, nil)
		if typ == ud {
			t.must(qp.Modify(&verbs.QPAttr{QPState: verbs.QPSInit, PortNum: 1}, mSTATE|mPKEY|mPORT|mQKEY))
		} else {
			toInit(qp, allAccess)
		}
		_, init, err := qp.Query(0)
		t.must(err)
		sweep(typ.String(), init.Cap.MaxRecvSGE, qp.PostRecv, func(want int) int {
			t.to(qp, verbs.QPSErr)
			n := len(t.poll(e.rcvQ, want))
			t.silent("refused receives were not posted", e.rcvQ)
			return n
		})
	}
	srq := e.srq(8)
	sweep("an SRQ", get(srq.Query())(t).MaxSGE, srq.PostRecv, func(int) int {
		n := 0
		for srq.PostRecv(verbs.RecvWR{}) == nil {
			n++
		}
		return int(get(srq.Query())(t).MaxWR) - n
	})
}

func rangesOfSRQNumbers(t *T) {
	e := t.end()
	if get(e.ctx.QueryDevice())(t).DeviceCapFlags&verbs.DeviceXRC == 0 {
		t.Skip("the device has no XRC")
	}
	qp := newProber(t, verbs.QPTypeXRCSend).in(verbs.QPSRTS)
	t.sweep([]span{{name: "remote_srqn", most: 1<<24 - 1, top: top32, try: func(v uint64) error {
		return qp.PostSend(verbs.SendWR{Opcode: verbs.WRSend, RemoteSRQN: uint32(v)})
	}}})
}

// rangesOfBuilder checks that an error in any request of a batch drops the batch.
func rangesOfBuilder(t *T) {
	a, b := t.ends()
	_, limit := a.widestInline(rc)
	init := verbs.QPInitAttr{
		Type: rc, SendCQ: a.sendCQ, RecvCQ: a.rcvQ, Cap: verbs.QPCap{
			MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 3, MaxRecvSGE: 1, MaxInlineData: uint32(limit),
		},
		SendOpsFlags: verbs.QPExWithSend | verbs.QPExWithRDMAWrite,
	}
	qa := closing(t, get(a.pd.CreateQP(&init))(t))
	qb := b.qp(rc, nil)
	t.join(qa, qb, nil)
	x := get(qa.Ex())(t)
	sges, room := int(init.Cap.MaxSendSGE), int(init.Cap.MaxSendWR)
	list := func(n int) (l []verbs.SGE) {
		for range n {
			l = append(l, a.mr.SGE(0, 2))
		}
		return l
	}
	for name, c := range map[string]struct {
		good, bad func()
		errno     error
	}{
		"entries":    {func() { x.SetSGEList(list(sges)) }, func() { x.SetSGEList(list(sges + 1)) }, verbs.EINVAL},
		"no entries": {func() { x.SetSGEList(nil) }, func() { x.SetSGEList(list(100)) }, verbs.EINVAL},
		"inline bytes": {func() { x.SetInlineData(a.buf[:limit]) }, func() { x.SetInlineData(a.buf[:limit+1]) },
			verbs.EINVAL},
		"inline pieces": {func() { x.SetInlineDataList([][]byte{a.buf[:limit-1], a.buf[:1]}) },
			func() { x.SetInlineDataList([][]byte{a.buf[:limit], a.buf[:1]}) }, verbs.EINVAL},
		"no inline bytes": {func() { x.SetInlineData(nil) }, func() {}, verbs.EINVAL},
		"two setters": {func() { x.SetSGE(a.mr.SGE(0, 1)) },
			func() { x.SetSGE(a.mr.SGE(0, 1)); x.SetSGE(a.mr.SGE(0, 1)) }, verbs.EINVAL},
		"a foreign setter": {func() { x.SetSGE(a.mr.SGE(0, 1)) }, func() { x.SetSGE(a.mr.SGE(0, 1)); x.SetXRCSRQN(1) },
			verbs.EINVAL},
		"an operation": {func() { x.SetSGE(a.mr.SGE(0, 1)) },
			func() { x.SetSGE(a.mr.SGE(0, 1)); x.RDMARead(1, 2); x.SetSGE(a.mr.SGE(0, 1)) }, verbs.EINVAL},
		"too many requests": {func() { x.SetSGE(a.mr.SGE(0, 1)) }, func() {
			x.SetSGE(a.mr.SGE(0, 1))
			for range room {
				x.RDMAWrite(b.mr.RKey(), b.mr.Addr())
				x.SetSGE(a.mr.SGE(0, 1))
			}
		}, verbs.ENOMEM},
	} {
		for place := range 3 {
			batch := func(set func()) error {
				x.Start()
				for i := range 3 {
					x.WRID, x.WRFlags = uint64(i), verbs.SendSignaled
					x.RDMAWrite(b.mr.RKey(), b.mr.Addr())
					if i == place {
						set()
					} else {
						x.SetSGE(a.mr.SGE(0, 1))
					}
				}
				return x.Complete()
			}
			t.refused(fmt.Sprintf("%s, request %d", name, place), batch(c.bad), c.errno)
			t.silent(name+": the batch was dropped", a.sendCQ)
			t.must(batch(c.good))
			same(t, name, t.ids(t.poll(a.sendCQ, 3), verbs.WCSuccess), "[0 1 2]")
		}
	}
	x.Start()
	x.Abort()
	t.refused("Complete without Start", x.Complete(), verbs.EINVAL)
	t.is(qa, verbs.QPSRTS)
}

func everyWRID(t *T) {
	a, b := t.ends()
	qa, qb := connect(a, b, rc, nil)
	for _, id := range []uint64{0, 1, 1 << 31, 1 << 32, 1 << 63, top64} {
		t.must(qb.PostRecv(b.recv(id, 0, 10)))
		t.must(qa.PostSend(a.send(^id, 0, 1)))
		same(t, "wr_id of the send", t.good(a.sendCQ, 1)[0].WRID, ^id)
		same(t, "wr_id of the receive", t.good(b.rcvQ, 1)[0].WRID, id)
	}
}
