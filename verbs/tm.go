package verbs

import "encoding/binary"

// OpsWR is an operation on the list of tags of an SRQ of type TM (struct ibv_ops_wr).
type OpsWR struct {
	WRID   uint64 // of the operation's completion
	Opcode OpsWROpcode
	Flags  OpsFlags
	// UnexpectedCnt is how many unexpected messages the program has handled so far, modulo 2^32; it counts with OpsTMSync.
	UnexpectedCnt uint32
	// Handle names the buffer: TagAdd sets it in the slice given to PostOps, TagDel takes it.
	Handle uint32

	// Of TagAdd. A message goes to the buffer if its tag, cut by Mask, is Tag.
	RecvWRID uint64 // of the message's completion
	SGList   []SGE  // read during the call only
	Tag      uint64
	Mask     uint64
}

// OpsWROpcode is an operation on a list of tags (enum ibv_ops_wr_opcode).
type OpsWROpcode uint32

// The operations (IBV_WR_TAG_*).
const (
	TagAdd  OpsWROpcode = 0 // appends a buffer to the list
	TagDel  OpsWROpcode = 1 // removes a buffer from the list
	TagSync OpsWROpcode = 2 // only sets UnexpectedCnt
)

// String returns the name without IBV_WR_.
func (o OpsWROpcode) String() string {
	return nameOf("OpsWROpcode", []string{"TAG_ADD", "TAG_DEL", "TAG_SYNC"}, int64(o))
}

// OpsFlags are the flags of an operation (enum ibv_ops_flags).
type OpsFlags uint32

// The flags (IBV_OPS_*).
const (
	OpsSignaled OpsFlags = 1 << 0 // the operation makes a completion: WCTMAdd, WCTMDel or WCTMSync
	OpsTMSync   OpsFlags = 1 << 1 // UnexpectedCnt is valid
)

// String joins the names without IBV_OPS_.
func (f OpsFlags) String() string {
	return flagsOf([]string{"SIGNALED", "TM_SYNC"}, uint64(f), "|")
}

// PostOps executes operations on the tag list of an SRQ of type TM, in order (ibv_post_srq_ops).
//
// A message received through the SRQ begins with a TMHeader. A message with TMEager goes to the first buffer in the
// list whose tag matches, without its header; it completes as WCTMRecv with WCTMMatch and WCTMDataValid. A message
// longer than its buffer completes with WCLocLenErr and moves the QP to ERR, as on any receive queue. A message
// with TMRndv also has an RVHeader: the device READs the data into the buffer over the same QP and answers with a
// TMFin. It completes twice with the WRID of the buffer: as WCTMRecv with WCTMMatch when it has matched, and with
// WCTMDataValid when the data is there. A message that matches no buffer is unexpected: it goes to a receive of the
// SRQ, including its headers, and completes as WCTMRecv with WCTMSyncReq. TMNoTag and TMFin complete as WCTMNoTag.
// All completions arrive in the SRQ's CQ. WC.TM holds the tag if the CQ has WCExWithTMInfo.
//
// After an unexpected message, added buffers are not matched until the program has confirmed with OpsTMSync that it
// has processed all unexpected messages. WCTMSyncReq in a completion requests that.
//
// A rendezvous completes with WCTMRndvIncomplete if the QP cannot READ: it is not in RTS, has MaxRdAtomic 0, or its
// send queue is full. The buffer then holds the request, including its headers, and the program serves it; if the
// request is longer than the buffer, it is unexpected. Requests longer than TMCaps.MaxRndvHdrSize are always
// unexpected.
//
// A TagDel of a buffer that a message has taken completes with WCTMErr, signaled or not.
//
// Errors are a *PostError with the index of the refused operation; those before it are executed. EINVAL for an
// unknown opcode, unknown flags, a TagSync without OpsTMSync, too many SGEs, a Tag with bits outside Mask, or an SRQ of
// another type. ENOMEM if the list is full, with the buffers whose completions were not polled, or if TMCap.MaxOps
// operations have completions that were not polled.
func (srq *SRQ) PostOps(ops ...OpsWR) error {
	const op = "post_srq_ops"
	srq.mu.Lock()
	defer srq.mu.Unlock()
	switch {
	case srq.lifetime.closed.Load():
		return &PostError{Err: errClosed(op, srq.obj())}
	case srq.tm == (TMCap{}):
		return &PostError{Err: newError(op, srq.obj(), EINVAL, "the SRQ is not of type TM")}
	}
	good := len(ops)
	var bad error
	for i := range ops {
		if bad = srq.checkOp(op, &ops[i]); bad != nil {
			good = i
			break
		}
	}
	if n, err := srq.drv.PostOps(ops[:good]); err != nil {
		return &PostError{Index: n, Err: driverError(op, srq.obj(), err)}
	}
	if bad != nil {
		return &PostError{Index: good, Err: bad}
	}
	return nil
}

// checkOp checks an operation.
func (srq *SRQ) checkOp(op string, wr *OpsWR) error {
	const flags = OpsSignaled | OpsTMSync
	switch {
	case wr.Opcode > TagSync:
		return newError(op, srq.obj(), EINVAL, "unknown operation %v; must be TAG_ADD, TAG_DEL or TAG_SYNC", wr.Opcode)
	case wr.Flags&^flags != 0:
		return newError(op, srq.obj(), EINVAL, "%v: unknown flags %v; must be of %v", wr.Opcode, wr.Flags&^flags, flags)
	case wr.Opcode == TagSync && wr.Flags&OpsTMSync == 0:
		return newError(op, srq.obj(), EINVAL, "TAG_SYNC needs the flag TM_SYNC")
	case wr.Opcode != TagAdd:
		return nil
	case uint32(len(wr.SGList)) > srq.tmSGE:
		return newError(op, srq.obj(), EINVAL, "TAG_ADD: %d SGEs: must be 0 to %d", len(wr.SGList), srq.tmSGE)
	case wr.Tag&^wr.Mask != 0:
		return newError(op, srq.obj(), EINVAL, "TAG_ADD: tag %#x: must have no bits outside mask %#x", wr.Tag, wr.Mask)
	}
	return nil
}

// TMCap returns the sizes for tag matching, at least the requested ones; zero for other types.
func (srq *SRQ) TMCap() TMCap { return srq.tm }

// TMOp is the kind of a message with a TMHeader (enum ibv_tmh_op).
type TMOp uint8

// The kinds of messages (IBV_TMH_*).
const (
	TMNoTag TMOp = 0 // not matched
	TMRndv  TMOp = 1 // asks the receiver to READ the message; an RVHeader follows
	TMFin   TMOp = 2 // the message was read
	TMEager TMOp = 3 // the message follows
)

// String returns the name without IBV_TMH_.
func (o TMOp) String() string {
	return nameOf("TMOp", []string{"NO_TAG", "RNDV", "FIN", "EAGER"}, int64(o))
}

// TMHeader is the header of a message to an SRQ of type TM, 16 bytes (struct ibv_tmh).
type TMHeader struct {
	Op     TMOp
	AppCtx uint32 // chosen by the sender; becomes TMInfo.Priv
	Tag    uint64
}

// RVHeader follows the TMHeader of a TMRndv, 16 bytes: the memory that holds the message (struct ibv_rvh). The memory
// needs AccessRemoteRead.
type RVHeader struct {
	Addr   uint64
	RKey   uint32
	Length uint32 // bytes
}

// Lengths of the headers in bytes.
const (
	TMHeaderLen = 16
	RVHeaderLen = 16
)

// Append appends the header, big endian.
func (h TMHeader) Append(b []byte) []byte {
	b = append(b, byte(h.Op), 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, h.AppCtx)
	return binary.BigEndian.AppendUint64(b, h.Tag)
}

// Append appends the header, big endian.
func (h RVHeader) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, h.Addr)
	b = binary.BigEndian.AppendUint32(b, h.RKey)
	return binary.BigEndian.AppendUint32(b, h.Length)
}

// ParseTMHeader parses the TMHeader of a message and returns the bytes after it. EINVAL if b is shorter than
// TMHeaderLen.
func ParseTMHeader(b []byte) (h TMHeader, rest []byte, err error) {
	if len(b) < TMHeaderLen {
		return h, nil, newError("parse_tmh", "", EINVAL, "%d bytes: must be %d or more", len(b), TMHeaderLen)
	}
	return TMHeader{TMOp(b[0]), binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint64(b[8:])}, b[TMHeaderLen:], nil
}

// ParseRVHeader parses the RVHeader after the TMHeader of a TMRndv and returns the bytes after it. EINVAL if b is
// shorter than RVHeaderLen.
func ParseRVHeader(b []byte) (h RVHeader, rest []byte, err error) {
	if len(b) < RVHeaderLen {
		return h, nil, newError("parse_rvh", "", EINVAL, "%d bytes: must be %d or more", len(b), RVHeaderLen)
	}
	return RVHeader{binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b[12:])},
		b[RVHeaderLen:], nil
}
