package verbs

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
)

// MW is a memory window: a part of a memory region with a key and access flags of its own (struct ibv_mw). It is safe
// for concurrent use.
//
// A new window is not bound. QP.BindMW binds a window of type 1; a request with WRBindMW binds one of type 2. A bound
// window of type 1 serves all QPs of its PD until it is unbound. A bound window of type 2 serves the QP that bound
// it, until that QP posts WRLocalInv with its key, or the peer sends WRSendWithInv. Close unbinds both.
type MW struct {
	pd       *PD
	drv      DriverMW
	typ      MWType
	lifetime lifetime
	mu       sync.Mutex // serialises BindMW and Close
	rkey     atomic.Uint32
}

// MWBindInfo is the memory that a window is bound to (struct ibv_mw_bind_info).
type MWBindInfo struct {
	MR     *MR         // needs AccessMWBind; nil to unbind
	Addr   uint64      // of the window's first byte, in the addresses of MR
	Length uint64      // bytes, within MR; 0 unbinds a window of type 1
	Access AccessFlags // AccessRemoteWrite, AccessRemoteRead, AccessRemoteAtomic, AccessFlushGlobal, AccessZeroBased
}

// MWBind is a request to bind a window of type 1 (struct ibv_mw_bind).
type MWBind struct {
	WRID  uint64
	Flags SendFlags // subset of SendSignaled, SendFence
	Info  MWBindInfo
}

// IncRKey returns rkey with its low 8 bits, which the program chooses, increased by one (ibv_inc_rkey): a key for the
// next bind of a window of type 2.
func IncRKey(rkey uint32) uint32 { return rkey&^0xff | (rkey+1)&0xff }

// AllocMW allocates a memory window (ibv_alloc_mw). Close frees it. EINVAL for an unknown type, EOPNOTSUPP if the
// device lacks the type, ENOMEM without resources.
func (pd *PD) AllocMW(t MWType) (*MW, error) {
	const op = "alloc_mw"
	if t != MWType1 && t != MWType2 {
		return nil, newError(op, pd.obj(), EINVAL, "unknown window type %v; must be %v or %v", t, MWType1, MWType2)
	}
	if err := pd.use(op, kindMW); err != nil {
		return nil, err
	}
	mw := &MW{pd: pd, typ: t}
	var err error
	if mw.drv, err = pd.drv.AllocMW(t); err != nil {
		pd.lifetime.drop(kindMW)
		return nil, driverError(op, pd.obj(), err)
	}
	mw.rkey.Store(mw.drv.RKey())
	return mw, nil
}

// PD returns the protection domain of the window.
func (mw *MW) PD() *PD { return mw.pd }

// Context returns the context of the window.
func (mw *MW) Context() *Context { return mw.pd.ctx }

// Type returns the window's type.
func (mw *MW) Type() MWType { return mw.typ }

// RKey returns the key for requests of peers: that of the last posted bind, complete or not. A SEND posted after the
// bind on the same QP may carry the key. Otherwise the program sends it to peers after the bind's completion.
func (mw *MW) RKey() uint32 { return mw.rkey.Load() }

// SetRKey restores RKey after a failed bind: rkey is the key before that bind was posted (rkey of struct ibv_mw). The
// device is not changed.
func (mw *MW) SetRKey(rkey uint32) { mw.rkey.Store(rkey) }

func (mw *MW) obj() string { return fmt.Sprintf("MW %v rkey 0x%08x", mw.typ, mw.RKey()) }

// Close unbinds the window and frees it (ibv_dealloc_mw).
func (mw *MW) Close() error {
	const op = "dealloc_mw"
	mw.mu.Lock()
	defer mw.mu.Unlock()
	if err := mw.lifetime.close(op, mw); err != nil {
		return err
	}
	if err := destroyed(mw.drv.Dealloc()); err != nil {
		mw.lifetime.reopen()
		return driverError(op, mw.obj(), err)
	}
	mw.pd.lifetime.drop(kindMW)
	return mw.pd.ctx.ended(op, mw)
}

// BindMW posts a bind of a window of type 1, which ends the window's previous binding (ibv_bind_mw). The QP is of
// type RC, UC or XRC_SEND. The bind is executed in the order of the send queue and completes with opcode WCBindMW.
// The window has its new RKey when BindMW returns. If the bind fails, with WCMWBindErr if the region's access flags
// or bounds do not permit it, the previous binding stays; the program then restores the key by SetRKey.
//
// Errors: EINVAL if the window is of type 2, the QP's type or state does not permit binds, memory is given without a
// region, or flags are bad. EPERM if region and window are in different PDs. ENOMEM if the send queue is full.
func (qp *QP) BindMW(mw *MW, bind *MWBind) error {
	const op = "bind_mw"
	if err := qp.checkBind(op, mw, bind); err != nil {
		return err
	}
	mw.mu.Lock()
	defer mw.mu.Unlock()
	switch s := qp.word.Load() & stateMask; {
	case mw.lifetime.closed.Load():
		return errClosed(op, mw.obj())
	case s < uint64(QPSRTS) || s > uint64(QPSErr):
		return qp.stateError(op)
	}
	info := bind.Info
	wrs := []SendWR{{WRID: bind.WRID, Opcode: WRBindMW, Flags: bind.Flags, MW: mw, RKey: IncRKey(mw.RKey()),
		BindInfo: &info}}
	if n, err := qp.drv.PostSend(wrs); err != nil || n == 0 {
		return driverError(op, qp.obj(), orFull(err))
	}
	mw.rkey.Store(wrs[0].RKey)
	return nil
}

// checkBind checks the arguments of BindMW.
func (qp *QP) checkBind(op string, mw *MW, bind *MWBind) error {
	switch {
	case mw == nil || bind == nil:
		return newError(op, qp.obj(), EINVAL, "mw or bind is nil")
	case mw.typ != MWType1:
		return newError(op, mw.obj(), EINVAL, "a window of type 2 is bound by posting a request with opcode BIND_MW")
	case mw.pd.ctx != qp.ctx:
		return newError(op, mw.obj(), EINVAL, "window and QP belong to different contexts")
	case !WRBindMW.in(qp.opcodes):
		return newError(op, qp.obj(), EINVAL, "QP type %v cannot bind windows: must be RC, UC or XRC_SEND", qp.init.Type)
	case bind.Flags&^(SendSignaled|SendFence) != 0:
		return newError(op, qp.obj(), EINVAL, "flags %v: must be of SIGNALED and FENCE", bind.Flags&^(SendSignaled|SendFence))
	case bind.Flags&SendFence != 0 && qp.init.Type == QPTypeUC:
		return newError(op, qp.obj(), EINVAL, "FENCE on QP type UC: must be RC or XRC_SEND")
	}
	info := &bind.Info
	if info.MR == nil && (info.Addr != 0 || info.Length != 0) {
		return newError(op, mw.obj(), EINVAL, "address %#x and length %d without a region: must be 0", info.Addr, info.Length)
	}
	if err := info.check(); err != nil {
		return badInput(op, mw.obj(), err)
	}
	if info.MR != nil && info.MR.PD().domain() != mw.pd.domain() {
		return newError(op, mw.obj(), syscall.EPERM, "the region belongs to another PD")
	}
	return nil
}

// windowAccess are the access flags of windows.
const windowAccess = AccessRemoteWrite | AccessRemoteRead | AccessRemoteAtomic | AccessFlushGlobal | AccessZeroBased

// check checks the rules of all binds. The device checks the region's access flags and bounds when it executes the
// bind.
func (info *MWBindInfo) check() error {
	switch {
	case info.Access&^windowAccess != 0:
		return fmt.Errorf("access %v: must be of %v", info.Access&^windowAccess, windowAccess)
	case info.MR != nil && info.MR.lifetime.closed.Load():
		return fmt.Errorf("memory region: %w", ErrClosed)
	}
	return nil
}

// checkBindWR checks a request that binds a window.
func (qp *QP) checkBindWR(wr *SendWR) error {
	switch mw := wr.MW; {
	case mw == nil || wr.BindInfo == nil:
		return qp.badSend(wr, "MW or BindInfo is nil")
	case mw.typ != MWType2:
		return qp.badSend(wr, "the window is of type 1; use QP.BindMW")
	case mw.lifetime.closed.Load():
		return &Error{Op: "post_send", Obj: qp.obj(), Errno: EINVAL, Detail: "BIND_MW: memory window", Err: ErrClosed}
	case mw.pd.ctx != qp.ctx:
		return qp.badSend(wr, "window and QP belong to different contexts")
	case wr.RKey>>8 != mw.RKey()>>8:
		return qp.badSend(wr, "key %#x: its upper 24 bits must be those of the window's key %#x; see IncRKey", wr.RKey,
			mw.RKey())
	case wr.BindInfo.MR == nil:
		return qp.badSend(wr, "the region is nil; LOCAL_INV unbinds a window of type 2")
	}
	if err := wr.BindInfo.check(); err != nil {
		return qp.badSend(wr, "%v", err)
	}
	return nil
}

// boundMWs sets the new keys of the windows whose binds were posted.
func boundMWs(wrs []SendWR) {
	for i := range wrs {
		if wrs[i].Opcode == WRBindMW {
			wrs[i].MW.rkey.Store(wrs[i].RKey)
		}
	}
}
