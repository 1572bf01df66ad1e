package transport

import (
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// RoCEv2 congestion management (IBTA volume 1, annex A17.9.3). A switch whose queue is long marks packets that are ECN
// capable: it writes "congestion experienced" into their IP header. The QP that receives such a packet sends a
// congestion notification packet (CNP) to the QP that has sent it, at most one in cnpInterval. The QP that receives a
// CNP sends less: an RC or XRC QP reduces its window, and the budget that it shares with the others to this peer.
//
// The responder of a READ has no window. So a requester whose READ responses are marked requests less, too.
//
// Packets are ECN capable if the program gives their path a traffic class whose lowest two bits are 1 or 2.

// congestion is the state of a QP.
type congestion struct {
	tellAt int64 // no other CNP is due before
	easeAt int64 // the window is not reduced again before
}

// cnpInterval is the shortest time between two CNPs of a QP, and between two reductions of its window. DCQCN (SIGCOMM
// 2015) has this value.
const cnpInterval = int64(50 * time.Microsecond)

// onMarked handles the mark of a packet that a switch has marked. response: it answers a request of this QP.
func (qp *QP) onMarked(now int64, response bool) {
	c := &qp.congestion
	qp.Counters.MarkedPackets++
	if now >= c.tellAt {
		qp.resp.cnpDue, c.tellAt = true, now+cnpInterval
	}
	if response && qp.req.reads > 0 {
		qp.req.ease(now)
	}
}

// onCNP handles a congestion notification.
func (qp *QP) onCNP(now int64) {
	if !qp.req.reliable || qp.req.sq == nil {
		qp.Counters.CNPIgnored++
		return
	}
	qp.Counters.CNPHandled++
	qp.req.ease(now)
}

// ease reduces window and budget, at most once per cnpInterval and per round trip: the packets that were sent before
// the last reduction prove nothing about the present window.
func (r *requester) ease(now int64) {
	c := &r.qp.congestion
	if now < c.easeAt {
		return
	}
	wait := max(cnpInterval, r.rtt.smoothed)
	c.easeAt = now + wait
	r.win.ease(r.windowFloor())
	if r.win.shared != nil {
		r.win.shared.late(now, now-wait, false)
	}
}

// sendCNP appends the CNP that is due. It returns false if there is no room.
func (qp *QP) sendCNP(tx *link.TxBatch) bool {
	b := tx.Alloc(qp.path, qp.attr.DestQPN, wire.BTHLen+wire.CNPReserved)
	if b == nil {
		return false
	}
	clear(b[wire.BTHLen:])
	h := wire.BTH(b)
	h.Put(wire.CNP, 0, qp.attr.PKey, qp.attr.DestQPN, 0, qp.baseFlags)
	h.SetBECN()
	qp.resp.cnpDue = false
	qp.Counters.CNPSent++
	return true
}
