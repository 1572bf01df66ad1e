package verbs

import "encoding/binary"

// OpsWR is an operation on the list of tags of an SRQ of type TM (struct ibv_ops_wr).
type OpsWR struct {
	WRID   uint64 // of the operation's completion
	Opcode OpsWROpcode
	Flags  OpsFlags
	// UnexpectedCnt is how many unexpected messages the program has handled so far, modulo 2^32; it counts with OpsTMSync.
	UnexpectedCnt uint32
	// Handle names the buffer: TagAdd sets it, TagDel takes it.
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
	TagDel  OpsWROpcode = 1 // takes one out
	TagSync OpsWROpcode = 2 // only tells UnexpectedCnt
)

// String is the name without IBV_WR_.
func (o OpsWROpcode) String() string {
	return nameOf("OpsWROpcode", []string{"TAG_ADD", "TAG_DEL", "TAG_SYNC"}, int64(o))
}

// OpsFlags are the flags of an operation (enum ibv_ops_flags).
type OpsFlags uint32

// The flags (IBV_OPS_*).
const (
	OpsSignaled OpsFlags = 1 << 0 // a completion comes, WCTMAdd, WCTMDel or WCTMSync
	OpsTMSync   OpsFlags = 1 << 1 // UnexpectedCnt counts
)

// String joins the names without IBV_OPS_.
func (f OpsFlags) String() string {
	return flagsOf([]string{"SIGNALED", "TM_SYNC"}, uint64(f), "|")
}

// PostOps executes operations on the list of tags of an SRQ of type TM, in order (ibv_post_srq_ops).
//
// A message that a QP of the SRQ receives begins with a TMHeader. One with TMEager goes to the first buffer of the list that
// its tag fits, without its header, and completes as WCTMRecv with WCTMMatch and WCTMDataValid. One with TMRndv has an RVHeader too: the device
// READs the message into the buffer, over the same QP, and answers with a TMFin. A message that fits no buffer is unexpected:
// it goes to a receive of the SRQ, headers and all, and completes as WCTMRecv with WCTMSyncReq. TMNoTag and TMFin complete
// as WCTMNoTag. All completions come in the SRQ's CQ. ReadTMInfo tells the tag.
//
// After an unexpected message, buffers that are added wait until the program has told, with OpsTMSync, that it has seen
// all of them; WCTMSyncReq in a completion asks for it.
//
// A rendezvous completes with WCTMRndvIncomplete when the QP cannot READ by itself, because it is not in RTS, has MaxRdAtomic 0 or no place in
// its send queue: the buffer then holds the request, headers and all, for the program to serve. Requests longer than
// TMCaps.MaxRndvHdrSize are always unexpected.
//
// A TagDel of a buffer that a message has taken completes with WCTMErr, signaled or not.
//
// Errors are a *PostError, with the index of the operation that was refused; those before it are done. EINVAL for a bad opcode,
// flags, too many SGEs, a Tag with bits that Mask lacks, or an SRQ of another type; ENOMEM when the list is full, or when
// TMCap.MaxOps operations have completions that were not polled.
func (srq *SRQ) PostOps(ops ...OpsWR) error {
	const op = "post_srq_ops"
	drv, ok := srq.drv.(TMSRQDriver)
	switch {
	case srq.life.closed.Load():
		return &PostError{Err: errClosed(op, srq.obj())}
	case !ok || srq.tm == (TMCap{}):
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
	if n, err := drv.PostOps(ops[:good]); err != nil {
		return &PostError{Index: n, Err: driverError(op, srq.obj(), err)}
	}
	if bad != nil {
		return &PostError{Index: good, Err: bad}
	}
	return nil
}

// checkOp says what is wrong with an operation.
func (srq *SRQ) checkOp(op string, wr *OpsWR) error {
	const flags = OpsSignaled | OpsTMSync
	switch {
	case wr.Opcode > TagSync:
		return newError(op, srq.obj(), EINVAL, "%v is not an operation; there are TAG_ADD, TAG_DEL and TAG_SYNC", wr.Opcode)
	case wr.Flags&^flags != 0:
		return newError(op, srq.obj(), EINVAL, "%v: unknown flags %v; there are %v", wr.Opcode, wr.Flags&^flags, flags)
	case wr.Opcode == TagSync && wr.Flags&OpsTMSync == 0:
		return newError(op, srq.obj(), EINVAL, "TAG_SYNC without the flag TM_SYNC tells nothing")
	case wr.Opcode != TagAdd:
		return nil
	case uint32(len(wr.SGList)) > srq.tmSGE:
		return newError(op, srq.obj(), EINVAL, "TAG_ADD: %d SGEs are too many; 0 to %d are possible", len(wr.SGList), srq.tmSGE)
	case wr.Tag&^wr.Mask != 0:
		return newError(op, srq.obj(), EINVAL, "TAG_ADD: the tag %#x has bits that the mask %#x lacks: no message could fit", wr.Tag, wr.Mask)
	}
	return nil
}

// TMCap is what TMCap the SRQ was made with, at least what was asked for; zero for other types.
func (srq *SRQ) TMCap() TMCap { return srq.tm }

// createTM makes an SRQ of type TM.
func (srq *SRQ) createTM(a *SRQInitAttrEx) (func(*SRQAttr) error, error) {
	const op = "create_srq_ex"
	ctx := srq.pd.ctx
	drv, ok := srq.pd.drv.(TMSRQCreator)
	if !ok {
		return nil, newError(op, ctx.obj(), EOPNOTSUPP, "the device has no SRQs of type TM")
	}
	ex, err := ctx.QueryDeviceEx()
	if err != nil {
		return nil, err
	}
	for _, c := range []struct {
		name     string
		got, max uint32
	}{{"MaxNumTags", a.TMCap.MaxNumTags, ex.TMCaps.MaxNumTags}, {"MaxOps", a.TMCap.MaxOps, ex.TMCaps.MaxOps}} {
		if c.got < 1 || c.got > c.max {
			return nil, newError(op, ctx.obj(), EINVAL, "type TM: %s %d is not possible; 1 to %d are", c.name, c.got, c.max)
		}
	}
	srq.cq, srq.tmSGE = a.CQ, ex.TMCaps.MaxSGE
	return func(attr *SRQAttr) (err error) {
		srq.drv, err = drv.CreateTMSRQ(srq.cq.drv, attr, &a.TMCap, (*srqUpcalls)(srq))
		srq.tm = a.TMCap
		return err
	}, nil
}

// TMOp says what a message with a TMHeader is (enum ibv_tmh_op).
type TMOp uint8

// The kinds of messages (IBV_TMH_*).
const (
	TMNoTag TMOp = 0 // takes no part in matching
	TMRndv  TMOp = 1 // asks the receiver to READ the message; an RVHeader follows
	TMFin   TMOp = 2 // the message was read
	TMEager TMOp = 3 // the message follows
)

// String is the name without IBV_TMH_.
func (o TMOp) String() string {
	return nameOf("TMOp", []string{"NO_TAG", "RNDV", "FIN", "EAGER"}, int64(o))
}

// TMHeader is what a message to an SRQ of type TM begins with: 16 bytes (struct ibv_tmh).
type TMHeader struct {
	Op     TMOp
	AppCtx uint32 // anything; ReadTMInfo has it as Priv
	Tag    uint64
}

// RVHeader follows the TMHeader of a TMRndv: the memory that holds the message, 16 bytes (struct ibv_rvh). It needs AccessRemoteRead.
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

// ParseTMHeader reads the header of a message, and returns what follows it. EINVAL if the message is shorter.
func ParseTMHeader(b []byte) (h TMHeader, rest []byte, err error) {
	if len(b) < TMHeaderLen {
		return h, nil, newError("parse_tmh", "", EINVAL, "%d bytes are too short for a TMH, which has %d", len(b), TMHeaderLen)
	}
	return TMHeader{TMOp(b[0]), binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint64(b[8:])}, b[TMHeaderLen:], nil
}

// ParseRVHeader reads the header behind that of a TMRndv, and returns what follows it. EINVAL if there is less.
func ParseRVHeader(b []byte) (h RVHeader, rest []byte, err error) {
	if len(b) < RVHeaderLen {
		return h, nil, newError("parse_rvh", "", EINVAL, "%d bytes are too short for an RVH, which has %d", len(b), RVHeaderLen)
	}
	return RVHeader{binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b[12:])}, b[RVHeaderLen:], nil
}
