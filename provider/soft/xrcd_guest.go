package soft

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/verbena-rdma/verbena/internal/engine"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/psn"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/xrcd"
)

// guests are those of the QPs of another member, which has dialed the connection. One goroutine uses them.
type guests struct {
	*xrcd.Conn
	domain *domain
	byQPN  map[uint32]*guest
}

// guest is the QP of another process in this one. It is its own transport.Relay, which leads to its home, and reports
// its events there.
type guest struct {
	engine.QP
	in   *guests
	qpn  uint32
	life uint32

	raised transport.Event // with the failure; the shard's
}

// serve handles the messages of the home until the connection ends.
func (g *guests) serve() {
	defer func() {
		g.Close()
		for _, q := range g.byQPN {
			q.Destroy()
		}
	}()
	for {
		b, err := g.Receive()
		if err != nil {
			return
		}
		kind, qpn, life, body, ok := parseHead(b)
		if !ok || !g.handle(kind, qpn, life, body) {
			return
		}
	}
}

// handle handles a message. It returns false if the home breaks the protocol.
func (g *guests) handle(kind message, qpn, life uint32, body []byte) bool {
	q := g.byQPN[qpn]
	if kind == msgAttr {
		return g.setAttr(q, qpn, life, body)
	}
	if q == nil || q.life != life {
		return true // a guest that could not be made has said so
	}
	switch kind {
	case msgTurn:
		t, p, ok := parseTurn(body)
		if !ok {
			return false
		}
		q.With(func(now int64, qp *transport.QP) {
			qp.TakeTurn(t)
			qp.OnPacket(now, &p)
		})
	case msgPacket, msgRepeat:
		p, ok := parsePacket(body)
		if !ok {
			return false
		}
		q.With(func(now int64, qp *transport.QP) {
			if kind == msgRepeat {
				qp.OnRepeat(now, &p)
			} else {
				qp.OnPacket(now, &p)
			}
		})
	case msgAged:
		if len(body) != 4 {
			return false
		}
		q.With(func(_ int64, qp *transport.QP) { qp.OnAged(binary.BigEndian.Uint32(body) & psn.Mask) })
	case msgEnd:
		if len(body) != 1 {
			return false
		}
		delete(g.byQPN, qpn)
		q.end(body[0] != 0)
	}
	return true
}

// The numbers that a guest can have.
const (
	minGuestQPN = 0x10
	maxGuestQPN = 1<<24 - 2
)

// setAttr makes a guest, or changes the attributes of one.
func (g *guests) setAttr(q *guest, qpn, life uint32, body []byte) bool {
	var a guestAttr
	d := g.domain
	if json.Unmarshal(body, &a) != nil || qpn < minGuestQPN || qpn > maxGuestQPN {
		return false
	}
	if !a.valid(len(d.dev.ports), d.dev.has) {
		(&guest{in: g, qpn: qpn, life: life}).failed(&guestFailure{
			Status: transport.RemOpErr,
			Reason: fmt.Sprintf("the device of the SRQ's process does not have the address %v, or another attribute", a.Src),
		})
		return true
	}
	mask := guestMask
	if q == nil {
		if q = g.add(qpn, life); q == nil {
			return true
		}
		for _, s := range [...]transport.State{transport.Init, transport.RTR} {
			t := a.attr(s)
			if q.Modify(&t, guestMask|transport.MaskState) != nil {
				return false
			}
		}
		mask = 0
	} else if q.State() == transport.Err {
		return true
	}
	t := a.attr(transport.RTS)
	if q.Modify(&t, mask|transport.MaskState) != nil {
		return q.State() == transport.Err
	}
	q.With(func(_ int64, qp *transport.QP) { qp.MirrorMigration(link.Path{Src: a.AltSrc, Dst: a.AltDst}, a.Mig) })
	return true
}

// add makes a guest in RESET. It tells the home if that fails.
func (g *guests) add(qpn, life uint32) *guest {
	q, d := &guest{in: g, qpn: qpn, life: life}, g.domain
	err := d.engine.CreateQP(&q.QP, engine.QPInit{
		Type: transport.XRCRecv, Num: qpn, XRCD: d.XRCD, Relay: q, Guest: true, Regions: d.regions, Up: q,
	})
	if err != nil {
		q.failed(&guestFailure{Status: transport.RemOpErr, Reason: "the process of the SRQ has no resources: " + err.Error()})
		return nil
	}
	g.byQPN[qpn] = q
	return q
}

// end removes the guest. The receive that it has taken is flushed, or dropped.
func (q *guest) end(flush bool) {
	if flush {
		_ = q.Modify(&transport.Attr{State: transport.Err}, transport.MaskState)
	}
	q.Destroy()
}

func (q *guest) head(b []byte, kind message) []byte { return putHead(b, kind, q.qpn, q.life) }

// Event notes an event. The last one of a QP that has failed is LAST_WQE_REACHED: then the home learns the failure. The
// home raises that event itself, and COMM_EST.
func (q *guest) Event(ev transport.Event) {
	switch ev {
	case transport.EventQPLastWQEReached:
		f := guestFailure{Status: transport.GeneralErr, Reason: "the QP has failed in the process of an SRQ"}
		if c := q.Cause(); c != nil {
			f = guestFailure{Status: c.Status, Reason: c.Reason, Syndrome: c.Syndrome}
		}
		f.Event = q.raised
		q.failed(&f)
	case transport.EventCommEst:
	default:
		q.raised = ev
	}
}

// StateChanged does nothing; see Event.
func (*guest) StateChanged(transport.State) {}

func (q *guest) failed(f *guestFailure) {
	q.in.Send(func(b []byte) []byte { return putJSON(q.head(b, msgFailed), f) })
}

// Elsewhere reports whether another member has an SRQ.
func (q *guest) Elsewhere(srqn uint32) bool {
	return engine.MemberOf(srqn) != q.in.domain.member.Number()
}

// Pass moves the turn to the home.
func (q *guest) Pass(_ uint32, t transport.Turn, p *link.RxPacket) bool {
	q.in.Send(func(b []byte) []byte { return putTurn(q.head(b, msgTurn), &t, p) })
	return true
}

// Forward sends a packet to the home.
func (q *guest) Forward(p *link.RxPacket) { offerPacket(q.in.Conn, msgPacket, q.qpn, q.life, p) }

// Repeat does nothing: the home asks all processes.
func (q *guest) Repeat(*link.RxPacket) {}

// Aged tells the home which PSN is expected.
func (q *guest) Aged(epsn uint32) {
	q.in.Send(func(b []byte) []byte { return binary.BigEndian.AppendUint32(q.head(b, msgAged), epsn) })
}

// End does nothing: the home ends its guests.
func (q *guest) End(bool) {}
