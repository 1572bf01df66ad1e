package rdmacm

import (
	"errors"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/cm"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
	"github.com/verbena-rdma/verbena/verbs"
)

// accept is Accept up to the answer. id.mu is held.
func (id *ID) accept(op string, p *ConnParam) error {
	if err := id.asked(op); err != nil {
		return err
	}
	if err := id.checkParam(op, p); err != nil {
		return err
	}
	if id.qpType == verbs.QPTypeUD {
		return id.answerLookup(op, p)
	}
	a := cm.AcceptParams{ResponderResources: id.respRes, InitiatorDepth: id.initDepth, RNRRetry: id.attrs.RNRRetry}
	if p == nil {
		p = &ConnParam{}
	} else {
		if err := id.checkPrivate(op, len(p.PrivateData), cmmsg.KindREP.PrivateLen()); err != nil {
			return err
		}
		if p.ResponderResources != MaxRespRes {
			a.ResponderResources = p.ResponderResources
		}
		if p.InitiatorDepth != MaxInitDepth {
			a.InitiatorDepth = p.InitiatorDepth
		}
		a.RNRRetry, a.FlowControl, a.Private = min(7, p.RNRRetryCount), p.FlowControl, p.PrivateData
	}
	a.QPN, a.SRQ = id.ownQP(p)
	a.ECE = cmmsg.ECE{Vendor: id.ece.VendorID, Options: id.ece.Options}
	id.respRes, id.initDepth = a.ResponderResources, a.InitiatorDepth
	var err error
	if id.qp != nil {
		err = id.connectQP()
	}
	if err == nil {
		err = id.answer(op, func(m *cm.Machine, now int64, out *cm.Batch) error { return m.Accept(now, id.cmid, &a, out) })
	}
	if err != nil {
		id.failQP()
		_ = id.dev.do(func(m *cm.Machine, now int64, out *cm.Batch) error {
			return m.Reject(now, id.cmid, cmmsg.RejConsumer, nil, nil, out)
		})
		id.over = true
	}
	return id.because(op, err)
}

// asked checks that a request waits for an answer.
func (id *ID) asked(op string) error {
	if err := id.in(op, stConnect); err != nil {
		return err
	}
	var s cm.State
	if id.cmid != nil {
		_ = id.dev.do(func(*cm.Machine, int64, *cm.Batch) error {
			s = id.cmid.State()
			return nil
		})
	}
	switch s {
	case cm.StateREQRcvd, cm.StateMRAREQSent, cm.StateSIDRREQRcvd:
		return nil
	}
	return &Error{Op: op, Obj: id.obj(), Errno: syscall.EINVAL, Detail: "the connection is " + s.String(), Err: errNoRequest}
}

// answer has the machine answer. The peer may have given up since asked, which then says so.
func (id *ID) answer(op string, f func(m *cm.Machine, now int64, out *cm.Batch) error) error {
	err := id.dev.do(f)
	if err == nil {
		return nil
	}
	if gone := id.asked(op); gone != nil {
		return gone
	}
	return err
}

// errNoRequest says that there is nothing to answer: this side has answered, or the peer has given up.
var errNoRequest = errors.New("no request waits for an answer")

// answerLookup tells the peer which QP serves it.
func (id *ID) answerLookup(op string, p *ConnParam) error {
	a := cm.AnswerParams{QKey: UDPQKey, ECE: cmmsg.ECE{Vendor: id.ece.VendorID, Options: id.ece.Options}}
	if p == nil {
		p = &ConnParam{}
	}
	if err := id.checkPrivate(op, len(p.PrivateData), cmmsg.KindSIDRREP.PrivateLen()); err != nil {
		return err
	}
	a.Private = p.PrivateData
	a.QPN, _ = id.ownQP(p)
	return id.because(op, id.answer(op, func(m *cm.Machine, now int64, out *cm.Batch) error { return m.Answer(now, id.cmid, &a, out) }))
}

// Reject answers a request with no (rdma_reject), called for the new ID of EventConnectRequest, which must be closed afterwards. The
// peer gets EventRejected with reason 28 and the private data, at most 148 bytes; whoever looked up datagrams gets
// EventUnreachable with status 2, and 136 bytes. EINVAL for more, or if no request waits.
func (id *ID) Reject(private []byte) error { return id.reject("reject", cmmsg.RejConsumer, private) }

// RejectECE is Reject for the reason that the peer's ECE does not suit (rdma_reject_ece), reason 35.
func (id *ID) RejectECE(private []byte) error {
	return id.reject("reject_ece", cmmsg.RejVendorNotSupported, private)
}

func (id *ID) reject(op string, reason cmmsg.Reason, private []byte) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.in(op, stConnect); err != nil {
		return err
	}
	if id.cmid == nil {
		return id.fail(op, syscall.EINVAL, "no request waits for an answer")
	}
	kind := cmmsg.KindREJ
	if id.qpType == verbs.QPTypeUD {
		kind = cmmsg.KindSIDRREP
	}
	if err := id.checkPrivate(op, len(private), kind.PrivateLen()); err != nil {
		return err
	}
	err := id.dev.do(func(m *cm.Machine, now int64, out *cm.Batch) error {
		if id.qpType == verbs.QPTypeUD {
			return m.Answer(now, id.cmid, &cm.AnswerParams{Status: cmmsg.SIDRReject, Private: private}, out)
		}
		return m.Reject(now, id.cmid, reason, nil, private, out)
	})
	id.over = id.over || err == nil
	return id.because(op, err)
}

// SetLocalECE sets what the peer will be told of this side's abilities with Connect or Accept (rdma_set_local_ece). EINVAL for a
// vendor ID of more than 24 bits.
func (id *ID) SetLocalECE(e ECE) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if e.VendorID > 0xFFFFFF {
		return id.fail("set_local_ece", syscall.EINVAL, "vendor ID %#x has more than 24 bits", e.VendorID)
	}
	id.ece = e
	return nil
}

// RemoteECE is what the peer told of its abilities, zero if nothing (rdma_get_remote_ece).
func (id *ID) RemoteECE() ECE { return locked(id, func() ECE { return id.peerECE }) }

// taken frees the place that the request had in its listener's backlog.
func (id *ID) taken() {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.cmid == nil || id.state == stDestroying {
		return
	}
	_ = id.dev.do(func(m *cm.Machine, _ int64, _ *cm.Batch) error {
		m.Taken(id.cmid)
		return nil
	})
}
