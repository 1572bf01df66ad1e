package verbs

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
)

// MW is a memory window: a part of a memory region that peers may use under a key and rights of its own (struct
// ibv_mw). It is safe for concurrent use.
//
// A new window is not bound. QP.BindMW binds those of type 1, a request with WRBindMW those of type 2. One of type 1
// serves all QPs of its PD until it is bound to no memory; one of type 2 serves the QP through which it was bound, until
// that QP posts WRLocalInv with its key, or the peer sends WRSendWithInv. Close ends both.
type MW struct {
	pd   *PD
	drv  MWDriver
	typ  MWType
	life life
	mu   sync.Mutex // serialises BindMW and Close
	rkey atomic.Uint32
}

// MWBindInfo says what a window is bound to (struct ibv_mw_bind_info).
type MWBindInfo struct {
	MR     *MR         // with AccessMWBind; nil with Length 0
	Addr   uint64      // of the window's first byte, as MR has it
	Length uint64      // bytes, within MR; 0 unbinds a window of type 1
	Access AccessFlags // of AccessRemoteWrite, AccessRemoteRead, AccessRemoteAtomic, AccessZeroBased
}

// MWBind is a bind of a window of type 1 (struct ibv_mw_bind).
type MWBind struct {
	WRID  uint64
	Flags SendFlags // of SendSignaled, SendFence
	Info  MWBindInfo
}

// IncRKey is rkey with its low 8 bits, which are the program's, increased by one (ibv_inc_rkey): a key for the next
// bind of a window of type 2.
func IncRKey(rkey uint32) uint32 { return rkey&^0xff | (rkey+1)&0xff }

// AllocMW makes a memory window (ibv_alloc_mw). EINVAL for a type that is none, EOPNOTSUPP if the device lacks it,
// ENOMEM without resources.
func (pd *PD) AllocMW(t MWType) (*MW, error) {
	const op = "alloc_mw"
	if t != MWType1 && t != MWType2 {
		return nil, newError(op, pd.obj(), EINVAL, "%v is not a type of memory windows; there are %v and %v", t, MWType1, MWType2)
	}
	drv, ok := pd.drv.(MWAllocator)
	if !ok {
		return nil, newError(op, pd.obj(), EOPNOTSUPP, "the device has no memory windows")
	}
	if !pd.life.use(kindMW) {
		return nil, errClosed(op, pd.obj())
	}
	mw := &MW{pd: pd, typ: t}
	var err error
	if mw.drv, err = drv.AllocMW(t); err != nil {
		pd.life.drop(kindMW)
		return nil, driverError(op, pd.obj(), err)
	}
	mw.rkey.Store(mw.drv.RKey())
	return mw, nil
}

// PD is the protection domain that the window is in.
func (mw *MW) PD() *PD { return mw.pd }

// Context is the context that the window belongs to.
func (mw *MW) Context() *Context { return mw.pd.ctx }

// Type is the window's type.
func (mw *MW) Type() MWType { return mw.typ }

// RKey is the key that peers use: that of the bind that was posted last, whether it is complete or not. A SEND
// behind it on the same QP may carry the key; otherwise peers may be told when the completion of the bind was polled.
func (mw *MW) RKey() uint32 { return mw.rkey.Load() }

// SetRKey puts RKey right after a bind has failed: rkey is what it was before that bind was posted (rkey of struct
// ibv_mw). It changes nothing on the device.
func (mw *MW) SetRKey(rkey uint32) { mw.rkey.Store(rkey) }

// Driver gives providers the driver object of the window.
func (mw *MW) Driver() MWDriver { return mw.drv }

func (mw *MW) obj() string { return fmt.Sprintf("MW %v rkey 0x%08x", mw.typ, mw.RKey()) }

// Close unbinds the window and frees it (ibv_dealloc_mw).
func (mw *MW) Close() error {
	const op = "dealloc_mw"
	mw.mu.Lock()
	defer mw.mu.Unlock()
	if err := mw.life.end(op, mw.obj()); err != nil {
		return err
	}
	if err := destroyed(mw.drv.Dealloc()); err != nil {
		mw.life.revive()
		return driverError(op, mw.obj(), err)
	}
	mw.pd.life.drop(kindMW)
	return nil
}

// BindMW posts a bind of a window of type 1, which ends the window's former binding (ibv_bind_mw). It is an RC, UC
// or XRC_SEND QP's request like others: it takes its turn in the send queue and is done when its completion with
// opcode WCBindMW says so. The window has another RKey at once. A completion with an error, of status WCMWBindErr if the
// region's rights or bounds do not permit the binding, leaves the binding as it was: the program then restores the
// key by SetRKey.
//
// EINVAL: the window is of type 2, the QP's type or state does not permit it, memory without a region, bad flags.
// EPERM: region and window are in different PDs. ENOMEM: the send queue is full.
func (qp *QP) BindMW(mw *MW, bind *MWBind) error {
	const op = "bind_mw"
	if err := qp.checkBind(op, mw, bind); err != nil {
		return err
	}
	mw.mu.Lock()
	defer mw.mu.Unlock()
	switch s := qp.word.Load() & stateMask; {
	case mw.life.closed.Load():
		return errClosed(op, mw.obj())
	case s < uint64(QPSRTS) || s > uint64(QPSErr):
		return qp.stateError(op)
	}
	info := bind.Info
	wrs := []SendWR{{WRID: bind.WRID, Opcode: WRBindMW, Flags: bind.Flags, MW: mw, RKey: IncRKey(mw.RKey()), BindInfo: &info}}
	if n, err := qp.drv.PostSend(wrs); err != nil || n == 0 {
		return driverError(op, qp.obj(), orFull(err))
	}
	mw.rkey.Store(wrs[0].RKey)
	return nil
}

// checkBind looks at the arguments of BindMW.
func (qp *QP) checkBind(op string, mw *MW, bind *MWBind) error {
	switch {
	case mw == nil || bind == nil:
		return newError(op, qp.obj(), EINVAL, "the window or what to bind it to is missing")
	case mw.typ != MWType1:
		return newError(op, mw.obj(), EINVAL, "a window of type 2 is bound by posting a request with opcode BIND_MW")
	case mw.pd.ctx != qp.ctx:
		return newError(op, mw.obj(), EINVAL, "window and QP belong to different contexts")
	case !WRBindMW.in(qp.opcodes):
		return newError(op, qp.obj(), EINVAL, "a QP of type %v cannot bind windows; RC, UC and XRC_SEND can", qp.init.Type)
	case bind.Flags&^(SendSignaled|SendFence) != 0:
		return newError(op, qp.obj(), EINVAL, "flags %v are not possible; SIGNALED and FENCE are", bind.Flags&^(SendSignaled|SendFence))
	case bind.Flags&SendFence != 0 && qp.init.Type == QPTypeUC:
		return newError(op, qp.obj(), EINVAL, "FENCE is not possible on a QP of type UC, only on RC")
	}
	info := &bind.Info
	if info.MR == nil && (info.Addr != 0 || info.Length != 0) {
		return newError(op, mw.obj(), EINVAL, "there is no region, but address %#x and length %d; they must be 0 to unbind", info.Addr, info.Length)
	}
	if err := info.check(); err != nil {
		return badInput(op, mw.obj(), err)
	}
	if info.MR != nil && info.MR.PD().domain() != mw.pd.domain() {
		return newError(op, mw.obj(), syscall.EPERM, "the region belongs to another PD")
	}
	return nil
}

// windowAccess is what a window can have.
const windowAccess = AccessRemoteWrite | AccessRemoteRead | AccessRemoteAtomic | AccessZeroBased

// check looks at what every bind must fulfil. What the region permits is for the device to see, when the bind's turn has come.
func (info *MWBindInfo) check() error {
	switch {
	case info.Access&^windowAccess != 0:
		return fmt.Errorf("a window cannot have %v, only %v", info.Access&^windowAccess, windowAccess)
	case info.MR != nil && info.MR.life.closed.Load():
		return fmt.Errorf("memory region: %w", ErrClosed)
	}
	return nil
}

// checkBindWR looks at a request that binds a window.
func (qp *QP) checkBindWR(wr *SendWR) error {
	switch mw := wr.MW; {
	case mw == nil || wr.BindInfo == nil:
		return qp.badSend(wr, "the window or what to bind it to is missing")
	case mw.typ != MWType2:
		return qp.badSend(wr, "the window is of type 1; QP.BindMW binds it")
	case mw.life.closed.Load():
		return &Error{Op: "post_send", Obj: qp.obj(), Errno: EINVAL, Detail: "BIND_MW: memory window", Err: ErrClosed}
	case mw.pd.ctx != qp.ctx:
		return qp.badSend(wr, "window and QP belong to different contexts")
	case wr.RKey>>8 != mw.RKey()>>8:
		return qp.badSend(wr, "the new key %#x differs from the window's, %#x, in more than its low 8 bits; see IncRKey", wr.RKey, mw.RKey())
	case wr.BindInfo.MR == nil:
		return qp.badSend(wr, "the region is missing; a window of type 2 is unbound by LOCAL_INV")
	}
	if err := wr.BindInfo.check(); err != nil {
		return qp.badSend(wr, "%v", err)
	}
	return nil
}

// boundMWs notes the new keys of the windows whose binds were posted.
func boundMWs(wrs []SendWR) {
	for i := range wrs {
		if wrs[i].Opcode == WRBindMW {
			wrs[i].MW.rkey.Store(wrs[i].RKey)
		}
	}
}
