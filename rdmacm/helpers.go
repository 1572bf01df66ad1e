package rdmacm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"
	"unsafe"

	"github.com/verbena-rdma/verbena/verbs"
)

// The helpers of rdma_verbs.h: shorthand for verbs on the objects of an ID. Everything else is done with verbs on QP,
// PD and so on. The completion of a request has its context as WRID.

// RegMsgs registers a buffer for messages (rdma_reg_msgs), and for local use in READs and WRITEs, in the ID's PD. The
// program closes the region. EINVAL if the ID is not bound to a device; otherwise the errors of verbs.PD.RegMR.
func (id *ID) RegMsgs(buf []byte) (*verbs.MR, error) {
	return id.reg("reg_msgs", buf, verbs.AccessLocalWrite)
}

// RegRead registers a buffer that the peer may READ (rdma_reg_read), as RegMsgs does.
func (id *ID) RegRead(buf []byte) (*verbs.MR, error) {
	return id.reg("reg_read", buf, verbs.AccessLocalWrite|verbs.AccessRemoteRead)
}

// RegWrite registers a buffer that the peer may WRITE (rdma_reg_write), as RegMsgs does.
func (id *ID) RegWrite(buf []byte) (*verbs.MR, error) {
	return id.reg("reg_write", buf, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
}

func (id *ID) reg(op string, buf []byte, access verbs.AccessFlags) (*verbs.MR, error) {
	pd := id.PD()
	id.mu.Lock()
	closed := id.state == stDestroying // the PD of the device is still there
	id.mu.Unlock()
	if pd == nil || closed {
		return nil, id.lacking(op, "the ID is not bound to a device: call BindAddr or ResolveAddr first")
	}
	return pd.RegMR(buf, access)
}

// PostRecv posts a receive into buf, which lies in mr, to the ID's QP or SRQ (rdma_post_recv). context becomes the WRID
// of the completion. The memory belongs to the device until the completion is polled. EINVAL if the ID has neither, mr
// is nil, or buf is not inside mr; otherwise the errors of verbs.QP.PostRecv, ENOMEM for a full queue among them.
func (id *ID) PostRecv(context uint64, buf []byte, mr *verbs.MR) error {
	sge, err := id.sge("post_recv", buf, mr)
	if err != nil {
		return err
	}
	return id.PostRecvV(context, sge)
}

// PostRecvV is PostRecv with several buffers (rdma_post_recvv).
func (id *ID) PostRecvV(context uint64, sgl ...verbs.SGE) error {
	wr := verbs.RecvWR{WRID: context, SGList: sgl}
	id.mu.Lock()
	qp, srq := id.qp, id.srq
	id.mu.Unlock()
	switch {
	case srq != nil:
		return srq.PostRecv(wr)
	case qp != nil:
		return qp.PostRecv(wr)
	}
	return id.lacking("post_recv", "the ID has no QP")
}

// PostSend sends the message in buf (rdma_post_send), which lies in mr; with verbs.SendInline mr may be nil. context
// becomes the WRID of the completion, which only a request with verbs.SendSignaled has, or one of a QP with SigAll. The
// memory belongs to the device until then, unless the data is inline. EINVAL if the ID has no QP, mr is nil, or buf is
// not inside mr; otherwise the errors of verbs.QP.PostSend, ENOMEM for a full queue among them.
func (id *ID) PostSend(context uint64, buf []byte, mr *verbs.MR, flags verbs.SendFlags) error {
	return id.post1("post_send", verbs.SendWR{WRID: context, Opcode: verbs.WRSend, Flags: flags}, buf, mr)
}

// PostSendV is PostSend with several buffers (rdma_post_sendv).
func (id *ID) PostSendV(context uint64, flags verbs.SendFlags, sgl ...verbs.SGE) error {
	return id.post("post_send", verbs.SendWR{WRID: context, Opcode: verbs.WRSend, Flags: flags, SGList: sgl})
}

// PostRead reads the peer's memory at (remote, rkey) into buf, which lies in mr (rdma_post_read). Context, ownership
// and errors are those of PostSend.
func (id *ID) PostRead(context uint64, buf []byte, mr *verbs.MR, flags verbs.SendFlags, remote uint64,
	rkey uint32) error {
	return id.post1("post_read", verbs.SendWR{WRID: context, Opcode: verbs.WRRDMARead, Flags: flags, RemoteAddr: remote,
		RKey: rkey}, buf, mr)
}

// PostReadV is PostRead with several buffers (rdma_post_readv).
func (id *ID) PostReadV(context uint64, flags verbs.SendFlags, remote uint64, rkey uint32, sgl ...verbs.SGE) error {
	return id.post("post_read", verbs.SendWR{WRID: context, Opcode: verbs.WRRDMARead, Flags: flags, RemoteAddr: remote,
		RKey: rkey, SGList: sgl})
}

// PostWrite writes buf to the peer's memory at (remote, rkey) (rdma_post_write); buf lies in mr, which may be nil
// with verbs.SendInline. Context, ownership and errors are those of PostSend.
func (id *ID) PostWrite(context uint64, buf []byte, mr *verbs.MR, flags verbs.SendFlags, remote uint64,
	rkey uint32) error {
	return id.post1("post_write", verbs.SendWR{WRID: context, Opcode: verbs.WRRDMAWrite, Flags: flags,
		RemoteAddr: remote, RKey: rkey}, buf, mr)
}

// PostWriteV is PostWrite with several buffers (rdma_post_writev).
func (id *ID) PostWriteV(context uint64, flags verbs.SendFlags, remote uint64, rkey uint32, sgl ...verbs.SGE) error {
	return id.post("post_write", verbs.SendWR{WRID: context, Opcode: verbs.WRRDMAWrite, Flags: flags, RemoteAddr: remote,
		RKey: rkey, SGList: sgl})
}

// PostUDSend sends a datagram to the QP remoteQPN of the host of ah, with the Q_Key UDPQKey (rdma_post_ud_send).
// Context, ownership and errors are those of PostSend.
func (id *ID) PostUDSend(context uint64, buf []byte, mr *verbs.MR, flags verbs.SendFlags, ah *verbs.AH,
	remoteQPN uint32) error {
	return id.post1("post_ud_send", verbs.SendWR{
		WRID: context, Opcode: verbs.WRSend, Flags: flags, AH: ah, RemoteQPN: remoteQPN, RemoteQKey: UDPQKey,
	}, buf, mr)
}

// post1 posts a request with one buffer.
func (id *ID) post1(op string, wr verbs.SendWR, buf []byte, mr *verbs.MR) error {
	if wr.Flags&verbs.SendInline != 0 && mr == nil {
		wr.Inline = buf
		return id.post(op, wr)
	}
	sge, err := id.sge(op, buf, mr)
	if err != nil {
		return err
	}
	wr.SGList = []verbs.SGE{sge}
	return id.post(op, wr)
}

func (id *ID) post(op string, wr verbs.SendWR) error {
	qp := id.QP()
	if qp == nil {
		return id.lacking(op, "the ID has no QP")
	}
	return qp.PostSend(wr)
}

// sge is the SGE of a buffer inside a region.
func (id *ID) sge(op string, buf []byte, mr *verbs.MR) (verbs.SGE, error) {
	if mr == nil {
		return verbs.SGE{}, id.wrong(op, syscall.EINVAL, "no MR: must be the MR of the buffer")
	}
	all := mr.Bytes()
	off := uintptr(unsafe.Pointer(unsafe.SliceData(buf))) - uintptr(unsafe.Pointer(unsafe.SliceData(all)))
	if len(buf) == 0 {
		off = 0
	}
	if off > uintptr(len(all)) || uintptr(len(buf)) > uintptr(len(all))-off {
		return verbs.SGE{}, id.wrong(op, syscall.EINVAL, "the buffer of %d bytes is not inside the MR", len(buf))
	}
	return mr.SGE(int(off), len(buf)), nil
}

// GetSendComp waits for a completion of the ID's sends (rdma_get_send_comp). The CQ of the sends must have a channel,
// as those of CreateQP have, else EINVAL; GetSendComp does not take its events. At a CQ that serves more than the sends
// of one ID, the completion may be another's. A failed request is no error here: WC.Err has it. When ctx is done the
// error wraps ctx's. When the connection of a synchronous ID has ended, and all completions were returned, the error is
// ENOTCONN and io.EOF; the C function waits until the retries of the requests end, or for ever. Disconnect then flushes
// the requests that are left. ETIMEDOUT, not io.EOF, if the peer does not answer keep-alive (SetKeepAlive); EIO if the
// QP has gone to ERR by itself, because of a bad request of the peer for example, even if the peer has left since: an
// event of the context says why too.
func (id *ID) GetSendComp(ctx context.Context) (verbs.WC, error) {
	id.mu.Lock()
	cq, sync := id.sendCQ, id.sync
	if cq == nil && id.qp != nil {
		cq = id.qp.SendCQ()
	}
	id.mu.Unlock()
	return id.connComp(ctx, opSendComp, cq, sync)
}

// GetRecvComp waits for a completion of the ID's receives (rdma_get_recv_comp), as GetSendComp does, and ends as it
// does with the connection.
func (id *ID) GetRecvComp(ctx context.Context) (verbs.WC, error) {
	id.mu.Lock()
	cq, sync := id.recvCQ, id.sync
	if cq == nil && id.qp != nil {
		cq = id.qp.RecvCQ()
	}
	id.mu.Unlock()
	return id.connComp(ctx, "get_recv_comp", cq, sync)
}

// opSendComp names GetSendComp in errors.
const opSendComp = "get_send_comp"

// lateAck is how long a send waits for its acknowledgement after the peer's DREQ, which the network may deliver first.
const lateAck = 20 * time.Millisecond

// connComp is comp, which ends with the connection of a synchronous ID.
func (id *ID) connComp(ctx context.Context, op string, cq *verbs.CQ, sync bool) (verbs.WC, error) {
	if !sync || cq == nil {
		return id.comp(ctx, op, cq)
	}
	var wcs [1]verbs.WC
	if n, err := cq.Poll(wcs[:]); n > 0 || err != nil {
		return wcs[0], err
	}
	for {
		here, forget, over := id.whileConnected(ctx)
		wc, err := id.comp(here, op, cq)
		forget()
		switch {
		case err == nil || !errors.Is(err, context.Canceled) || ctx.Err() != nil:
			return wc, err
		case over:
			if op == opSendComp {
				late, cancel := context.WithTimeout(ctx, lateAck)
				defer cancel()
				if wc, err := id.comp(late, op, cq); err == nil || !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
					return wc, err
				}
			}
			return wc, id.errOver(op)
		}
	}
}

// errOver is the error of a wait for a completion after the end of the connection.
func (id *ID) errOver(op string) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	e := &Error{Op: op, Obj: id.obj(), Errno: syscall.ENOTCONN, Err: io.EOF}
	switch {
	case id.state == stDestroying:
		return id.errClosed(op)
	case id.state == stRemoved:
		e.Detail = deviceGone
	case id.conn == connPeerLeft && id.fault.Load() != 0:
		qpFailed(e, verbs.EventType(id.fault.Load()))
	case id.conn == connPeerLeft:
		e.Detail = peerLeft
	case id.conn == connSilent:
		e.Errno, e.Err, e.Detail = syscall.ETIMEDOUT, nil, peerSilent
	case id.conn == connDisconnected, id.flushed && id.conn == connEstablished:
		e.Detail = "this side has called Disconnect"
	case id.failed != 0 && !id.conn.over():
		qpFailed(e, id.failed)
	default:
		e.Detail = "the connection was not made"
	}
	return e
}

// qpFailed makes e the error of a QP that went to ERR by itself.
func qpFailed(e *Error, event verbs.EventType) {
	e.Errno, e.Err = syscall.EIO, nil
	e.Detail = fmt.Sprintf("the QP has failed: %v (%d)", event, uint32(event))
}

// comp waits for a completion. It does so without the events of the CQ's channel, as one event may stand for several
// completions, and other goroutines may wait at the same CQ: for the other direction, or for another ID.
func (id *ID) comp(ctx context.Context, op string, cq *verbs.CQ) (verbs.WC, error) {
	if cq == nil || cq.Channel() == nil {
		return verbs.WC{}, id.lacking(op, "the ID has no CQ with a channel for that")
	}
	var wcs [1]verbs.WC
	_, err := cq.Wait(ctx, wcs[:])
	return wcs[0], id.waitError(op, err)
}
