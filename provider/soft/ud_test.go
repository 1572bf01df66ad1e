package soft_test

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/gsi"
	"github.com/verbena-rdma/verbena/verbs"
)

// udPair makes two UD QPs in RTS and an AH from the first to the second.
func udPair(t *testing.T, a, b *end) (qa, qb *verbs.QP, ah *verbs.AH) {
	t.Helper()
	return udPairOf(t, a, b, nil)
}

// udPairOf is udPair with other attributes.
func udPairOf(t *testing.T, a, b *end, change func(*verbs.QPInitAttr)) (qa, qb *verbs.QP, ah *verbs.AH) {
	t.Helper()
	qa, qb = a.qp(verbs.QPTypeUD, change), b.qp(verbs.QPTypeUD, change)
	must(t, qa.Connect(verbs.QPInfo{}, nil))
	must(t, qb.Connect(verbs.QPInfo{}, nil))
	attr := get(qa.AHAttrTo(get(qb.LocalInfo())(t), nil))(t)
	ah = get(a.pd.CreateAH(&attr))(t)
	t.Cleanup(func() { must(t, ah.Close()) })
	return qa, qb, ah
}

func TestV_KC_10_DatagramAndAnswer(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		qa, qb, ah := udPair(t, a, b)
		must(t, qb.PostRecv(recv(b, 1, 2000)))
		must(t, qa.PostRecv(verbs.RecvWR{WRID: 2, SGList: []verbs.SGE{a.mr.SGE(5000, 2000)}}))
		a.fill(1)
		wr := send(a, 1000)
		wr.AH, wr.RemoteQPN, wr.RemoteQKey = ah, qb.QPN(), verbs.DefaultQKey
		wr.Opcode, wr.ImmData = verbs.WRSendWithImm, 77
		must(t, qa.PostSend(wr))
		a.good(1)
		r := b.good(1)[0]
		if r.ByteLen != 1040 || r.SrcQP != qa.QPN() || r.WCFlags != verbs.WCGRH|verbs.WCWithImm || r.ImmData != 77 {
			t.Errorf("receive completion %+v", r)
		}
		if !bytes.Equal(b.buf[40:1040], a.buf[:1000]) {
			t.Error("the received bytes differ")
		}
		sl := uint8(10) // over IPv4: the first 20 of the 40 bytes are not defined
		if b.buf[0]>>4 == 6 {
			sl = 9
		}
		if r.SL != sl {
			t.Errorf("SL %d, want %d", r.SL, sl)
		}
		back := get(b.pd.CreateAHFromWC(1, &r, b.buf[:40]))(t)
		defer back.Close()
		ans := send(b, 100)
		ans.AH, ans.RemoteQPN, ans.RemoteQKey = back, r.SrcQP, verbs.DefaultQKey
		must(t, qb.PostSend(ans))
		if wc := a.good(1)[0]; wc.WRID != 2 || wc.ByteLen != 140 {
			t.Errorf("the answer: %+v", wc)
		}
	})
}

func TestV_TR_04_D_22_DatagramsWithoutReceiveAreDropped(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		qa, qb, ah := udPair(t, a, b)
		wr := send(a, 10)
		wr.AH, wr.RemoteQPN, wr.RemoteQKey = ah, qb.QPN(), verbs.DefaultQKey
		must(t, qa.PostSend(wr)) // no receive
		waitFor(t, "recv_dropped", func() bool { return counter(b.dev, "recv_dropped") == 1 })
		must(t, qb.PostRecv(recv(b, 1, 100)))
		wr.RemoteQKey++
		must(t, qa.PostSend(wr)) // wrong Q_Key
		waitFor(t, "bad_qkey", func() bool { return counter(b.dev, "bad_qkey") == 1 })
		time.Sleep(violationsAge)
		if attr := get(b.ctx.QueryPort(1))(t); attr.QKeyViolCntr != 1 {
			t.Errorf("qkey_viol_cntr is %d", attr.QKeyViolCntr)
		}
		wr.RemoteQKey--
		must(t, qa.PostSend(wr))
		b.good(1)
		a.good(3) // the sender gets no error
	})
}

// violationsAge is longer than the device's violationsAge.
const violationsAge = 110 * time.Millisecond

func TestV_MC_03_MulticastReachesEachAttachedQPOnce(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		qa := a.qp(verbs.QPTypeUD, nil)
		must(t, qa.Connect(verbs.QPInfo{}, nil))
		group := verbs.GIDFromAddr(netip.MustParseAddr("239.4.7.91"))
		var qs []*verbs.QP
		for i := range 5 { // on both shards
			var own *verbs.CQ
			if i%2 == 1 {
				own = get(b.ctx.CreateCQ(10, &verbs.CQOptions{CompVector: 1}))(t)
				t.Cleanup(func() { must(t, own.Close()) })
			}
			q := b.qp(verbs.QPTypeUD, func(init *verbs.QPInitAttr) {
				if own != nil {
					init.RecvCQ = own
				}
			})
			must(t, q.Connect(verbs.QPInfo{}, nil))
			must(t, q.PostRecv(recv(b, uint64(i), 100), recv(b, uint64(i), 100)))
			if i < 4 { // one is not attached
				must(t, q.AttachMcast(group, 0))
				must(t, q.AttachMcast(group, 0))
			}
			qs = append(qs, q)
		}
		attr := verbs.AHAttr{PortNum: 1, IsGlobal: true, GRH: verbs.GlobalRoute{DGID: group, SGIDIndex: 1, HopLimit: 1}}
		ah := get(a.pd.CreateAH(&attr))(t)
		defer ah.Close()
		wr := send(a, 50)
		wr.AH, wr.RemoteQPN, wr.RemoteQKey = ah, 0xffffff, verbs.DefaultQKey
		must(t, qa.PostSend(wr))
		a.good(1)
		waitFor(t, "four copies", func() bool { return counter(b.dev, "rx_data_bytes") == 4*50 })
		for _, q := range qs[:4] {
			if err := q.Close(); !errors.Is(err, verbs.EBUSY) { // V-QPD-04
				t.Errorf("closing an attached QP: %v", err)
			}
			must(t, q.DetachMcast(group, 0))
		}
		must(t, qa.PostSend(wr))
		time.Sleep(10 * time.Millisecond)
		if got := counter(b.dev, "rx_data_bytes"); got != 4*50 {
			t.Errorf("%d bytes after the detaching, want 200", got)
		}
		if err := qs[0].DetachMcast(group, 0); !errors.Is(err, verbs.EINVAL) {
			t.Errorf("detaching twice: %v", err)
		}
	})
}

// TestV_MC_03_V_MC_05_GroupOfTwoGIDs: an IPv4 group has a GID of RoCEv2 and one of RoCEv1. A QP that is attached by
// both receives one copy, until it is detached by both.
func TestV_MC_03_V_MC_05_GroupOfTwoGIDs(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		e := newEnds(t, n, 1, nil)[0]
		q := e.qp(verbs.QPTypeUD, nil)
		must(t, q.Connect(verbs.QPInfo{}, nil))
		group := verbs.GIDFromAddr(netip.MustParseAddr("239.4.7.93"))
		alias := group
		alias[0], alias[1] = 0xff, 0x0e
		attr := verbs.AHAttr{PortNum: 1, IsGlobal: true, GRH: verbs.GlobalRoute{DGID: group, SGIDIndex: 1, HopLimit: 1}}
		ah := get(e.pd.CreateAH(&attr))(t)
		defer ah.Close()
		wr := send(e, 50)
		wr.Flags, wr.AH, wr.RemoteQPN, wr.RemoteQKey = 0, ah, 0xffffff, verbs.DefaultQKey
		copies := func(want uint64) {
			t.Helper()
			before := counter(e.dev, "rx_data_bytes")
			must(t, q.PostSend(wr))
			if want > 0 {
				waitFor(t, "a copy", func() bool { return counter(e.dev, "rx_data_bytes") > before })
			}
			time.Sleep(10 * time.Millisecond)
			if got := (counter(e.dev, "rx_data_bytes") - before) / 50; got != want {
				t.Errorf("%d copies, want %d", got, want)
			}
		}
		must(t, q.PostRecv(recv(e, 1, 100), recv(e, 2, 100), recv(e, 3, 100)))
		must(t, q.AttachMcast(group, 0))
		must(t, q.AttachMcast(alias, 0))
		copies(1)
		must(t, q.DetachMcast(group, 0))
		copies(1)
		must(t, q.DetachMcast(alias, 0))
		copies(0)
		must(t, q.Close())
	})
}

func TestUCWriteWithImmediate(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		qa, qb := connect(a, b, verbs.QPTypeUC, nil)
		a.fill(3)
		must(t, qb.PostRecv(verbs.RecvWR{WRID: 5}))
		must(t, qa.PostSend(verbs.SendWR{
			Opcode: verbs.WRRDMAWriteWithImm, Flags: verbs.SendSignaled, ImmData: 9, SGList: []verbs.SGE{a.mr.SGE(0, 9000)},
			RemoteAddr: b.mr.Addr() + 3, RKey: b.mr.RKey(),
		}))
		a.good(1)
		if wc := b.good(1)[0]; wc.WRID != 5 || wc.Opcode != verbs.WCRecvRDMAWithImm || wc.ByteLen != 9000 || wc.ImmData != 9 {
			t.Errorf("completion %+v", wc)
		}
		if !bytes.Equal(a.buf[:9000], b.buf[3:9003]) {
			t.Error("the received bytes differ")
		}
	})
}

// TestGSI: QP 1 can be made once, and is a UD QP except for its number.
func TestGSI(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		e := newEnds(t, n, 1, nil)[0]
		init := verbs.QPInitAttr{Type: verbs.QPTypeUD, SendCQ: e.cq, RecvCQ: e.cq,
			Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1}}
		qp := get(gsi.CreateQP(e.pd, &init))(t)
		if qp.QPN() != 1 || qp.Type() != verbs.QPTypeUD {
			t.Errorf("%v QP %d", qp.Type(), qp.QPN())
		}
		if _, err := gsi.CreateQP(e.pd, &init); !errors.Is(err, verbs.EBUSY) {
			t.Errorf("a second one: %v", err)
		}
		must(t, qp.Close())
		must(t, get(gsi.CreateQP(e.pd, &init))(t).Close())
		init.Type = verbs.QPTypeRC
		if _, err := gsi.CreateQP(e.pd, &init); !errors.Is(err, verbs.EINVAL) {
			t.Errorf("an RC one: %v", err)
		}
	})
}

// TestV_MC_06_Limits: the numbers of groups and of QPs in a group are bounded as the device reports, over sockets
// too, where the system's default limit is lower.
// TestV_QPX_04_BlockSelfMcastLB: a QP with BLOCK_SELF_MCAST_LB does not receive its own multicast. Others of its device
// do, and it receives that of other QPs, of other devices too.
func TestV_QPX_04_BlockSelfMcastLB(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		group := verbs.GIDFromAddr(netip.MustParseAddr("239.4.7.92"))
		member := func(e *end, flags verbs.QPCreateFlags) *verbs.QP {
			q := e.qp(verbs.QPTypeUD, func(init *verbs.QPInitAttr) { init.CreateFlags = flags })
			must(t, q.Connect(verbs.QPInfo{}, nil))
			must(t, q.PostRecv(recv(e, uint64(q.QPN()), 100), recv(e, uint64(q.QPN()), 100)))
			must(t, q.AttachMcast(group, 0))
			return q
		}
		deaf, open := member(a, verbs.QPCreateBlockSelfMcastLB), member(a, 0)
		other := member(b, verbs.QPCreateBlockSelfMcastLB)
		attr := verbs.AHAttr{PortNum: 1, IsGlobal: true, GRH: verbs.GlobalRoute{DGID: group, SGIDIndex: 1, HopLimit: 1}}
		for _, c := range []struct {
			from      *end
			qp        *verbs.QP
			receivers map[*verbs.QP]bool
		}{
			{a, deaf, map[*verbs.QP]bool{open: true, other: true}},
			{a, open, map[*verbs.QP]bool{deaf: true, open: true, other: true}},
			{b, other, map[*verbs.QP]bool{deaf: true, open: true}},
		} {
			ah := get(c.from.pd.CreateAH(&attr))(t)
			wr := send(c.from, 50)
			wr.WRID, wr.AH, wr.RemoteQPN, wr.RemoteQKey = 0, ah, 0xffffff, verbs.DefaultQKey
			before := counter(a.dev, "rx_data_bytes") + counter(b.dev, "rx_data_bytes")
			must(t, c.qp.PostSend(wr))
			want := before + uint64(50*len(c.receivers))
			waitFor(t, "the copies", func() bool {
				return counter(a.dev, "rx_data_bytes")+counter(b.dev, "rx_data_bytes") >= want
			})
			got := map[uint64]bool{}
			for e, qs := range map[*end][]*verbs.QP{a: {deaf, open}, b: {other}} {
				count := 0
				if e == c.from {
					count++ // of the send
				}
				for _, q := range qs {
					if c.receivers[q] {
						count++
					}
				}
				for _, wc := range e.good(count) {
					if wc.Opcode == verbs.WCRecv {
						got[wc.WRID] = true
						q := map[uint64]*verbs.QP{uint64(deaf.QPN()): deaf, uint64(open.QPN()): open,
							uint64(other.QPN()): other}[wc.WRID]
						must(t, q.PostRecv(recv(e, wc.WRID, 100)))
					}
				}
			}
			for _, q := range []*verbs.QP{deaf, open, other} {
				if got[uint64(q.QPN())] != c.receivers[q] {
					t.Errorf("QP %#x has received: %v", q.QPN(), got[uint64(q.QPN())])
				}
			}
			must(t, ah.Close())
		}
		for _, q := range []*verbs.QP{deaf, open, other} {
			must(t, q.DetachMcast(group, 0))
		}
	})
}

// TestV_QPX_05_SourceQPN: the datagrams of a QP with SOURCE_QPN carry that number.
func TestV_QPX_05_SourceQPN(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		_, qb, ah := udPair(t, a, b)
		qa := a.qp(verbs.QPTypeUD, func(init *verbs.QPInitAttr) {
			init.CreateFlags, init.SourceQPN = verbs.QPCreateSourceQPN, 0x123456
		})
		must(t, qa.Connect(verbs.QPInfo{}, nil))
		must(t, qb.PostRecv(recv(b, 1, 100)))
		wr := send(a, 50)
		wr.AH, wr.RemoteQPN, wr.RemoteQKey = ah, qb.QPN(), verbs.DefaultQKey
		must(t, qa.PostSend(wr))
		a.good(1)
		if r := b.good(1)[0]; r.SrcQP != 0x123456 || qa.QPN() == 0x123456 {
			t.Errorf("from QP %#x", r.SrcQP)
		}
	})
}

func TestV_MC_06_Limits(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		e := newEnds(t, n, 1, nil)[0]
		d := get(e.ctx.QueryDevice())(t)
		group := func(i int) verbs.GID {
			return verbs.GID{10: 0xff, 11: 0xff, 12: 239, 13: 77, 14: byte(i >> 8), 15: byte(i)}
		}
		most := 100
		if n == &networks[0] {
			most = d.MaxMcastGrp
		}
		qp := e.qp(verbs.QPTypeUD, nil)
		for i := range most {
			must(t, qp.AttachMcast(group(i), 0))
		}
		if most == d.MaxMcastGrp {
			if err := qp.AttachMcast(group(most), 0); !errors.Is(err, verbs.ENOMEM) {
				t.Errorf("group %d: %v", most+1, err)
			}
			must(t, qp.AttachMcast(group(0), 0)) // already attached
		}
		for i := range most {
			must(t, qp.DetachMcast(group(i), 0))
		}
		var members []*verbs.QP
		for range d.MaxMcastQPAttach {
			other := get(e.pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeUD, SendCQ: e.cq, RecvCQ: e.cq}))(t)
			must(t, other.AttachMcast(group(most), 0)) // room for one group
			members = append(members, other)
		}
		if err := qp.AttachMcast(group(most), 0); !errors.Is(err, verbs.ENOMEM) {
			t.Errorf("QP %d of a group: %v", len(members)+1, err)
		}
		for _, m := range members {
			must(t, m.DetachMcast(group(most), 0))
			must(t, m.Close())
		}
	})
}
