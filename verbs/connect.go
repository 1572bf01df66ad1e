package verbs

import (
	"cmp"
	"net/netip"

	"github.com/verbena-rdma/verbena/internal/secret"
)

// ConnectOptions holds the attributes that Connect sets. The comment of each field begins with its default, which the
// value 0 selects; [Zero] selects the value 0. Access and QKey are attributes of the move to INIT: a QP that is in INIT
// keeps those of Modify. It has no C twin.
type ConnectOptions struct {
	// Access is AccessRemoteRead, AccessRemoteWrite and AccessRemoteAtomic; AccessLocalWrite alone: no remote right. The
	// regions must permit them too. An incoming FLUSH needs AccessFlushGlobal in addition.
	Access       AccessFlags
	MTU          MTU    // the smaller active MTU of the two ports
	Timeout      uint8  // 14, which is 67 ms; Zero: no time-out
	RetryCnt     uint8  // 7; Zero: each packet is sent once
	RNRRetry     uint8  // 7, no limit; Zero: the first RNR NAK fails the request
	MinRNRTimer  uint8  // 12, which is 0.64 ms; Zero is 655 ms
	HopLimit     uint8  // 64
	TrafficClass uint8  // 0
	QKey         uint32 // UD: DefaultQKey
}

// Zero selects the value 0 in a field of options whose zero value selects a default: ConnectOptions{RetryCnt: Zero}
// does not retry. It is not a valid value of any such field.
const Zero = 0xff

// DefaultQKey is the Q_Key of UD QPs after Connect without ConnectOptions.QKey.
const DefaultQKey = 0x11111111

const (
	helperPort     = 1  // port number
	helperRdAtomic = 16 // outstanding READs and atomics
	helperAccess   = AccessRemoteRead | AccessRemoteWrite | AccessRemoteAtomic
)

func (o *ConnectOptions) withDefaults() ConnectOptions {
	var r ConnectOptions
	if o != nil {
		r = *o
	}
	r.Access = cmp.Or(r.Access, helperAccess)
	r.Timeout = orZero(r.Timeout, 14)
	r.RetryCnt = orZero(r.RetryCnt, 7)
	r.RNRRetry = orZero(r.RNRRetry, 7)
	r.MinRNRTimer = orZero(r.MinRNRTimer, 12)
	r.HopLimit = cmp.Or(r.HopLimit, 64)
	r.QKey = cmp.Or(r.QKey, DefaultQKey)
	return r
}

// orZero returns def for 0, 0 for Zero, and v otherwise.
func orZero(v, def uint8) uint8 {
	switch v {
	case 0:
		return def
	case Zero:
		return 0
	}
	return v
}

// LocalInfo returns the information that a peer needs to connect to this QP. It chooses the GID of the QP's port, which
// is port 1 in RESET: an IPv4 address, else an IPv6 address that is not link-local, else the first entry of the table.
// Later calls return the same values until the QP goes to RESET, or LocalInfoFor chooses another GID. The Q_Key of a UD
// QP is that of Connect or Modify, in RESET DefaultQKey. It has no C twin.
//
// Errors: ENODATA if the GID table is empty.
func (qp *QP) LocalInfo() (QPInfo, error) { return qp.LocalInfoFor(netip.Addr{}) }

// LocalInfoFor is LocalInfo with the GID for traffic to the peer's address. It has the errors of Context.SelectGID too.
// The zero address is that of LocalInfo.
func (qp *QP) LocalInfoFor(peer netip.Addr) (QPInfo, error) {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	if qp.lifetime.closed.Load() {
		return QPInfo{}, errClosed("local_info", qp.obj())
	}
	if err := qp.announce(peer); err != nil {
		return QPInfo{}, err
	}
	return *qp.local, nil
}

// announce sets qp.local. A valid peer address chooses the GID anew.
//
// +checklocks:qp.mu
func (qp *QP) announce(peer netip.Addr) error {
	if qp.local != nil && !peer.IsValid() {
		return nil
	}
	port, err := qp.ctx.queryPort("local_info", qp.ownPort())
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
		if qp.port != 0 {
			info.QKey = qp.qkey
		}
	}
	if qp.local != nil {
		info.PSN = qp.local.PSN
	} else {
		info.PSN = secret.PSN()
	}
	qp.local, qp.sgid = &info, choice.Index
	return nil
}

// setQKey notes the Q_Key that Modify has set, for LocalInfo.
//
// +checklocks:qp.mu
func (qp *QP) setQKey(qkey uint32) {
	qp.qkey = qkey
	if qp.local != nil {
		qp.local.QKey = qkey
	}
}

// ownPort is the port of a QP that has left RESET, else port 1.
//
// +checklocks:qp.mu
func (qp *QP) ownPort() uint8 { return cmp.Or(qp.port, helperPort) }

// +checklocks:qp.mu
func (qp *QP) chooseGID(peer netip.Addr) (GIDChoice, error) {
	if peer.IsValid() {
		return qp.ctx.selectGID(qp.ownPort(), peer)
	}
	table, err := qp.ctx.gidTable("local_info", qp.ownPort())
	if err != nil {
		return GIDChoice{}, err
	}
	best, rank := GIDChoice{}, 0
	for i, e := range table {
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
			best, rank = GIDChoice{Index: i, GID: e.GID}, r
		}
	}
	if rank == 0 {
		return best, newError("local_info", qp.obj(), ENODATA, "the GID table of port %d is empty", qp.ownPort())
	}
	return best, nil
}

// Connect moves a QP in RESET or INIT to RTS, connected to the QP that remote describes (three calls of
// ibv_modify_qp). Both sides exchange the results of LocalInfo and then call Connect. opts may be nil. A UD QP has no
// peer: remote is ignored; see AHAttrTo.
//
// Receives may be posted before, in INIT, or after: a peer that sends too early gets an RNR NAK and sends again.
//
// Errors: EINVAL if remote does not fit, the QP is in another state, or it is of type RAW_PACKET, which Modify
// connects. If LocalInfo was not called before, its errors and those of Context.SelectGID. After a failure the QP is in
// the state before the failed step.
func (qp *QP) Connect(remote QPInfo, opts *ConnectOptions) error {
	const op = "connect"
	qp.mu.Lock()
	defer qp.mu.Unlock()
	if qp.lifetime.closed.Load() {
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

// checkRemote returns an error if the QP cannot be connected to remote.
//
// +checklocks:qp.mu
func (qp *QP) checkRemote(op string, remote *QPInfo) error {
	local := qp.local
	switch {
	case remote.Type != qp.init.Type.peerType():
		return newError(op, qp.obj(), EINVAL, "the peer's QP type is %v: must be %v", remote.Type, qp.init.Type.peerType())
	case local != nil && !local.GID.IsZero() && !remote.GID.IsZero() && local.GID.Addr().Is4() != remote.GID.Addr().Is4():
		return newError(op, qp.obj(), EINVAL, "local GID %v cannot reach the peer's GID %v: "+
			"both must be IPv4 or both IPv6; use LocalInfoFor", local.GID, remote.GID)
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

// +checklocks:qp.mu
func (qp *QP) toRTR(remote *QPInfo, o *ConnectOptions) (QPAttr, QPAttrMask) {
	attr := QPAttr{QPState: QPSRTR}
	if qp.init.Type == QPTypeUD {
		return attr, QPAttrState
	}
	attr.PathMTU = o.MTU
	if attr.PathMTU == 0 {
		attr.PathMTU = min(qp.local.MTU, cmp.Or(remote.MTU, qp.local.MTU))
	}
	attr.AHAttr = qp.ahAttr(remote, o)
	attr.DestQPNum, attr.RQPSN = remote.QPN, remote.PSN
	attr.MinRNRTimer, attr.MaxDestRdAtomic = o.MinRNRTimer, qp.local.RdAtomic
	row := transitionsOf[qp.init.Type][move{QPSInit, QPSRTR}]
	return attr, row.required
}

// +checklocks:qp.mu
func (qp *QP) toRTS(remote *QPInfo, o *ConnectOptions) (QPAttr, QPAttrMask) {
	attr := QPAttr{QPState: QPSRTS, SQPSN: qp.local.PSN, Timeout: o.Timeout, RetryCnt: o.RetryCnt, RNRRetry: o.RNRRetry}
	attr.MaxRdAtomic = uint8(min(int(remote.RdAtomic), helperRdAtomic, qp.ctx.attr.MaxQPInitRdAtom))
	row := transitionsOf[qp.init.Type][move{QPSRTR, QPSRTS}]
	return attr, row.required
}

// +checklocks:qp.mu
func (qp *QP) ahAttr(remote *QPInfo, o *ConnectOptions) AHAttr {
	return AHAttr{
		PortNum: qp.ownPort(), DLID: remote.LID, IsGlobal: !remote.GID.IsZero(),
		GRH: GlobalRoute{DGID: remote.GID, SGIDIndex: qp.sgid, HopLimit: o.HopLimit, TrafficClass: o.TrafficClass},
	}
}

// AHAttrTo returns the attributes of an AH for sends from this QP to the UD QP that remote describes. opts may be
// nil. ENODATA if the GID table has no entry for that. It has no C twin.
func (qp *QP) AHAttrTo(remote QPInfo, opts *ConnectOptions) (AHAttr, error) {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	if qp.lifetime.closed.Load() {
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
