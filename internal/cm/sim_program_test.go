package cm

import (
	"fmt"

	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// handle is the program above a machine, as rdmacm would be.
func (h *host) handle(e Event) {
	switch e.Type {
	case EventREQ:
		h.onRequest(e)
		return
	case EventSIDRREQ:
		h.onLookup(e)
		return
	}
	c := e.ID.Context.(*conn)
	if want := stateAfter[e.Type]; !e.ID.State().is(want...) {
		c.wrong("event %v leaves the state %v, want %v", e.Type, e.ID.State(), want)
	}
	switch e.Type {
	case EventREP:
		c.onReply(e)
	case EventEstablished:
		c.up()
	case EventREJ:
		c.onRefusal(e)
	case EventREQTimeout, EventREPTimeout:
		if e.Type == EventREPTimeout && c.peer != nil { // both ends lost too much within halfOpenTime
			c.late, c.peer.late = true, true
		}
		c.decide("unreachable")
		c.destroy()
	case EventDREQ, EventDREP, EventDREQTimeout:
		c.down(e.Type)
	case EventTimewaitExit:
		c.exits++
		c.destroy()
	case EventSIDRREP:
		r := cmmsg.SIDRREP(e.Msg.Data())
		if h.w.mode != chaos && r.Status() == cmmsg.SIDRSuccess && (r.QPN() != 77 || r.QKey() != 0x01234567) {
			c.wrong("look-up answered with QP %#x, Q_Key %#x", r.QPN(), r.QKey())
		}
		c.decide("looked up")
		c.destroy()
	case EventSIDRTimeout:
		c.decide("unreachable")
		c.destroy()
	default:
		c.wrong("event %v", e.Type)
	}
}

// stateAfter is the state in which an event finds its ID.
var stateAfter = map[EventType][]State{
	EventREP:          {StateREPRcvd},
	EventEstablished:  {StateEstablished},
	EventREJ:          {StateIdle, StateTimewait},
	EventDREQ:         {StateDREQRcvd, StateTimewait},
	EventDREP:         {StateTimewait},
	EventDREQTimeout:  {StateTimewait},
	EventTimewaitExit: {StateIdle},
	EventREQTimeout:   {StateIdle},
	EventREPTimeout:   {StateIdle},
	EventSIDRREP:      {StateIdle},
	EventSIDRTimeout:  {StateIdle},
}

// onRequest answers a request: now, soon, or so late that the peer gets an MRA.
func (h *host) onRequest(e Event) {
	w := h.w
	c := h.newConn("passive")
	c.id, e.ID.Context = e.ID, c
	c.private = fmt.Appendf(nil, "from %s", c.name)
	for _, a := range w.conns {
		if a.id.active && a.id.LocalID() == e.ID.RemoteID() && a.peer == nil {
			a.peer, c.peer = c, a
		}
		if a.id.active && a.id.LocalID() == e.ID.RemoteID() && a.late {
			c.late = true // the REJ was lost, and the REQ came again
		}
	}
	if w.mode == calm && c.peer == nil && !c.late {
		c.wrong("a request comes twice")
	}
	w.in(w.random(second), func() { h.m.Taken(e.ID) })
	when := w.random(second)
	if w.rng.IntN(4) == 0 {
		when = w.random(40 * second)
	}
	if w.rng.IntN(5) == 0 {
		c.refuse = cmmsg.RejConsumer
	}
	w.in(when, func() {
		switch {
		case c.id.destroyed:
		case w.mode == chaos && w.rng.IntN(8) == 0: // forgotten, until the end
		case w.mode == chaos && w.rng.IntN(8) == 0:
			c.destroy()
		case c.refuse != 0:
			c.reject()
		default:
			c.accept()
		}
	})
}

func (c *conn) accept() {
	a := c.id.Attrs()
	p := &AcceptParams{
		QPN: c.h.qpn(), ResponderResources: min(a.MaxDestRdAtomic, 8), InitiatorDepth: min(a.MaxRdAtomic, 8), RNRRetry: 3,
		Private: c.private,
	}
	c.call("accept", func(m *Machine, now int64, out *Batch) error { return m.Accept(now, c.id, p, out) })
	if c.h.w.mode == chaos && c.h.w.rng.IntN(8) == 0 {
		c.h.w.in(c.h.w.random(5*second), c.destroy)
	}
}

func (c *conn) reject() {
	c.call("reject", func(m *Machine, now int64, out *Batch) error {
		return m.Reject(now, c.id, c.refuse, nil, c.private, out)
	})
	if c.outcome == "" {
		c.decide("rejected")
	}
	c.destroy()
}

// onReply completes the connection, in most cases at once.
func (c *conn) onReply(e Event) {
	w := c.h.w
	c.answered = append([]byte{}, e.Msg.Private()...)
	when := int64(0)
	if w.rng.IntN(4) == 0 {
		when = w.random(20 * second)
	}
	w.in(when, func() {
		switch {
		case c.id.destroyed:
		case w.mode == chaos && w.rng.IntN(8) == 0:
			c.refuse = cmmsg.RejConsumer
			c.reject()
		case w.mode == chaos && w.rng.IntN(8) == 0:
			c.destroy()
		default:
			var out Batch
			if err := c.h.m.Establish(c.id, nil, &out); err == nil {
				c.up()
			} else if w.mode == calm && !c.late {
				c.wrong("%v", err)
			}
			c.h.post(&out)
		}
	})
}

// onRefusal may also end a connection that was up.
func (c *conn) onRefusal(e Event) {
	c.answered = append([]byte{}, e.Msg.Private()...)
	if c.outcome == "" {
		c.decide("rejected")
	} else if c.established > 0 && c.ended == 0 {
		c.ended++
	}
	if c.h.w.mode == calm && !c.late && c.id.active && cmmsg.REJ(e.Msg.Data()).Reason() != cmmsg.RejConsumer {
		c.wrong("%v", e.Msg)
	}
	if e.ID.State() == StateIdle {
		c.destroy()
	}
}

// up is an established connection: it will be closed by one end, or by both at the same time.
func (c *conn) up() {
	w := c.h.w
	c.established++
	c.decide("established")
	c.attrs = c.id.Attrs()
	if c.id.active || w.rng.IntN(2) == 0 {
		w.in(w.random(3*second), c.close)
	}
}

func (c *conn) close() {
	switch {
	case c.id.destroyed || c.id.State() != StateEstablished:
		return
	case c.h.w.mode == chaos && c.h.w.rng.IntN(4) == 0:
		c.destroy()
		return
	}
	c.closing = true
	c.call("disconnect", func(m *Machine, now int64, out *Batch) error { return m.Disconnect(now, c.id, nil, out) })
}

// down is the end of a connection, which comes once. The peer of the end that disconnects answers after a while.
func (c *conn) down(why EventType) {
	w := c.h.w
	c.ended++
	if c.established == 0 { // the RTU was lost, and the peer has changed its mind already
		c.established++
		c.decide("established")
		c.attrs = c.id.Attrs()
	}
	if why == EventDREQTimeout && w.mode == calm {
		c.wrong("%v", why)
	}
	if c.id.State() != StateDREQRcvd {
		return
	}
	w.in(w.random(3*second), func() {
		switch {
		case c.id.destroyed:
		case w.mode == chaos && w.rng.IntN(4) == 0: // never answers
		case w.mode == chaos && w.rng.IntN(4) == 0:
			c.destroy()
		default:
			c.call("answer", func(m *Machine, now int64, out *Batch) error { return m.Disconnect(now, c.id, nil, out) })
		}
	})
}

func (h *host) onLookup(e Event) {
	w := h.w
	c := h.newConn("looked up")
	c.id, e.ID.Context = e.ID, c
	w.in(w.random(6*second), func() {
		if c.id.destroyed {
			return
		}
		if w.mode == chaos && w.rng.IntN(4) == 0 {
			c.destroy()
			return
		}
		c.decide("answered")
		c.call("answer", func(m *Machine, now int64, out *Batch) error {
			return m.Answer(now, c.id, &AnswerParams{QPN: 77, QKey: 0x01234567}, out)
		})
		c.destroy()
	})
}
