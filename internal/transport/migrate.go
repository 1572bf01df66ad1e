package transport

import (
	"errors"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// Automatic path migration (IBTA volume 1, 17.2.8). A connected QP may have an alternate path. The M bit of its
// packets tells the peer its migration state:
//
//	MIGRATED  M 1  only the primary path is in use
//	REARM     M 0  the program has loaded an alternate path; ARMED as soon as the peer sends M 0 too
//	ARMED     M 0  migrates when retries are exhausted, when the program requests it, or when the peer sends M 1
//	               over the alternate path
//
// Migration exchanges the two paths and enters MIGRATED. The old path becomes the alternate path, so the program may
// rearm the QP at once or load another path.

// Errors of a change of the migration state.
var (
	ErrNoAlternate = errors.New("path migration state REARM: the QP has no alternate path (QP_ALT_PATH)")
	ErrNotArmed    = errors.New("path migration state is REARM: the peer is not ready to migrate; wait for ARMED")
	ErrArm         = errors.New(
		"path migration state ARMED is entered by the device; set REARM to prepare or MIGRATED to migrate",
	)
)

// checkMig returns the error of an invalid change of the migration state.
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

// setMig applies the migration state that the program requests. MIGRATED switches to the alternate path if the QP is
// ARMED.
func (qp *QP) setMig(s MigState) {
	switch {
	case s == Rearm:
		qp.attr.Mig, qp.baseFlags = Rearm, 0
		qp.complained = false
	case qp.attr.Mig == Armed:
		qp.migrate()
	}
}

// migrate switches to the alternate path and resets the retry counter.
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

// arrives reports whether the path of a packet is acceptable, and acts on its M bit. It is called for packets that
// did not arrive over the path of a migrated QP.
//
// A packet over the alternate path is always accepted: the peer may have sent it before it learned of a migration.
// IBTA lets only an ARMED QP follow its peer. Here a QP in REARM follows too, because a peer that has migrated may
// receive nothing over the other path.
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
	case a.Mig != Migrated && mig && alt && !qp.Guest: // a guest follows its home
		qp.migrate()
	}
	return true
}

// reaches reports whether p arrived from the remote end of path.
func reaches(path *link.Path, p *link.RxPacket) bool { return p.Src == path.Dst && p.Dst == path.Src }
