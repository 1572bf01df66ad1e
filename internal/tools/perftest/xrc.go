package perftest

import (
	"github.com/verbena-rdma/verbena/verbs"
)

// With -c XRC a QP sends or receives, not both. If both ends send, each has the QPs that send first and as many that
// receive after them; the QPs that send are connected to the peer's second half. Messages arrive in one SRQ, whose
// number the ends exchange with the addresses.

// xrc reports whether the QPs are XRC's.
func (o *options) xrc() bool { return o.typ == verbs.QPTypeXRCSend }

// paired reports whether each end has QPs that send and QPs that receive.
func (o *options) paired() bool { return o.xrc() && (o.duplex || o.lat) }

// reliable reports whether the connection retransmits.
func (o *options) reliable() bool { return o.typ == verbs.QPTypeRC || o.xrc() }

// qpCount returns the number of QPs of this end.
func (o *options) qpCount() int {
	if o.paired() {
		return 2 * o.numQP
	}
	return o.numQP
}

// qpType returns the type of QP i.
func (o *options) qpType(i int) verbs.QPType {
	if o.paired() && i >= o.numQP || o.xrc() && !o.paired() && o.server == "" {
		return verbs.QPTypeXRCRecv
	}
	return o.typ
}

// opposite returns the index of the peer's QP to which QP i is connected.
func (o *options) opposite(i int) int {
	if o.paired() {
		return (i + o.numQP) % (2 * o.numQP)
	}
	return i
}

// senders and receivers return the QPs that post sends, and those for which receives are posted. first is the index of
// the first receiver.
func (r *run) senders() []*end { return r.qps[:r.numQP] }

func (r *run) receivers() (first int, list []*end) {
	if r.paired() {
		first = r.numQP
	}
	return first, r.qps[first:]
}

// createQP creates QP i.
func (r *run) createQP(i int) (*verbs.QP, error) {
	init := r.initAttr()
	if !r.xrc() {
		return r.pd.CreateQP(init)
	}
	init.SRQ = nil
	init.Type, init.RecvCQ, init.Cap.MaxRecvWR, init.Cap.MaxRecvSGE = r.qpType(i), nil, 0, 0
	if init.Type == verbs.QPTypeXRCSend {
		return r.pd.CreateQP(init)
	}
	return r.shared.XRCD().CreateQP(&verbs.QPInitAttr{Type: init.Type})
}

// xrcSRQ sets the attributes of the SRQ for XRC.
func (r *run) xrcSRQ(init *verbs.SRQInitAttr) error {
	domain, err := r.ctx.OpenXRCD(nil)
	if err != nil {
		return err
	}
	r.opened(domain.Close)
	init.Type, init.XRCD, init.CQ = verbs.SRQTypeXRC, domain, r.recvCQ
	return nil
}
