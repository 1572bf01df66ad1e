package soft_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

// twoPorts makes two ends whose devices have two ports. The addresses of port 2 follow those of port 1.
func twoPorts(t *testing.T, n *network) (a, b *end) {
	i := 0
	ends := newEnds(t, n, 2, func(c *soft.Config) {
		c.MorePorts = [][]netip.Addr{{n.addr(i + 4)}}
		i++
	})
	return ends[0], ends[1]
}

// pathTo returns the path from a port to an address.
func pathTo(port uint8, to netip.Addr) verbs.AHAttr {
	return verbs.AHAttr{PortNum: port, IsGlobal: true, GRH: verbs.GlobalRoute{DGID: verbs.GIDFromAddr(to), SGIDIndex: 1,
		HopLimit: 64}}
}

// toSQD moves a QP to SQD and waits until its send queue is drained.
func toSQD(t *testing.T, qp *verbs.QP) {
	t.Helper()
	must(t, qp.Modify(&verbs.QPAttr{QPState: verbs.QPSSQD}, verbs.QPAttrState))
	waitFor(t, "drained", func() bool {
		attr, _, err := qp.Query(verbs.QPAttrState)
		must(t, err)
		return !attr.SQDraining
	})
}

func backToRTS(t *testing.T, qp *verbs.QP) {
	t.Helper()
	must(t, qp.Modify(&verbs.QPAttr{QPState: verbs.QPSRTS}, verbs.QPAttrState))
}

// message sends a message of several packets.
func message(t *testing.T, a, b *end, qa, qb *verbs.QP) {
	t.Helper()
	must(t, qb.PostRecv(recv(b, 1, 9000)))
	must(t, qa.PostSend(send(a, 9000)))
	a.good(1)
	b.good(1)
}

// TestV_PORT_01_PortsOfADevice: each port has its own attributes and GID table.
func TestV_PORT_01_PortsOfADevice(t *testing.T) {
	n := &networks[0]
	a, _ := twoPorts(t, n)
	attr := get(a.ctx.QueryDevice())(t)
	if attr.PhysPortCnt != 2 || attr.DeviceCapFlags&verbs.DeviceChangePhyPort == 0 {
		t.Errorf("phys_port_cnt %d, %v", attr.PhysPortCnt, attr.DeviceCapFlags)
	}
	gids := map[verbs.GID]bool{}
	for port := uint8(1); port <= 2; port++ {
		if p := get(a.ctx.QueryPort(port))(t); p.State != verbs.PortActive || p.GIDTblLen == 0 || p.PKeyTblLen != 1 {
			t.Errorf("port %d: %+v", port, p)
		}
		if g := get(a.ctx.QueryGID(port, 1))(t); g.Addr() != n.addr(int(port-1)*4) {
			t.Errorf("GID 1 of port %d is %v", port, g)
		}
		gids[get(a.ctx.QueryGID(port, 0))(t)] = true
	}
	if len(gids) != 2 {
		t.Error("both ports have one default GID")
	}
	if _, err := a.ctx.QueryPort(3); !errors.Is(err, verbs.EINVAL) {
		t.Errorf("port 3: %v", err)
	}
	for port := uint8(1); port <= 2; port++ {
		if c := get(a.ctx.SelectGID(port, n.addr(1)))(t); c.GID.Addr() != n.addr(int(port-1)*4) || c.Index != 1 {
			t.Errorf("port %d: GID for a peer %+v", port, c)
		}
	}
	for _, port := range []uint8{0, 3} {
		if _, err := a.ctx.SelectGID(port, n.addr(1)); !errors.Is(err, verbs.EINVAL) {
			t.Errorf("GID of port %d: %v", port, err)
		}
	}
	single := newEnds(t, n, 10, nil)[9]
	if attr := get(single.ctx.QueryDevice())(t); attr.DeviceCapFlags&verbs.DeviceChangePhyPort != 0 {
		t.Error("a device with one port cannot change it")
	}
	for _, more := range [][][]netip.Addr{{nil}, {{n.addr(0)}}, {{netip.Addr{}}}, make([][]netip.Addr, 16)} {
		_, err := soft.New(soft.Config{Addrs: []netip.Addr{n.addr(0)}, MorePorts: more})
		if !errors.Is(err, verbs.EINVAL) {
			t.Errorf("ports %v: %v", more, err)
		}
	}
}

// TestV_QPM_12_ConnectionMovesToAnotherPort: an RC QP in SQD changes its port, with a new path or with the same one
// over the new port, and continues its connection there. A path alone changes the port too.
func TestV_QPM_12_ConnectionMovesToAnotherPort(t *testing.T) {
	for _, pathAlone := range []bool{false, true} {
		moveToAnotherPort(t, pathAlone)
	}
}

func moveToAnotherPort(t *testing.T, pathAlone bool) {
	onEach(t, func(t *testing.T, n *network) {
		a, b := twoPorts(t, n)
		qa, qb := connect(a, b, verbs.QPTypeRC, nil)
		message(t, a, b, qa, qb)
		toSQD(t, qa)
		toSQD(t, qb)
		must(t, qb.Modify(&verbs.QPAttr{PortNum: 2, AHAttr: pathTo(2, n.addr(4))}, verbs.QPAttrPort|verbs.QPAttrAV))
		must(t, qa.Modify(&verbs.QPAttr{AHAttr: pathTo(1, n.addr(5))}, verbs.QPAttrAV))
		if pathAlone {
			must(t, qa.Modify(&verbs.QPAttr{AHAttr: pathTo(2, n.addr(5))}, verbs.QPAttrAV))
		} else {
			must(t, qa.Modify(&verbs.QPAttr{PortNum: 2}, verbs.QPAttrPort))
		}
		backToRTS(t, qa)
		backToRTS(t, qb)
		message(t, a, b, qa, qb)
		message(t, b, a, qb, qa)
		for _, qp := range []*verbs.QP{qa, qb} {
			attr, _, err := qp.Query(verbs.QPAttrPort | verbs.QPAttrAV)
			if err != nil || attr.PortNum != 2 || attr.AHAttr.PortNum != 2 {
				t.Errorf("port %d, path from port %d, %v", attr.PortNum, attr.AHAttr.PortNum, err)
			}
		}
		toSQD(t, qa)
		if err := qa.Modify(&verbs.QPAttr{PortNum: 3}, verbs.QPAttrPort); !errors.Is(err, verbs.EINVAL) {
			t.Errorf("port 3: %v", err)
		}
	})
}

// TestV_AE_17_MigrationToAnotherPort: the alternate path of a QP is of the other port.
func TestV_AE_17_MigrationToAnotherPort(t *testing.T) {
	n := &networks[0]
	a, b := twoPorts(t, n)
	qa, qb := connect(a, b, verbs.QPTypeRC, nil)
	arm := func(qp *verbs.QP, to netip.Addr) {
		must(t, qp.Modify(&verbs.QPAttr{AltAHAttr: pathTo(2, to), AltPortNum: 2, AltTimeout: 14,
			PathMigState: verbs.MigRearm}, verbs.QPAttrAltPath|verbs.QPAttrPathMigState))
	}
	arm(qa, n.addr(5))
	arm(qb, n.addr(4))
	message(t, a, b, qa, qb)
	message(t, b, a, qb, qa)
	must(t, qa.Modify(&verbs.QPAttr{PathMigState: verbs.MigMigrated}, verbs.QPAttrPathMigState))
	message(t, a, b, qa, qb)
	message(t, b, a, qb, qa)
	for _, qp := range []*verbs.QP{qa, qb} {
		attr, _, err := qp.Query(verbs.QPAttrPort | verbs.QPAttrAltPath)
		if err != nil || attr.PortNum != 2 || attr.AltPortNum != 1 {
			t.Errorf("port %d, alternate port %d, %v", attr.PortNum, attr.AltPortNum, err)
		}
	}
}

// TestDatagramsOfAPort: a UD QP sends and receives through its port only.
func TestDatagramsOfAPort(t *testing.T) {
	n := &networks[0]
	a, b := twoPorts(t, n)
	qa, qb, _ := udPair(t, a, b)
	second := get(b.pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeUD, SendCQ: b.cq, RecvCQ: b.cq,
		Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}}))(t)
	defer second.Close()
	must(t, second.Modify(&verbs.QPAttr{QPState: verbs.QPSInit, PortNum: 2, QKey: verbs.DefaultQKey},
		verbs.QPAttrState|verbs.QPAttrPort|verbs.QPAttrPKeyIndex|verbs.QPAttrQKey))
	must(t, second.Connect(verbs.QPInfo{}, nil))
	if info := get(second.LocalInfo())(t); info.GID.Addr() != n.addr(5) {
		t.Errorf("the QP of port 2 has GID %v", info.GID)
	}
	to := func(qpn uint32, addr netip.Addr) verbs.SendWR {
		attr := pathTo(1, addr)
		ah := get(a.pd.CreateAH(&attr))(t)
		t.Cleanup(func() { must(t, ah.Close()) })
		wr := send(a, 10)
		wr.AH, wr.RemoteQPN, wr.RemoteQKey = ah, qpn, verbs.DefaultQKey
		return wr
	}
	must(t, qb.PostRecv(recv(b, 1, 100)))
	must(t, second.PostRecv(recv(b, 2, 100)))
	must(t, qa.PostSend(to(qb.QPN(), n.addr(5)), to(second.QPN(), n.addr(1))))
	a.good(2)
	waitFor(t, "bad_source", func() bool { return counter(b.dev, "bad_source") == 2 })
	must(t, qa.PostSend(to(second.QPN(), n.addr(5))))
	a.good(1)
	if wc := b.good(1)[0]; wc.WRID != 2 {
		t.Errorf("received %+v", wc)
	}
	wr, attr := to(qb.QPN(), n.addr(1)), pathTo(2, n.addr(1))
	foreign := get(a.pd.CreateAH(&attr))(t)
	defer foreign.Close()
	wr.AH = foreign
	must(t, qa.PostSend(wr))
	if wc := a.poll(1)[0]; wc.Status != verbs.WCLocQPOpErr {
		t.Errorf("an AH of the other port: %v", wc.Status)
	}
}

// TestV_AE_24_TablesOfPorts: each port has its P_Key table and its counters.
func TestV_AE_24_TablesOfPorts(t *testing.T) {
	n := &networks[0]
	a, b := twoPorts(t, n)
	must(t, soft.SetPKeys(b.dev.Device, 2, 0x8007))
	if ev := get(b.ctx.TryGetAsyncEvent())(t); ev.Type != verbs.EventPKeyChange || ev.Port != 2 {
		t.Errorf("event %v of port %d", ev.Type, ev.Port)
	}
	qa, qb := connect(a, b, verbs.QPTypeRC, nil)
	message(t, a, b, qa, qb)
	toSQD(t, qb)
	must(t, qb.Modify(&verbs.QPAttr{PortNum: 2, AHAttr: pathTo(2, n.addr(0))}, verbs.QPAttrPort|verbs.QPAttrAV))
	backToRTS(t, qb)
	toSQD(t, qa)
	must(t, qa.Modify(&verbs.QPAttr{AHAttr: pathTo(1, n.addr(5))}, verbs.QPAttrAV))
	backToRTS(t, qa)
	if passes(t, a, b, qa, qb) {
		t.Error("the QP does not have the P_Key of its new port")
	}
	waitFor(t, "bad_pkey_cntr", func() bool { return get(b.ctx.QueryPort(2))(t).BadPKeyCntr > 0 })
	if p := get(b.ctx.QueryPort(1))(t); p.BadPKeyCntr != 0 {
		t.Errorf("bad_pkey_cntr of port 1 is %d", p.BadPKeyCntr)
	}
}
