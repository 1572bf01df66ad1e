package pingpong

import (
	"os"

	"fmt"
	"net/netip"

	"github.com/verbena-rdma/verbena/internal/tools/exchange"
	"github.com/verbena-rdma/verbena/verbs"
)

// setUp creates the objects common to all peers, and posts a receive for each peer.
func (x *xsrqGame) setUp(peer netip.Addr) error {
	if err := x.open(peer); err != nil {
		return err
	}
	if err := x.chooseGID(peer); err != nil {
		return err
	}
	x.rxDepth = x.numQP // the CQ has room for a receive and a send of each peer
	if err := x.makeQueues(); err != nil {
		return err
	}
	if err := x.makeSRQ(); err != nil {
		return err
	}
	for range x.numQP {
		if err := x.postReceive(); err != nil {
			return err
		}
	}
	if x.events {
		return x.cq.ReqNotify(false)
	}
	return nil
}

// domainFile is the file of the C program's XRC domain.
const domainFile = "/tmp/xrc_domain"

// openDomain opens the domain of all clients of this host. If that cannot be had, as when another user has it, the
// client has one of its own, which suffices for a server that uses each client's own QPs.
func (x *xsrqGame) openDomain() (*verbs.XRCD, error) {
	if f, err := os.OpenFile(domainFile, os.O_RDONLY|os.O_CREATE, 0o440); err == nil {
		defer f.Close()
		if d, err := x.ctx.OpenXRCD(&verbs.XRCDInitAttr{File: f, OFlags: os.O_CREATE}); err == nil {
			return d, nil
		}
	}
	return x.ctx.OpenXRCD(nil)
}

func (x *xsrqGame) makeSRQ() error {
	domain, err := x.openDomain()
	if err != nil {
		return err
	}
	x.opened(domain.Close)
	x.srq, err = x.pd.CreateSRQ(&verbs.SRQInitAttr{
		Attr: verbs.SRQAttr{MaxWR: uint32(x.numQP), MaxSGE: 1}, Type: verbs.SRQTypeXRC, XRCD: domain, CQ: x.cq,
	})
	if err != nil {
		return err
	}
	x.opened(x.srq.Close)
	return nil
}

// makeQPs creates both QPs of a peer and takes them to INIT.
func (x *xsrqGame) makeQPs(p *xsrqPeer) (err error) {
	if p.recv, err = x.srq.XRCD().CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeXRCRecv}); err != nil {
		return err
	}
	x.opened(p.recv.Close)
	p.send, err = x.pd.CreateQP(&verbs.QPInitAttr{
		Type: verbs.QPTypeXRCSend, SendCQ: x.cq, Cap: verbs.QPCap{MaxSendWR: uint32(x.iters), MaxSendSGE: 1},
	})
	if err != nil {
		return err
	}
	x.opened(p.send.Close)
	const mask = verbs.QPAttrState | verbs.QPAttrPKeyIndex | verbs.QPAttrPort | verbs.QPAttrAccessFlags
	attr := verbs.QPAttr{QPState: verbs.QPSInit, PortNum: x.port,
		QPAccessFlags: verbs.AccessRemoteWrite | verbs.AccessRemoteRead}
	if err := p.recv.Modify(&attr, mask); err != nil {
		return err
	}
	attr.QPAccessFlags = 0
	return p.send.Modify(&attr, mask)
}

// connect connects both QPs, each to the peer's QP of the other type, and takes them to RTS.
func (x *xsrqGame) connect(p *xsrqPeer) error {
	if err := x.checkPeer(exchange.Dest{QPN: p.remote.Recv, GID: p.remote.GID}); err != nil {
		return err
	}
	const (
		rtr = verbs.QPAttrState | verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN
		rts = verbs.QPAttrState | verbs.QPAttrSQPSN | verbs.QPAttrTimeout
	)
	for _, s := range []struct {
		qp       *verbs.QP
		to       uint32
		rtr, rts verbs.QPAttrMask
	}{
		{p.recv, p.remote.Send, rtr | verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer, rts},
		{p.send, p.remote.Recv, rtr, rts | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry | verbs.QPAttrMaxQPRdAtomic},
	} {
		attr := verbs.QPAttr{
			QPState: verbs.QPSRTR, AHAttr: x.address(exchange.Dest{LID: p.remote.LID, GID: p.remote.GID}),
			PathMTU:   verbs.MTUOf(int(x.mtu)),
			DestQPNum: s.to, RQPSN: p.remote.PSN, MinRNRTimer: 12, SQPSN: p.local.PSN, Timeout: ackTimeout, RetryCnt: 7,
			RNRRetry: 7,
		}
		if err := s.qp.Modify(&attr, s.rtr); err != nil {
			return err
		}
		attr.QPState = verbs.QPSRTS
		if err := s.qp.Modify(&attr, s.rts); err != nil {
			return err
		}
	}
	return nil
}

// postReceive posts a receive; all receives use the same memory.
func (x *xsrqGame) postReceive() error {
	return x.srq.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{x.mr.SGE(0, int(x.size))}})
}

// serve sends a peer its next message. Only the last one is signaled.
func (x *xsrqGame) serve(p *xsrqPeer) error {
	wr := verbs.SendWR{Opcode: verbs.WRSend, SGList: []verbs.SGE{x.mr.SGE(0, int(x.size))}, RemoteSRQN: p.remote.SRQN}
	if p.sent++; p.sent == x.iters {
		wr.Flags = verbs.SendSignaled
	}
	return p.send.PostSend(wr)
}

// rally runs until every peer has received and sent its messages.
func (x *xsrqGame) rally() error {
	if x.server == "" {
		for _, p := range x.peers {
			if err := x.serve(p); err != nil {
				return err
			}
		}
	}
	next := x.pollNext
	if x.events {
		w := newWaiter(x.channel, x.poll, x.silent())
		defer w.stop()
		next = w.next
	}
	wcs := make([]verbs.WC, 16)
	for received, sent := uint(0), uint(0); received < x.numQP*x.iters || sent < x.numQP; {
		n, err := next(wcs)
		if err != nil {
			return err
		}
		for i := range wcs[:n] {
			wc := &wcs[i]
			switch {
			case wc.Status != verbs.WCSuccess:
				return &statusError{wc.Status, wc.WRID, wc.Err()}
			case wc.Opcode&verbs.WCRecv == 0:
				sent++
			default:
				received++
				if err := x.hit(wc); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// hit handles a received message. It may have come through the QP of another client of the domain.
func (x *xsrqGame) hit(wc *verbs.WC) error {
	if err := x.postReceive(); err != nil {
		return err
	}
	for _, p := range x.peers {
		if p.recv.QPN() != wc.QPNum && len(x.peers) > 1 {
			continue
		}
		if p.sent < x.iters {
			return x.serve(p)
		}
		return nil
	}
	return fmt.Errorf("unable to find qp %x", wc.QPNum)
}
