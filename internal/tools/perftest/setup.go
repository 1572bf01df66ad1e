package perftest

import (
	"fmt"

	"github.com/verbena-rdma/verbena/internal/secret"
	"github.com/verbena-rdma/verbena/internal/tools/nearest"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

const (
	qkey    = 0x11111111 // fixed Q_Key of UD
	grhLen  = 40
	cycle   = 4096 // the peer cycles through this many bytes of the buffer for small messages
	maxOuts = 16
	rnrCode = 12 // min_rnr_timer code: 0.64 ms
)

// table has the verbs objects of one end.
type table struct {
	ctx            *verbs.Context
	pd             *verbs.PD
	channel        *verbs.CompChannel // with -e
	sendCQ, recvCQ *verbs.CQ
	mr             *verbs.MR
	shared         *verbs.SRQ // with --use-srq
	credits        *credits   // nil without this flow control
	slot           int        // bytes of each QP's part of the buffer: first the send half, then the receive half
	qps            []*end
	sgid           int
	gid            verbs.GID
	mtu            verbs.MTU
	outs           int
	listener       *rdmacm.ID // with -R
	closers        []func() error
}

// end is a QP with its local and remote addresses.
type end struct {
	qp            *verbs.QP
	id            *rdmacm.ID // with -R
	local, remote dest
	ah            *verbs.AH // UD
	rqpn, rqkey   uint32    // UD
	posted, done  int       // sends
	rposted       int       // receives for the messages of a size
	queued        int       // receives in the queue
	unsignaled    int
	arrived       int            // messages of a size
	giving        int            // WRITEs of credits without a completion
	owed          bool           // credits are to be sent
	wrs           []verbs.SendWR // requests of one post
	recv          [1]verbs.RecvWR
	sge, rsge     [1]verbs.SGE
}

func (t *table) opened(closer func() error) { t.closers = append(t.closers, closer) }

func (t *table) close() (first error) {
	for i := len(t.closers) - 1; i >= 0; i-- {
		if err := t.closers[i](); err != nil && first == nil {
			first = err
		}
	}
	t.closers = nil
	return first
}

// open opens the device; with -R that of the connection.
func (r *run) open() (err error) {
	switch {
	case r.cmID != nil:
		r.ctx = r.cmID.Verbs()
	case r.device != "":
		r.ctx, err = verbs.Open(r.device)
	default:
		r.ctx, err = nearest.Open(r.peer.peer(), r.ibPort)
	}
	if err != nil {
		return err
	}
	if r.cmID == nil {
		r.opened(r.ctx.Close)
	}
	if d := r.ctx.Device(); r.typ != verbs.QPTypeRC && d.TransportType() == verbs.TransportIWARP {
		return fmt.Errorf("-c %v: %s is an iWARP device, which has RC only: use -c RC", r.typ, d.Name())
	}
	attr, err := r.ctx.QueryDevice()
	if err != nil {
		return err
	}
	r.outs = 1
	if r.verb.waits() {
		most := min(attr.MaxQPRdAtom, attr.MaxQPInitRdAtom)
		if r.outReads > most {
			return fmt.Errorf("-o %d: must be at most %d, the device's limit of READs and atomics in flight", r.outReads, most)
		}
		if r.outs = r.outReads; r.outs == 0 {
			r.outs = min(most, maxOuts)
		}
	}
	return r.chooseGID()
}

func (r *run) chooseGID() error {
	if r.gidIndex >= 0 {
		e, err := r.ctx.QueryGIDEntry(r.ibPort, r.gidIndex)
		if err != nil {
			return err
		}
		r.sgid, r.gid = r.gidIndex, e.GID
		return nil
	}
	choice, err := r.ctx.SelectGID(r.ibPort, r.peer.peer())
	if err != nil {
		return err
	}
	r.sgid, r.gid = choice.Index, choice.GID
	return nil
}

// agreeMTU determines the path MTU.
func (r *run) agreeMTU() error {
	port, err := r.ctx.QueryPort(r.ibPort)
	if err != nil {
		return err
	}
	m := port.ActiveMTU
	if r.pathMTU != 0 {
		if verbs.MTUOf(r.pathMTU) > m {
			return fmt.Errorf("-m %d: must be at most %d, the port's MTU", r.pathMTU, m.Bytes())
		}
		m = verbs.MTUOf(r.pathMTU)
	}
	if r.mtu, err = r.peer.agreeMTU(m); err != nil {
		return err
	}
	if most := r.mtu.Bytes(); r.typ == verbs.QPTypeUD && r.size > most {
		if r.mtuSize {
			fmt.Fprintf(r.env.Stdout, " Max msg size in UD is MTU %d\n Changing to this MTU\n", most)
		} else if !r.all {
			return fmt.Errorf("-s %d: must be at most %d, the MTU, with UD", r.size, most)
		}
		r.size = most
	}
	return nil
}

// makeQueues creates everything but the QPs.
func (r *run) makeQueues() (err error) {
	if r.events {
		if r.channel, err = r.ctx.CreateCompChannel(); err != nil {
			return err
		}
		r.opened(r.channel.Close)
	}
	if r.pd, err = r.ctx.AllocPD(); err != nil {
		return err
	}
	r.opened(r.pd.Close)
	r.slot = (max(r.size, cycle) + 2*cycle - 1) &^ (cycle - 1)
	buf, err := verbs.AllocBuffer(2 * r.slot * r.qpCount())
	if err != nil {
		return err
	}
	r.opened(func() error { return verbs.FreeBuffer(buf) })
	if r.verb != write || !r.lat { // WRITE latency watches zeroed memory for changes
		for i := range buf {
			buf[i] = byte(i)
		}
	}
	if r.mr, err = r.pd.RegMR(buf, r.verb.access()); err != nil {
		return err
	}
	r.opened(r.mr.Close)
	if err = r.makeCredits(); err != nil {
		return err
	}
	opts := &verbs.CQOptions{Channel: r.channel}
	if r.sendCQ, err = r.ctx.CreateCQ((r.txDepth+r.creditRoom())*r.numQP, opts); err != nil {
		return err
	}
	r.opened(r.sendCQ.Close)
	if r.recvCQ, err = r.ctx.CreateCQ(r.rxDepth*r.numQP, opts); err != nil {
		return err
	}
	r.opened(r.recvCQ.Close)
	return r.makeSRQ()
}

func (r *run) initAttr() *verbs.QPInitAttr {
	return &verbs.QPInitAttr{
		Type: r.typ, SendCQ: r.sendCQ, RecvCQ: r.recvCQ, SRQ: r.shared,
		Cap: verbs.QPCap{
			MaxSendWR: uint32(r.txDepth + r.creditRoom()), MaxRecvWR: uint32(r.rxDepth), MaxSendSGE: 1, MaxRecvSGE: 1,
			MaxInlineData: uint32(r.inline),
		},
	}
}

// makeQPs creates the QPs, without -R.
func (r *run) makeQPs() error {
	for i := range r.qpCount() {
		qp, err := r.createQP(i)
		if err != nil {
			return err
		}
		r.opened(qp.Close)
		r.qps = append(r.qps, &end{qp: qp})
		attr := verbs.QPAttr{QPState: verbs.QPSInit, PortNum: r.ibPort, QKey: qkey, QPAccessFlags: r.verb.access()}
		mask := verbs.QPAttrState | verbs.QPAttrPKeyIndex | verbs.QPAttrPort
		if r.typ == verbs.QPTypeUD {
			mask |= verbs.QPAttrQKey
		} else {
			mask |= verbs.QPAttrAccessFlags
		}
		if err := qp.Modify(&attr, mask); err != nil {
			return err
		}
	}
	return nil
}

// describe sets the local addresses.
func (r *run) describe() error {
	var srqn uint32
	if r.xrc() {
		n, err := r.shared.Num()
		if err != nil {
			return err
		}
		srqn = n
	}
	for i, e := range r.qps {
		e.local = dest{
			outReads: uint32(r.outs), qpn: e.qp.QPN(), psn: secret.PSN(), rkey: r.mr.RKey(),
			vaddr: r.mr.Addr() + uint64(r.recvAt(i)), gid: r.gid, gidIndex: uint32(r.sgid),
			srqn: srqn,
		}
		if c := r.credits; c != nil {
			e.local.rkey, e.local.vaddr = c.mr.RKey(), c.mr.Addr()+uint64(c.comeAt(i))
		}
		e.recv[0] = verbs.RecvWR{WRID: uint64(i), SGList: e.rsge[:]}
	}
	return nil
}

// sendAt and recvAt return the offsets of QP i's data in the buffer.
func (t *table) sendAt(i int) int { return i * t.slot }
func (t *table) recvAt(i int) int { return (len(t.qps)+i)*t.slot + 64 }

// remoteOf returns the peer's QP to which QP i is connected.
func (r *run) remoteOf(i int) *dest { return &r.qps[r.opposite(i)].remote }

// connect takes the QPs to RTS, without -R.
func (r *run) connect() error {
	most, err := r.ctx.QueryDevice()
	if err != nil {
		return err
	}
	for i, e := range r.qps {
		if err := r.connectQP(e, r.remoteOf(i), most.MaxQPInitRdAtom); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) connectQP(e *end, remote *dest, mostReads int) error {
	if ours, theirs := r.gid.Addr(), remote.gid.Addr(); ours.Is4() != theirs.Is4() {
		return fmt.Errorf("GID %s cannot reach the peer's GID %s; use -x INDEX here or there", ours, theirs)
	}
	av := verbs.AHAttr{
		DLID: uint16(remote.lid), SL: r.sl, PortNum: r.ibPort, IsGlobal: true,
		GRH: verbs.GlobalRoute{DGID: remote.gid, SGIDIndex: r.sgid, HopLimit: 255, TrafficClass: r.trafficClass()},
	}
	rtr := verbs.QPAttr{
		QPState: verbs.QPSRTR, AHAttr: av, PathMTU: r.mtu, DestQPNum: remote.qpn, RQPSN: remote.psn,
		MaxDestRdAtomic: uint8(r.outs), MinRNRTimer: rnrCode,
	}
	rts := verbs.QPAttr{
		QPState: verbs.QPSRTS, SQPSN: e.local.psn, Timeout: r.timeout, RetryCnt: 7, RNRRetry: 7,
		MaxRdAtomic: uint8(min(int(remote.outReads), mostReads, 255)),
	}
	toRTR, toRTS := connectMasks(e.qp.Type())
	if err := e.qp.Modify(&rtr, toRTR); err != nil {
		return err
	}
	if err := e.qp.Modify(&rts, toRTS); err != nil {
		return err
	}
	if r.typ == verbs.QPTypeUD {
		return r.addressOf(e, &av, remote.qpn, qkey)
	}
	return nil
}

// connectMasks returns the attributes that take a QP of a type to RTR and to RTS.
func connectMasks(t verbs.QPType) (rtr, rts verbs.QPAttrMask) {
	rtr, rts = verbs.QPAttrState, verbs.QPAttrState|verbs.QPAttrSQPSN
	if t != verbs.QPTypeUD {
		rtr |= verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN
	}
	if t == verbs.QPTypeRC || t == verbs.QPTypeXRCRecv {
		rtr |= verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer
		rts |= verbs.QPAttrTimeout
	}
	if t == verbs.QPTypeRC || t == verbs.QPTypeXRCSend {
		rts |= verbs.QPAttrTimeout | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry | verbs.QPAttrMaxQPRdAtomic
	}
	return rtr, rts
}

// addressOf stores the destination of a QP's datagrams.
func (r *run) addressOf(e *end, av *verbs.AHAttr, qpn, key uint32) error {
	ah, err := r.pd.CreateAH(av)
	if err != nil {
		return err
	}
	r.opened(ah.Close)
	e.ah, e.rqpn, e.rqkey = ah, qpn, key
	return nil
}
