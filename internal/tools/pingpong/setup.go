package pingpong

import (
	"fmt"
	"net/netip"

	"github.com/verbena-rdma/verbena/internal/secret"
	"github.com/verbena-rdma/verbena/internal/tools/exchange"
	"github.com/verbena-rdma/verbena/internal/tools/nearest"
	"github.com/verbena-rdma/verbena/verbs"
)

// A table has the verbs objects of one end.
type table struct {
	ctx     *verbs.Context
	channel *verbs.CompChannel // with -e
	pd      *verbs.PD
	mr      *verbs.MR
	buf     []byte // nil in device memory
	base    int    // offset of buf in mr
	cq      *verbs.CQ
	recvQ   *verbs.SRQ // ibv_srq_pingpong
	qps     []*verbs.QP
	ah      *verbs.AH // ibv_ud_pingpong
	link    verbs.LinkLayer
	sgid    int // GID index
	flags   verbs.SendFlags
	recvs   []verbs.RecvWR // as many as the receive queue can hold

	dm *verbs.DM // with -j

	times    stopwatch     // with -t
	builders []*verbs.QPEx // of qps, with -N

	closers []func() error // of all open objects, in the order of opening
}

// setUp creates everything up to QPs in INIT with posted receives, and prints their addresses. peer is the
// other end's address; it may be invalid if the options name device and GID.
func (g *game) setUp(peer netip.Addr) error {
	for _, step := range []func() error{
		func() error { return g.open(peer) },
		func() error { return g.chooseGID(peer) },
		g.makeQueues, g.makeQPs, g.toInit, g.firstReceives,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	for i, qp := range g.qps {
		d := &g.local[i]
		d.QPN, d.PSN = qp.QPN(), secret.PSN()
		d.GID, d.LID = g.local[0].GID, g.local[0].LID
		fmt.Fprintf(g.env.Stdout, g.format, d.LID, d.QPN, d.PSN, verbs.GID(d.GID))
	}
	return nil
}

// opened registers the closer of an object.
func (t *table) opened(closer func() error) { t.closers = append(t.closers, closer) }

// close closes everything; it may be called again.
func (t *table) close() error {
	for len(t.closers) > 0 {
		last := len(t.closers) - 1
		if err := t.closers[last](); err != nil {
			return err
		}
		t.closers = t.closers[:last]
	}
	return nil
}

// otherDevice is what to do about a device whose QPs only rdma_cm connects.
const otherDevice = "choose another device with -d, or use rping"

// open opens the device that -d names, or the one that reaches the peer, unless one is open.
func (g *game) open(peer netip.Addr) (err error) {
	if g.ctx != nil {
		return nil
	}
	if g.device != "" {
		g.ctx, err = verbs.Open(g.device)
	} else {
		g.ctx, err = nearest.Open(peer, g.port)
	}
	if err != nil {
		return err
	}
	g.opened(g.ctx.Close)
	if err := nearest.ByHand(g.ctx.Device(), otherDevice); err != nil {
		return err
	}
	port, err := g.ctx.QueryPort(g.port)
	if err != nil {
		return err
	}
	g.link, g.local[0].LID = port.LinkLayer, port.LID
	if err := g.checkDevice(); err != nil {
		return err
	}
	if mtu := port.ActiveMTU.Bytes(); g.typ == verbs.QPTypeUD && g.size > uint(mtu) {
		return fmt.Errorf("requested size larger than port MTU (%d)", mtu)
	}
	return nil
}

// chooseGID takes the GID that -g names, or the one that fits the peer, and prints why.
func (g *game) chooseGID(peer netip.Addr) error {
	if g.gidIndex >= 0 {
		e, err := g.ctx.QueryGIDEntry(g.port, g.gidIndex)
		if err != nil {
			return err
		}
		g.sgid, g.local[0].GID = g.gidIndex, e.GID
		return nil
	}
	choice, err := g.ctx.SelectGID(g.port, peer)
	if err != nil {
		return err
	}
	fmt.Fprintf(g.env.Stderr, "%s: %s\n", g.ctx.Device(), choice.Reason)
	g.sgid, g.local[0].GID = choice.Index, choice.GID
	return nil
}

func (g *game) makeQueues() (err error) {
	if g.events {
		if g.channel, err = g.ctx.CreateCompChannel(); err != nil {
			return err
		}
		g.opened(g.channel.Close)
	}
	if g.pd, err = g.ctx.AllocPD(); err != nil {
		return err
	}
	g.opened(g.pd.Close)
	if err = g.makeMemory(); err != nil {
		return err
	}
	if err = g.makeCQ(); err != nil {
		return err
	}
	if g.srq {
		if g.recvQ,
			err = g.pd.CreateSRQ(&verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: uint32(g.rxDepth), MaxSGE: 1}}); err != nil {
			return err
		}
		g.opened(g.recvQ.Close)
	}
	return nil
}

func (g *game) makeQPs() error {
	g.flags = verbs.SendSignaled
	for range g.numQP {
		init := verbs.QPInitAttr{SendCQ: g.cq, RecvCQ: g.cq, SRQ: g.recvQ, Type: g.typ,
			Cap: verbs.QPCap{MaxSendWR: 1, MaxSendSGE: 1, MaxRecvWR: uint32(g.rxDepth), MaxRecvSGE: 1}}
		if g.newSend {
			init.SendOpsFlags = verbs.QPExWithSend
		}
		qp, err := g.pd.CreateQP(&init)
		if err != nil {
			return err
		}
		g.opened(qp.Close)
		g.qps = append(g.qps, qp)
		if g.newSend {
			x, err := qp.Ex()
			if err != nil {
				return err
			}
			g.builders = append(g.builders, x)
		}
		if uint(init.Cap.MaxInlineData) >= g.size {
			g.flags |= verbs.SendInline
		}
	}
	return nil
}

func (g *game) toInit() error {
	attr := verbs.QPAttr{QPState: verbs.QPSInit, PortNum: g.port, QKey: udQKey}
	mask := verbs.QPAttrState | verbs.QPAttrPKeyIndex | verbs.QPAttrPort
	if g.typ == verbs.QPTypeUD {
		mask |= verbs.QPAttrQKey
	} else {
		mask |= verbs.QPAttrAccessFlags
	}
	for _, qp := range g.qps {
		if err := qp.Modify(&attr, mask); err != nil {
			return err
		}
	}
	return nil
}

// firstReceives fills the receive queue. All receives use the same memory.
func (g *game) firstReceives() error {
	sge := []verbs.SGE{g.sge(0, int(g.size)+g.grh)}
	g.recvs = make([]verbs.RecvWR, g.rxDepth)
	for i := range g.recvs {
		g.recvs[i] = verbs.RecvWR{WRID: recvWRID, SGList: sge}
	}
	if err := g.postReceives(g.rxDepth); err != nil {
		return err
	}
	if g.events {
		return g.cq.ReqNotify(false)
	}
	return nil
}

func (g *game) postReceives(n uint) error {
	if g.srq {
		return g.recvQ.PostRecv(g.recvs[:n]...)
	}
	return g.qps[0].PostRecv(g.recvs[:n]...)
}

// ackTimeout is the Timeout attribute of the RC programs: 67 ms.
const ackTimeout = 14

// connect takes every QP to RTS.
func (g *game) connect() error {
	for i, qp := range g.qps {
		d := g.remote[i]
		if err := g.checkPeer(d); err != nil {
			return err
		}
		rtr, mask := g.rtr(d)
		if err := qp.Modify(&rtr, mask); err != nil {
			return err
		}
		rts, mask := g.rts(g.local[i].PSN)
		if err := qp.Modify(&rts, mask); err != nil {
			return err
		}
	}
	if g.typ != verbs.QPTypeUD {
		return nil
	}
	attr := g.address(g.remote[0])
	ah, err := g.pd.CreateAH(&attr)
	if err != nil {
		return err
	}
	g.opened(ah.Close)
	g.ah = ah
	return nil
}

// checkPeer rejects peers with which the game would hang.
func (g *game) checkPeer(d exchange.Dest) error {
	ours, theirs := verbs.GID(g.local[0].GID), verbs.GID(d.GID)
	switch {
	case g.link != verbs.LinkLayerEthernet:
		return nil
	case g.srq && d == exchange.Dest{}:
		return fmt.Errorf("the peer has fewer QPs than %d; both ends need the same -q", g.numQP)
	case theirs.InterfaceID() == 0:
		return fmt.Errorf("the peer sent no GID for its QP 0x%06x; on RoCE the C programs need one: -g INDEX", d.QPN)
	case ours.Addr().Is4() != theirs.Addr().Is4():
		return fmt.Errorf("GID %s cannot reach the peer's GID %s; use -g INDEX here or there", ours, theirs)
	}
	return nil
}

func (g *game) rtr(d exchange.Dest) (verbs.QPAttr, verbs.QPAttrMask) {
	attr := verbs.QPAttr{
		QPState: verbs.QPSRTR, AHAttr: g.address(d), PathMTU: verbs.MTUOf(int(g.mtu)), DestQPNum: d.QPN, RQPSN: d.PSN,
		MaxDestRdAtomic: 1, MinRNRTimer: 12,
	}
	mask := verbs.QPAttrState
	if g.typ != verbs.QPTypeUD {
		mask |= verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN
	}
	if g.typ == verbs.QPTypeRC {
		mask |= verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer
	}
	return attr, mask
}

func (g *game) rts(psn uint32) (verbs.QPAttr, verbs.QPAttrMask) {
	attr := verbs.QPAttr{QPState: verbs.QPSRTS, SQPSN: psn, Timeout: ackTimeout, RetryCnt: 7, RNRRetry: 7, MaxRdAtomic: 1}
	mask := verbs.QPAttrState | verbs.QPAttrSQPSN
	if g.typ == verbs.QPTypeRC {
		mask |= verbs.QPAttrTimeout | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry | verbs.QPAttrMaxQPRdAtomic
	}
	return attr, mask
}

func (g *game) address(d exchange.Dest) verbs.AHAttr {
	return verbs.AHAttr{
		DLID: d.LID, SL: g.sl, PortNum: g.port,
		IsGlobal: verbs.GID(d.GID).InterfaceID() != 0,
		GRH:      verbs.GlobalRoute{DGID: d.GID, SGIDIndex: g.sgid, HopLimit: 64},
	}
}
