package soft

import (
	"encoding/binary"
	"encoding/json"
	"slices"

	"github.com/verbena-rdma/verbena/internal/engine"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/psn"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/xrcd"
)

// feed is the connection of this process to another member of a domain, where the guests of its QPs are.
type feed struct {
	*xrcd.Conn
	domain *domain
}

// home is the transport.Relay of an XRC_RECV QP of this process. The holder of the QP's shard owns its fields.
type home struct {
	t      *target
	life   uint32
	turn   *feed // to the process that has the turn; nil: this one
	guests []hosted
}

// hosted is a process that has a guest, and the attributes that the guest has.
type hosted struct {
	at   *feed
	attr guestAttr
}

// Elsewhere reports whether another member has an SRQ.
func (h *home) Elsewhere(srqn uint32) bool { return engine.MemberOf(srqn) != h.t.in.member.Number() }

// Pass moves the turn to the member with an SRQ.
func (h *home) Pass(srqn uint32, t transport.Turn, p *link.RxPacket) bool {
	f := h.t.in.feedTo(engine.MemberOf(srqn))
	if f == nil {
		return false
	}
	h.host(f)
	h.turn = f
	f.Send(func(b []byte) []byte { return putTurn(h.head(b, msgTurn), &t, p) })
	return true
}

// host makes sure that a process has a guest with the present attributes.
func (h *home) host(f *feed) {
	a := h.t.QP.QP.Attr()
	now := guestAttrOf(&a)
	i := slices.IndexFunc(h.guests, func(g hosted) bool { return g.at == f })
	switch {
	case i < 0:
		h.guests = append(h.guests, hosted{f, now})
	case h.guests[i].attr == now:
		return
	default:
		h.guests[i].attr = now
	}
	f.Send(func(b []byte) []byte { return putJSON(h.head(b, msgAttr), &now) })
}

// attrChanged tells the guests new attributes.
func (h *home) attrChanged() {
	for _, g := range h.guests {
		h.host(g.at)
	}
}

func (h *home) head(b []byte, kind message) []byte { return putHead(b, kind, h.t.Num(), h.life) }

// Forward sends a packet to the process with the turn.
func (h *home) Forward(p *link.RxPacket) {
	if h.turn != nil {
		h.packet(h.turn, msgPacket, p)
	}
}

// Repeat sends a repeated request to all processes with a guest.
func (h *home) Repeat(p *link.RxPacket) {
	for _, g := range h.guests {
		h.packet(g.at, msgRepeat, p)
	}
}

func (h *home) packet(f *feed, kind message, p *link.RxPacket) {
	offerPacket(f.Conn, kind, h.t.Num(), h.life, p)
}

// offerPacket sends a packet, which may be lost.
func offerPacket(c *xrcd.Conn, kind message, qpn, life uint32, p *link.RxPacket) {
	c.Offer(func(b []byte) []byte { return putPacket(putHead(b, kind, qpn, life), p) })
}

// Aged tells the guests which PSN is expected.
func (h *home) Aged(epsn uint32) { h.aged(epsn, nil) }

func (h *home) aged(epsn uint32, except *feed) {
	for _, g := range h.guests {
		if g.at != except {
			g.at.Send(func(b []byte) []byte { return binary.BigEndian.AppendUint32(h.head(b, msgAged), epsn) })
		}
	}
}

// End ends the guests.
func (h *home) End(flush bool) {
	for _, g := range h.guests {
		g.at.Send(func(b []byte) []byte {
			if flush {
				return append(h.head(b, msgEnd), 1)
			}
			return append(h.head(b, msgEnd), 0)
		})
	}
	h.guests, h.turn = nil, nil
	h.life++
}

// feedTo returns the connection to a member, nil if there is no such member.
func (d *domain) feedTo(member int) *feed {
	d.feedsMu.Lock()
	defer d.feedsMu.Unlock()
	if f := d.feeds[member]; f != nil {
		return f
	}
	if d.closing {
		return nil
	}
	c, err := d.member.Dial(member)
	if err != nil {
		return nil
	}
	f := &feed{c, d}
	d.feeds[member] = f
	f.Send(func(b []byte) []byte { return append(b, byte(msgFeed)) })
	d.serving.Go(func() {
		f.receive()
		d.feedsMu.Lock()
		if d.feeds[member] == f {
			delete(d.feeds, member)
		}
		d.feedsMu.Unlock()
		f.lost()
	})
	return f
}

// receive handles the messages of guests until the connection ends.
func (f *feed) receive() {
	defer f.Close()
	for {
		b, err := f.Receive()
		if err != nil {
			return
		}
		kind, qpn, life, body, ok := parseHead(b)
		if !ok {
			return
		}
		t := f.domain.targetOf(qpn)
		if t == nil || t.home == nil {
			continue
		}
		t.With(func(now int64, qp *transport.QP) {
			if t.home.life == life {
				ok = f.handle(t.home, kind, body, now, qp)
			}
		})
		if !ok {
			return
		}
	}
}

// handle handles a message of a guest of h's QP. It returns false if the guest's process breaks the protocol.
func (f *feed) handle(h *home, kind message, body []byte, now int64, qp *transport.QP) bool {
	switch kind {
	case msgTurn:
		turn, p, ok := parseTurn(body)
		if !ok || h.turn != f {
			return false
		}
		h.turn = nil
		qp.TakeTurn(turn)
		qp.OnPacket(now, &p)
	case msgPacket:
		p, ok := parsePacket(body)
		if !ok {
			return false
		}
		qp.OnPacket(now, &p)
	case msgAged:
		if len(body) != 4 {
			return false
		}
		epsn := binary.BigEndian.Uint32(body) & psn.Mask
		qp.OnAged(epsn)
		h.aged(epsn, f)
	case msgFailed:
		var g guestFailure
		if json.Unmarshal(body, &g) != nil || g.Event > transport.EventQPAccessErr {
			return false
		}
		qp.Fail(&transport.Failure{
			Status: g.Status, QPN: qp.Num, DestQPN: qp.Attr().DestQPN, Reason: g.Reason, Syndrome: g.Syndrome, Heard: true,
		}, g.Event)
	}
	return true
}

// lost fails the QPs whose turn the process of f has, since it has ended.
func (f *feed) lost() {
	for _, t := range f.domain.allTargets() {
		h := t.home
		if h == nil {
			continue
		}
		t.With(func(_ int64, qp *transport.QP) {
			h.guests = slices.DeleteFunc(h.guests, func(g hosted) bool { return g.at == f })
			if h.turn == f {
				h.turn = nil
				qp.OnTurnLost()
			}
		})
	}
}
