package verbs

import (
	"math/bits"
	"unsafe"
)

// opcodesOf holds the opcodes of each QP type, as bits (docs/conformance/verbs-43.md).
var opcodesOf = map[QPType]uint32{
	QPTypeRC:        connectedOpcodes | reliableOpcodes,
	QPTypeXRCSend:   connectedOpcodes | reliableOpcodes,
	QPTypeUC:        connectedOpcodes,
	QPTypeUD:        1<<WRSend | 1<<WRSendWithImm | 1<<WRTSO,
	QPTypeRawPacket: 1<<WRSend | 1<<WRTSO,
}

const (
	connectedOpcodes = sendOpcodes | writeOpcodes | 1<<WRLocalInv | 1<<WRBindMW
	reliableOpcodes  = 1<<WRRDMARead | atomicOpcodes | placeOpcodes
	sendOpcodes      = 1<<WRSend | 1<<WRSendWithImm | 1<<WRSendWithInv
	writeOpcodes     = 1<<WRRDMAWrite | 1<<WRRDMAWriteWithImm
	atomicOpcodes    = 1<<WRAtomicCmpAndSwp | 1<<WRAtomicFetchAndAdd
	solicitedOpcodes = sendOpcodes | 1<<WRRDMAWriteWithImm
	placeOpcodes     = 1<<WRFlush | 1<<WRAtomicWrite
	inlineOpcodes    = sendOpcodes | writeOpcodes | 1<<WRAtomicWrite

	sendFlagsAll = SendFence | SendSignaled | SendSolicited | SendInline | SendIPCsum
)

func (op WROpcode) in(set uint32) bool { return op < 32 && set>>op&1 != 0 }

// csumCaps is the capability that SendIPCsum needs.
var csumCaps = map[QPType]DeviceCapFlags{
	QPTypeRC: DeviceRCIPCsum, QPTypeUD: DeviceUDIPCsum, QPTypeRawPacket: DeviceRawIPCsum,
}

// PostSend posts send requests in order (ibv_post_send). It stops at the first bad one: a *PostError has its index;
// the requests before it are posted. wrs and their lists may be reused when PostSend returns. The memory that they
// name belongs to the device until the completion is polled, except that of inline requests. It allocates nothing and
// is safe for concurrent use.
//
// Errors: EINVAL if the QP is in RESET, INIT or RTR, or the request does not fit it. ENOMEM if the send queue is full;
// a request without SendSignaled leaves the queue when a later completion is polled. EOPNOTSUPP for atomics, or for
// TSO, if the device lacks them. In SQD requests wait; in SQE and ERR they are flushed.
//
// UD has SEND, SEND_WITH_IMM and TSO. UC has SEND, SEND_WITH_IMM, SEND_WITH_INV, RDMA_WRITE, RDMA_WRITE_WITH_IMM,
// LOCAL_INV and BIND_MW. RC and XRC_SEND have the opcodes of UC, RDMA_READ, the atomics, FLUSH and ATOMIC_WRITE.
// RAW_PACKET has SEND and TSO. SendFence needs RC or XRC_SEND, SendSolicited a SEND or RDMA_WRITE_WITH_IMM,
// SendInline a SEND, a WRITE or ATOMIC_WRITE.
//
// BIND_MW sets the RKey of its window, which must be of type 2, to the RKey of the request. If it completes with
// WCMWBindErr, or is flushed, the program restores the key by MW.SetRKey.
func (qp *QP) PostSend(wrs ...SendWR) error {
	return qp.postSend(noescape(wrs))
}

func (qp *QP) postSend(wrs []SendWR) error {
	const op = "post_send"
	if s := qp.word.Load() & stateMask; s < uint64(QPSRTS) || s > uint64(QPSErr) {
		return &PostError{Err: qp.stateError(op)}
	}
	good, binds := len(wrs), false
	var bad error
	for i := range wrs {
		if bad = qp.checkSend(&wrs[i]); bad != nil {
			good = i
			break
		}
		binds = binds || wrs[i].Opcode == WRBindMW
	}
	if good > 0 {
		n, err := qp.drv.PostSend(wrs[:good])
		if binds {
			boundMWs(wrs[:n])
		}
		if err != nil || n < good {
			return &PostError{Index: n, Err: driverError(op, qp.obj(), orFull(err))}
		}
	}
	if bad != nil {
		return &PostError{Index: good, Err: bad}
	}
	return nil
}

// stateError returns the error of a post call in a state that does not permit it.
func (qp *QP) stateError(op string) error {
	if qp.lifetime.closed.Load() {
		return errClosed(op, qp.obj())
	}
	if op == "post_recv" {
		return newError(op, qp.obj(), EINVAL, "not possible in %v; move the QP to INIT first", qp.State())
	}
	return newError(op, qp.obj(), EINVAL, "not possible in %v; move the QP to RTS first", qp.State())
}

// orFull returns ENOMEM for a driver that gives no reason for stopping.
func orFull(err error) error {
	if err == nil {
		return ENOMEM
	}
	return err
}

// checkSend returns an error for a request that does not fit the QP.
func (qp *QP) checkSend(wr *SendWR) error {
	if qp.plain(wr) {
		return nil
	}
	return qp.checkAny(wr)
}

func (qp *QP) checkAny(wr *SendWR) error {
	t := qp.init.Type
	switch {
	case !wr.Opcode.in(qp.opcodes):
		return qp.badSend(wr, "not possible on a QP of type %v, which has %v", t, opcodeSet(qp.opcodes))
	case wr.Flags&^(SendSignaled|SendSolicited) != 0 || wr.Inline != nil || wr.Flags&SendSolicited != 0 &&
		!wr.Opcode.in(solicitedOpcodes):
		if err := qp.checkFlags(wr); err != nil {
			return err
		}
	}
	if uint32(len(wr.SGList)) > qp.most.sendSGE {
		return qp.badSend(wr, "%d SGEs: must be 0 to %d (MaxSendSGE)", len(wr.SGList), qp.most.sendSGE)
	}
	if wr.Opcode == WRTSO {
		if err := qp.checkTSO(wr); err != nil {
			return err
		}
	}
	if t == QPTypeUD {
		return qp.checkDatagram(wr)
	}
	if t == QPTypeXRCSend && wr.RemoteSRQN > 0xffffff {
		return qp.badSend(wr, "SRQ number %#x: must be 0 to 0xffffff", wr.RemoteSRQN)
	}
	if wr.Opcode == WRBindMW {
		return qp.checkBindWR(wr)
	}
	if wr.Opcode.in(1<<WRRDMARead | atomicOpcodes) {
		return qp.checkReading(wr)
	}
	if wr.Opcode.in(placeOpcodes) {
		return qp.checkPlacement(wr)
	}
	return nil
}

// plain reports that a request is one of those that most programs post, and that checkAny would accept it.
func (qp *QP) plain(wr *SendWR) bool {
	if !qp.connected || !wr.Opcode.in(sendOpcodes|writeOpcodes) {
		return false
	}
	switch wr.Flags &^ SendSignaled {
	case 0:
		return wr.Inline == nil && uint32(len(wr.SGList)) <= qp.most.sendSGE
	case SendInline:
		return wr.Inline != nil && len(wr.SGList) == 0 && uint32(len(wr.Inline)) <= qp.most.inline
	}
	return false
}

// checkTSO checks a request with segmentation offload.
func (qp *QP) checkTSO(wr *SendWR) error {
	switch {
	case qp.maxTSOHeader == 0:
		return qp.noTSO(wr)
	case wr.TSO == nil || len(wr.TSO.Hdr) == 0:
		return qp.badSend(wr, "TSO.Hdr is empty")
	case len(wr.TSO.Hdr) > int(qp.maxTSOHeader):
		return qp.badSend(wr, "%d bytes of headers: must be 1 to %d (MaxTSOHeader)", len(wr.TSO.Hdr), qp.maxTSOHeader)
	case wr.TSO.MSS == 0:
		return qp.badSend(wr, "MSS 0: must be 1 to 65535")
	case sgLength(wr.SGList) > uint64(qp.maxTSO):
		return qp.badSend(wr, "%d bytes: must be 0 to %d", sgLength(wr.SGList), qp.maxTSO)
	}
	return nil
}

// noTSO returns the error of a TSO request on a QP without MaxTSOHeader.
func (qp *QP) noTSO(wr *SendWR) error {
	if !IsQPTSupported(qp.ctx.attr.TSOCaps.SupportedQPTs, qp.init.Type) {
		return newError("post_send", qp.obj(), EOPNOTSUPP, "%v: the device does not support it for %v QPs", wr.Opcode,
			qp.init.Type)
	}
	return qp.badSend(wr, "the QP was made without MaxTSOHeader")
}

func (qp *QP) badSend(wr *SendWR, format string, args ...any) error {
	return newError("post_send", qp.obj(), EINVAL, "%v: "+format, append([]any{wr.Opcode}, args...)...)
}

// checkFlags checks the flags that most requests do not have.
func (qp *QP) checkFlags(wr *SendWR) error {
	t := qp.init.Type
	switch inline := wr.Flags&SendInline != 0; {
	case wr.Flags&^sendFlagsAll != 0:
		return qp.badSend(wr, "unknown flags %v", wr.Flags&^sendFlagsAll)
	case wr.Flags&SendFence != 0 && t != QPTypeRC && t != QPTypeXRCSend:
		return qp.badSend(wr, "FENCE on QP type %v: must be RC or XRC_SEND", t)
	case wr.Flags&SendSolicited != 0 && !wr.Opcode.in(solicitedOpcodes):
		return qp.badSend(wr, "SOLICITED: the opcode must be of %v", opcodeSet(solicitedOpcodes))
	case wr.Flags&SendIPCsum != 0 && (csumCaps[t] == 0 || qp.ctx.attr.DeviceCapFlags&csumCaps[t] == 0):
		return qp.badSend(wr, "the device has no checksum offload (IP_CSUM) for %v", t)
	case inline && !wr.Opcode.in(inlineOpcodes):
		return qp.badSend(wr, "INLINE: the opcode must be of %v", opcodeSet(inlineOpcodes))
	case !inline && wr.Inline != nil:
		return qp.badSend(wr, "there is inline data, but the flag INLINE is missing")
	case inline && wr.Inline != nil && len(wr.SGList) > 0:
		return qp.badSend(wr, "there is inline data and a list of SGEs; give one of them")
	case inline && inlineLength(wr) > uint64(qp.most.inline):
		return qp.badSend(wr, "%d bytes of inline data: must be 0 to %d (MaxInlineData)", inlineLength(wr),
			qp.most.inline)
	}
	return nil
}

func inlineLength(wr *SendWR) uint64 {
	if wr.Inline != nil {
		return uint64(len(wr.Inline))
	}
	return sgLength(wr.SGList)
}

func sgLength(list []SGE) uint64 {
	var n uint64
	for i := range list {
		n += uint64(list[i].Length)
	}
	return n
}

// checkDatagram checks the destination of a UD request.
func (qp *QP) checkDatagram(wr *SendWR) error {
	switch ah := wr.AH; {
	case ah == nil:
		return qp.badSend(wr, "the address handle is missing")
	case ah.pd.domain() != qp.pd.domain():
		return qp.badSend(wr, "the address handle belongs to another PD")
	case ah.lifetime.closed.Load():
		return &Error{Op: "post_send", Obj: qp.obj(), Errno: EINVAL, Detail: "address handle", Err: ErrClosed}
	case wr.RemoteQPN > 0xffffff:
		return qp.badSend(wr, "QP number %#x: must be 0 to 0xffffff", wr.RemoteQPN)
	}
	return nil
}

// checkReading checks a request whose response is written to local memory.
func (qp *QP) checkReading(wr *SendWR) error {
	d := &qp.ctx.attr
	switch {
	case wr.Opcode == WRRDMARead:
		if len(wr.SGList) > d.MaxSGERd {
			return qp.badSend(wr, "%d SGEs: must be 0 to %d (MaxSGERd)", len(wr.SGList), d.MaxSGERd)
		}
	case d.AtomicCap == AtomicNone:
		return newError("post_send", qp.obj(), EOPNOTSUPP, "%v: the device has no atomics", wr.Opcode)
	case sgLength(wr.SGList) < 8:
		return qp.badSend(wr, "%d bytes for the result: must be 8 or more", sgLength(wr.SGList))
	}
	return nil
}

const (
	atomicWriteLen = 8
	maxFlush       = uint32(1 << 31)
)

// checkPlacement checks a FLUSH or ATOMIC_WRITE.
func (qp *QP) checkPlacement(wr *SendWR) error {
	f := &wr.Flush
	switch n := inlineLength(wr); {
	case wr.Opcode == WRAtomicWrite && n != atomicWriteLen:
		return qp.badSend(wr, "%d bytes of data: must be %d", n, atomicWriteLen)
	case wr.Opcode == WRAtomicWrite:
		return nil
	case f.Type == 0 || f.Type&^placementAll != 0:
		return qp.badSend(wr, "unknown placement type %v; must be of %v", f.Type, placementAll)
	case f.Level > FlushMR:
		return qp.badSend(wr, "unknown selectivity level %v; must be %v or %v", f.Level, FlushRange, FlushMR)
	case f.Length > maxFlush:
		return qp.badSend(wr, "%d bytes: must be 0 to %d", f.Length, maxFlush)
	}
	return nil
}

// opcodeSet prints a set of opcodes.
type opcodeSet uint32

func (s opcodeSet) String() string {
	if s == 0 {
		return "no send queue"
	}
	text := ""
	for set := uint32(s); set != 0; set &= set - 1 {
		if text != "" {
			text += ", "
		}
		text += WROpcode(bits.TrailingZeros32(set)).String()
	}
	return text
}

// PostRecv posts receives in order (ibv_post_recv). It stops at the first bad one: a *PostError has its index; the
// requests before it are posted. wrs and their lists may be reused when PostRecv returns. The memory that they name
// belongs to the device until the completion is polled. Each incoming SEND or RDMA WRITE with immediate consumes one
// receive, in order. On UD the first 40 bytes hold the GRH. It allocates nothing and is safe for concurrent use.
//
// Errors: EINVAL if the QP is in RESET, has an SRQ, or the request has too many SGEs. ENOMEM if the receive queue is
// full. In ERR requests are flushed.
func (qp *QP) PostRecv(wrs ...RecvWR) error {
	const op = "post_recv"
	if s := qp.word.Load() & stateMask; s < uint64(QPSInit) || s > uint64(QPSErr) {
		return &PostError{Err: qp.stateError(op)}
	}
	if !qp.hasRQ {
		return &PostError{Err: qp.noRQ(op)}
	}
	return postRecv(op, qp, qp.drv, noescape(wrs), qp.most.recvSGE)
}

// noRQ returns the error of PostRecv on a QP without a receive queue of its own.
func (qp *QP) noRQ(op string) error {
	if qp.init.SRQ != nil {
		return newError(op, qp.obj(), EINVAL, "the QP has an SRQ; post to the SRQ")
	}
	return newError(op, qp.obj(), EINVAL, "the QP has no receive queue; XRC_RECV QPs deliver to SRQs of type XRC")
}

// receiver is a driver's QP or SRQ.
type receiver interface {
	PostRecv(wrs []RecvWR) (int, error)
}

// postRecv is the common part of the post calls of QP, SRQ and WQ.
func postRecv(op string, owner named, drv receiver, wrs []RecvWR, maxSGE uint32) error {
	good := len(wrs)
	for i := range wrs {
		if uint32(len(wrs[i].SGList)) > maxSGE {
			good = i
			break
		}
	}
	if good > 0 {
		n, err := drv.PostRecv(wrs[:good])
		if err != nil || n < good {
			return &PostError{Index: n, Err: driverError(op, owner.obj(), orFull(err))}
		}
	}
	if good < len(wrs) {
		return &PostError{Index: good, Err: newError(op, owner.obj(), EINVAL, "%d SGEs: must be 0 to %d",
			len(wrs[good].SGList), maxSGE)}
	}
	return nil
}

// noescape hides from escape analysis that s is passed to a driver, so that a caller's variables may stay on its
// stack. The call of a driver goes through an interface, for which the compiler assumes that the arguments escape. A
// driver must therefore keep the slice, and slices inside of its elements, on the stack of its own goroutine (see
// DriverCQ.Poll and DriverQP.PostSend).
//
// nocheckptr keeps instrumentation, whose calls could move the stack, out of the space between the two conversions.
//
//go:nocheckptr
func noescape[T any](s []T) []T {
	x := uintptr(unsafe.Pointer(unsafe.SliceData(s)))
	return unsafe.Slice(*(**T)(unsafe.Pointer(&x)), len(s))
}
