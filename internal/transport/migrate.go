package transport

import (
	"errors"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// Automatic path migration (IBTA volume 1, 17.2.8). A connected QP may have an alternate path. Its packets' M bit tells
// the peer how far it is:
//
//	MIGRATED  M 1  the path in use is the only one
//	REARM     M 0  the program has loaded an alternate path; ARMED as soon as the peer sends M 0 too
//	ARMED     M 0  migrates when retries are exhausted, when the program says so, or when the peer sends M 1
//	               over the alternate path
//
// To migrate is to exchange the two paths, and to be MIGRATED. The old path is then the alternate one, so that the program may
// arm the QP again at once, or load another.

// Errors of a change of the migration state.
var (
	ErrNoAlternate = errors.New("the path migration state REARM needs an alternate path (QP_ALT_PATH), and there is none")
	ErrNotArmed    = errors.New("the path migration state is REARM: the peer is not ready to migrate yet; wait for ARMED")
	ErrArm         = errors.New("the path migration state ARMED is the device's to enter; a program asks for REARM, or MIGRATED to migrate")
)

// checkMig says what is wrong with a change of the migration state.
func (qp *QP) checkMig(a *Attr, m Mask) error {
	switch {
	case m&MaskMigState == 0:
		return nil
	case a.Mig == Armed:
		return ErrArm
	case a.Mig == Migrated && qp.attr.Mig == Rearm:
		return ErrNotArmed
	case a.Mig == Rearm && m&MaskAltPath == 0 && !qp.attr.Alt.Dst.IsValid():
		return ErrNoAlternate
	}
	return nil
}

// setMig does what the program asks for. MIGRATED takes the alternate path if the QP is ARMED.
func (qp *QP) setMig(s MigState) {
	switch {
	case s == Rearm:
		qp.attr.Mig, qp.baseFlags = Rearm, 0
		qp.complained = false
	case qp.attr.Mig == Armed:
		qp.migrate()
	}
}

// migrate takes the alternate path, where all tries count anew.
func (qp *QP) migrate() {
	a := &qp.attr
	a.Path, a.Alt = a.Alt, a.Path
	a.PKey, a.AltPKey = a.AltPKey, a.PKey
	a.PKeyIndex, a.AltPKeyIdx = a.AltPKeyIdx, a.PKeyIndex
	a.Port, a.AltPort = a.AltPort, a.Port
	a.Timeout, a.AltTimeout = a.AltTimeout, a.Timeout
	a.PathOwner, a.AltOwner = a.AltOwner, a.PathOwner
	qp.takePath()
	a.Mig, qp.baseFlags = Migrated, wire.BTHMigReq
	qp.req.retries = 0
	qp.Host.Raise(qp, EventPathMig)
}

// arrives tells whether a packet came a way that it may come, and does what its M bit asks for. It is called for packets that
// did not come over the path of a migrated QP.
//
// What comes over the alternate path is always taken: it may be from before the peer has heard of a move. IBTA lets only
// an ARMED QP follow its peer. Here one in REARM does too, since a peer that has migrated may hear nothing over the other path.
func (qp *QP) arrives(p *link.RxPacket) bool {
	a := &qp.attr
	mig := wire.BTH(p.Data).MigReq()
	alt := reaches(&a.Alt, p)
	switch {
	case !alt && !reaches(qp.path, p):
		if mig && a.Mig != Migrated && !qp.complained {
			qp.complained = true
			qp.Host.Raise(qp, EventPathMigErr) // the peer has migrated to a path that is not the alternate one
		}
		return false
	case a.Mig == Rearm && !mig:
		a.Mig = Armed
	case a.Mig != Migrated && mig && alt:
		qp.migrate()
	}
	return true
}

// reaches tells whether a packet came over a path, from its other end.
func reaches(path *link.Path, p *link.RxPacket) bool { return p.Src == path.Dst && p.Dst == path.Src }
