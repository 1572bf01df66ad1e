package soft

import (
	"sync"
	"time"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/engine"
	"github.com/verbena-rdma/verbena/internal/iwtcp"
	"github.com/verbena-rdma/verbena/internal/link/pcap"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/verbs"
)

const streamsSupported = true

// streams runs the QPs of an iWARP device.
type streams struct {
	iwtcp.Device

	mu sync.Mutex
	// +checklocks:mu
	captured *engine.Engine // while it runs, captures have begun
}

// begin begins the device's capture, with the first QP.
func (s *streams) begin(d *device, e *engine.Engine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.captured != e {
		s.captured = e
		d.startCapture(e)
	}
}

// setTaps has the sinks of a capture see the streams.
func (s *streams) setTaps(sinks []*pcap.Sink) {
	var taps []iwtcp.Tap
	for _, k := range sinks {
		taps = append(taps, k)
	}
	s.SetTaps(taps)
}

// streamQP is the DriverQP of an iWARP device.
type streamQP struct {
	verbs.DriverUnsupported
	*iwtcp.QP
	pd *pd

	mu sync.Mutex // guards attr
	// +checklocks:mu
	attr verbs.QPAttr // as set by Modify since RESET
}

// FindStream returns the QP of a number, nil if the device has none.
func (c *deviceContext) FindStream(num uint32) iwtcp.Starter {
	if q := c.dev.streams.Find(num); q != nil {
		return q
	}
	return nil
}

// createStream makes a QP of an iWARP device.
func (p *pd) createStream(num uint32, init *verbs.QPInitAttr, up verbs.DriverQPEvents) (verbs.DriverQP, error) {
	if err := checkStreamQP(num, init); err != nil {
		return nil, err
	}
	d := p.ctx.dev
	d.streams.begin(d, p.ctx.eng)
	num, err := p.ctx.eng.ReserveNum()
	if err != nil {
		return nil, verbsError("", err)
	}
	q, c := &streamQP{pd: p}, &init.Cap
	in := iwtcp.Config{
		Num: num, PD: p.num, SigAll: init.SigAll,
		SQ:     transport.NewSendQueue(int(c.MaxSendWR), int(c.MaxSendSGE), int(c.MaxInlineData)),
		SendCQ: &cqOf(init.SendCQ).CQ, RecvCQ: &cqOf(init.RecvCQ).CQ,
		Regions: p.ctx.regions, Memory: &p.ctx.dev.inline, Up: qpEvents{up: up},
	}
	if s := driver.Of[*srq](init.SRQ); s != nil {
		in.RQ = s.q
	} else {
		in.RQ = transport.NewRecvQueue(int(c.MaxRecvWR), int(c.MaxRecvSGE), false, p.num)
		c.MaxRecvWR, c.MaxRecvSGE = uint32(in.RQ.Cap()), uint32(in.RQ.MaxSGE())
	}
	c.MaxSendWR, c.MaxSendSGE, c.MaxInlineData = uint32(in.SQ.Free()), uint32(in.SQ.MaxSGE()), uint32(in.SQ.MaxInline())
	if q.QP, err = p.ctx.dev.streams.NewQP(in); err != nil {
		p.ctx.eng.FreeNum(num)
		return nil, verbsError("", err)
	}
	for _, c := range q.cqs() {
		c.Join(&p.ctx.dev.streams.Device)
	}
	return q, nil
}

// cqs are the CQs of the send and the receive queue.
func (q *streamQP) cqs() [2]*engine.CQ {
	return [...]*engine.CQ{q.SendCQ.(*engine.CQ), q.RecvCQ.(*engine.CQ)}
}

// QPN returns the QP's number.
func (q *streamQP) QPN() uint32 { return q.Num }

// Modify changes state and rights.
func (q *streamQP) Modify(attr *verbs.QPAttr, mask verbs.QPAttrMask) error {
	if err := checkStreamModify(attr, mask); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch attr.QPState {
	case verbs.QPSReset:
		q.Reset()
		q.attr = verbs.QPAttr{}
		return nil
	case verbs.QPSErr:
		q.Fail()
	case verbs.QPSInit:
		merge(&q.attr, attr, mask)
		put(mask&verbs.QPAttrPort, &q.attr.PortNum, attr.PortNum)
		if err := q.Init(mr.Access(q.attr.QPAccessFlags) & (mr.RemoteWrite | mr.RemoteRead | mr.RemoteAtomic)); err != nil {
			return verbsError("", err)
		}
	}
	return nil
}

// Query returns attributes and state.
func (q *streamQP) Query() (verbs.QPAttr, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.attr
	a.QPState = verbs.QPState(q.State())
	return a, nil
}

// PostSend copies requests into the send queue and sends them.
func (q *streamQP) PostSend(wrs []verbs.SendWR) (int, error) { return q.post(wrs, false) }

// PostSendAll is PostSend of all requests or none.
func (q *streamQP) PostSendAll(wrs []verbs.SendWR) (int, error) { return q.post(wrs, true) }

func (q *streamQP) post(wrs []verbs.SendWR, all bool) (n int, err error) {
	err = q.QP.PostSend(func(sq *transport.SendQueue) (err error) {
		n, err = fillAll(q, sq, wrs, all)
		return err
	})
	return n, verbsError("", err)
}

// fill copies a request into its slot.
//
// +checklocks:sq.mu
func (q *streamQP) fill(sq *transport.SendQueue, w *transport.SendWQE, wr *verbs.SendWR) error {
	w.WRID, w.Op, w.Flags = wr.WRID, transport.Op(wr.Opcode), transport.SendFlags(wr.Flags)
	w.RemoteAddr, w.RKey = wr.RemoteAddr, wr.RKey
	w.Imm = 0
	switch wr.Opcode {
	case verbs.WRAtomicCmpAndSwp, verbs.WRAtomicFetchAndAdd:
		m := sq.More(w)
		m.CompareAdd, m.Swap = wr.CompareAdd, wr.Swap
	case verbs.WRBindMW:
		sq.More(w).Bind = toBinding(wr)
		w.Length = 0
		return nil
	case verbs.WRSendWithInv, verbs.WRLocalInv:
		w.Imm = wr.InvalidateRKey
	case verbs.WRRDMAWriteWithImm:
		w.Imm = wr.ImmData
	case verbs.WRSend, verbs.WRRDMAWrite, verbs.WRRDMARead:
	default:
		return fail(verbs.EOPNOTSUPP, "%v: not supported by an iWARP device", wr.Opcode)
	}
	if wr.Opcode == verbs.WRRDMARead && len(wr.SGList) > streamRdSGE {
		return fail(verbs.EINVAL, "%v with %d SGEs: must be 0 or %d", wr.Opcode, len(wr.SGList), streamRdSGE)
	}
	return q.pd.fillData(sq, w, wr)
}

// PostRecv appends receives to the QP's own queue.
func (q *streamQP) PostRecv(wrs []verbs.RecvWR) (int, error) {
	if q.State() == transport.Reset {
		return 0, verbsError("", transport.ErrState)
	}
	n, err := postRecv(q.RQ, wrs)
	q.PostedRecv()
	return n, err
}

// SetKeepAlive sets the idle time after which TCP checks the peer.
func (q *streamQP) SetKeepAlive(idle time.Duration) error {
	q.QP.SetKeepAlive(idle)
	return nil
}

// Destroy removes the QP.
func (q *streamQP) Destroy() error {
	q.QP.Destroy()
	for _, c := range q.cqs() {
		c.Leave()
	}
	q.pd.ctx.eng.FreeNum(q.Num)
	return nil
}
