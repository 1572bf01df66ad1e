package verbs

import (
	"math/rand/v2"
	"net/netip"
)

// ConnectOptions are the attributes that Connect gives a QP. 0 stands for the default that the field's comment names;
// who needs another 0 uses Modify.
type ConnectOptions struct {
	Access       AccessFlags // what the peer may do: all remote operations; regions must permit it too
	MTU          MTU         // the smaller of both ports' active MTUs
	Timeout      uint8       // 14, which is 67 ms
	RetryCnt     uint8       // 7
	RNRRetry     uint8       // 7, for ever
	MinRNRTimer  uint8       // 12, which is 0.64 ms
	HopLimit     uint8       // 64
	TrafficClass uint8       // 0
	QKey         uint32      // UD: DefaultQKey
}

// DefaultQKey is the Q_Key that Connect gives UD QPs.
const DefaultQKey = 0x11111111

const (
	helperPort     = 1  // the port that the helpers use
	helperRdAtomic = 16 // the depth of READs and atomics that they ask for
	helperAccess   = AccessRemoteRead | AccessRemoteWrite | AccessRemoteAtomic
)

func (o *ConnectOptions) withDefaults() ConnectOptions {
	var r ConnectOptions
	if o != nil {
		r = *o
	}
	r.Access = orDefault(r.Access, helperAccess)
	r.Timeout = orDefault(r.Timeout, 14)
	r.RetryCnt = orDefault(r.RetryCnt, 7)
	r.RNRRetry = orDefault(r.RNRRetry, 7)
	r.MinRNRTimer = orDefault(r.MinRNRTimer, 12)
	r.HopLimit = orDefault(r.HopLimit, 64)
	r.QKey = orDefault(r.QKey, DefaultQKey)
	return r
}

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// LocalInfo is what the peer must know of this QP. It chooses the GID of port 1 that most peers can reach: an IPv4
// address, else an IPv6 address that is not link-local, else the first there is. Later calls tell the same. No C
// function does this.
func (qp *QP) LocalInfo() (QPInfo, error) { return qp.LocalInfoFor(netip.Addr{}) }

// LocalInfoFor is LocalInfo with the GID that suits the peer at an address (see Context.SelectGID).
func (qp *QP) LocalInfoFor(peer netip.Addr) (QPInfo, error) {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	if qp.life.closed.Load() {
		return QPInfo{}, errClosed("local_info", qp.obj())
	}
	if err := qp.announce(peer); err != nil {
		return QPInfo{}, err
	}
	return *qp.local, nil
}

// announce settles what the QP tells its peer. An address chooses the GID anew. The caller holds qp.mu.
func (qp *QP) announce(peer netip.Addr) error {
	if qp.local != nil && !peer.IsValid() {
		return nil
	}
	port, err := qp.ctx.queryPort("local_info", helperPort)
	if err != nil {
		return err
	}
	choice, err := qp.chooseGID(peer)
	if err != nil {
		return err
	}
	info := QPInfo{Type: qp.init.Type, QPN: qp.qpn, GID: choice.GID, LID: port.LID, MTU: port.ActiveMTU,
		RdAtomic: uint8(min(helperRdAtomic, qp.ctx.attr.MaxQPRdAtom, 255))}
	if qp.init.Type == QPTypeUD {
		info.QKey = DefaultQKey
	}
	if qp.local != nil {
		info.PSN = qp.local.PSN
	} else {
		info.PSN = rand.Uint32() & 0xffffff
	}
	qp.local, qp.sgid = &info, choice.Index
	return nil
}

func (qp *QP) chooseGID(peer netip.Addr) (GIDChoice, error) {
	if peer.IsValid() {
		return qp.ctx.selectGID(helperPort, peer)
	}
	table, err := qp.ctx.gidTable("local_info", helperPort)
	if err != nil {
		return GIDChoice{}, err
	}
	best, rank := GIDChoice{}, 0
	for _, e := range table {
		r := 1
		switch a := e.GID.Addr(); {
		case e.GID.IsZero():
			r = 0
		case a.Is4():
			r = 3
		case !a.IsLinkLocalUnicast():
			r = 2
		}
		if r > rank {
			best, rank = GIDChoice{Index: e.Index, GID: e.GID}, r
		}
	}
	if rank == 0 {
		return best, newError("local_info", qp.obj(), ENODATA, "the GID table of port %d is empty", helperPort)
	}
	return best, nil
}

// Connect takes a QP in RESET or INIT to RTS, connected to the QP that remote describes (three calls of
// ibv_modify_qp). Both sides tell each other their LocalInfo and then call Connect. opts may be nil. A UD QP has no
// peer: remote is ignored; see AHAttrTo. EINVAL if remote does not fit. After a failure the QP is where the failed
// step found it.
//
// Receives may be posted before, in INIT, or after: a peer that sends too early is asked to wait.
func (qp *QP) Connect(remote QPInfo, opts *ConnectOptions) error {
	const op = "connect"
	qp.mu.Lock()
	defer qp.mu.Unlock()
	if qp.life.closed.Load() {
		return errClosed(op, qp.obj())
	}
	if s := qp.State(); s != QPSReset && s != QPSInit {
		return newError(op, qp.obj(), EINVAL, "not possible in %v; move the QP to RESET first", s)
	}
	o := opts.withDefaults()
	ud := qp.init.Type == QPTypeUD
	if !ud {
		if err := qp.checkRemote(op, &remote); err != nil {
			return err
		}
	}
	if qp.local == nil {
		if err := qp.announce(remote.peerAddr(ud)); err != nil {
			return err
		}
	}
	if qp.State() == QPSReset {
		attr, mask := qp.toInit(&o)
		if err := qp.modify(&attr, mask); err != nil {
			return err
		}
	}
	attr, mask := qp.toRTR(&remote, &o)
	if err := qp.modify(&attr, mask); err != nil {
		return err
	}
	attr, mask = qp.toRTS(&remote, &o)
	return qp.modify(&attr, mask)
}

func (i *QPInfo) peerAddr(ud bool) netip.Addr {
	if ud || i.GID.IsZero() {
		return netip.Addr{}
	}
	return i.GID.Addr()
}

// checkRemote refuses a peer that the QP can never talk to.
func (qp *QP) checkRemote(op string, remote *QPInfo) error {
	local := qp.local
	switch {
	case remote.Type != qp.init.Type.peerType():
		return newError(op, qp.obj(), EINVAL, "the peer's QP is of type %v, not %v", remote.Type, qp.init.Type.peerType())
	case local != nil && !local.GID.IsZero() && !remote.GID.IsZero() && local.GID.Addr().Is4() != remote.GID.Addr().Is4():
		return newError(op, qp.obj(), EINVAL, "we told GID %v, from which the peer's GID %v cannot be reached; use LocalInfoFor on the side that can "+
			"choose", local.GID, remote.GID)
	}
	return nil
}

func (qp *QP) toInit(o *ConnectOptions) (QPAttr, QPAttrMask) {
	attr := QPAttr{QPState: QPSInit, PortNum: helperPort, QPAccessFlags: o.Access, QKey: o.QKey}
	mask := QPAttrState | QPAttrPKeyIndex | QPAttrPort
	if qp.init.Type == QPTypeUD {
		return attr, mask | QPAttrQKey
	}
	return attr, mask | QPAttrAccessFlags
}

func (qp *QP) toRTR(remote *QPInfo, o *ConnectOptions) (QPAttr, QPAttrMask) {
	attr := QPAttr{QPState: QPSRTR}
	if qp.init.Type == QPTypeUD {
		return attr, QPAttrState
	}
	attr.PathMTU = o.MTU
	if attr.PathMTU == 0 {
		attr.PathMTU = min(qp.local.MTU, orDefault(remote.MTU, qp.local.MTU))
	}
	attr.AHAttr = qp.ahAttr(remote, o)
	attr.DestQPNum, attr.RQPSN = remote.QPN, remote.PSN
	attr.MinRNRTimer, attr.MaxDestRdAtomic = o.MinRNRTimer, qp.local.RdAtomic
	row := transitionsOf[qp.init.Type][move{QPSInit, QPSRTR}]
	return attr, row.required
}

func (qp *QP) toRTS(remote *QPInfo, o *ConnectOptions) (QPAttr, QPAttrMask) {
	attr := QPAttr{QPState: QPSRTS, SQPSN: qp.local.PSN, Timeout: o.Timeout, RetryCnt: o.RetryCnt, RNRRetry: o.RNRRetry}
	attr.MaxRdAtomic = uint8(min(int(remote.RdAtomic), helperRdAtomic, qp.ctx.attr.MaxQPInitRdAtom))
	row := transitionsOf[qp.init.Type][move{QPSRTR, QPSRTS}]
	return attr, row.required
}

func (qp *QP) ahAttr(remote *QPInfo, o *ConnectOptions) AHAttr {
	return AHAttr{
		PortNum: helperPort, DLID: remote.LID, IsGlobal: !remote.GID.IsZero(),
		GRH: GlobalRoute{DGID: remote.GID, SGIDIndex: qp.sgid, HopLimit: o.HopLimit, TrafficClass: o.TrafficClass},
	}
}

// AHAttrTo makes the attributes of an AH for sending from this QP to the UD QP that remote describes. opts may be
// nil.
func (qp *QP) AHAttrTo(remote QPInfo, opts *ConnectOptions) (AHAttr, error) {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	if qp.life.closed.Load() {
		return AHAttr{}, errClosed("ah_attr_to", qp.obj())
	}
	o := opts.withDefaults()
	if qp.local == nil {
		if err := qp.announce(remote.peerAddr(false)); err != nil {
			return AHAttr{}, err
		}
	}
	return qp.ahAttr(&remote, &o), nil
}
