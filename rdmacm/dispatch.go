package rdmacm

import (
	"bytes"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/cm"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// deliver passes the queued events of the machine to the IDs, in their order. The caller holds no ID's lock.
func (m *manager) deliver() {
	m.delivering.Lock()
	defer m.delivering.Unlock()
	for {
		m.mu.Lock()
		events := m.events.take()
		m.mu.Unlock()
		if len(events) == 0 {
			return
		}
		for i := range events {
			m.dispatch(&events[i])
		}
		m.mu.Lock()
		m.events.giveBack(events)
		m.mu.Unlock()
	}
}

// dispatch passes one event of the machine to the method that handles it: requests to their listener, all others to
// their ID.
func (m *manager) dispatch(ev *cm.Event) {
	switch ev.Type {
	case cm.EventREQ, cm.EventSIDRREQ:
		m.onRequest(ev)
		return
	case cm.EventLAP:
		m.refusePath(ev.ID)
		return
	}
	id := m.owner(ev.ID)
	if id == nil {
		return
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.state == stDestroying || id.state == stRemoved {
		return
	}
	switch ev.Type {
	case cm.EventREP: // active side
		id.onReply(ev.Msg)
	case cm.EventSIDRREP:
		id.onAnswer(ev.Msg)
	case cm.EventEstablished: // passive side: the RTU
		id.onEstablished()
	case cm.EventREJ: // both sides from here on
		id.onRejected(ev.Msg)
	case cm.EventREQTimeout, cm.EventREPTimeout, cm.EventSIDRTimeout:
		id.onSilence(ev.Type == cm.EventREPTimeout)
	case cm.EventDREQ:
		id.onDREQ()
	case cm.EventDREP:
		id.onDisconnected(0)
	case cm.EventDREQTimeout:
		id.onDisconnected(-int(syscall.ETIMEDOUT))
	case cm.EventSilent:
		id.onSilent()
	case cm.EventTimewaitExit:
		id.push(&Event{Type: EventTimewaitExit})
	}
}

// kept returns what dispatch needs of the message of an event, whose bytes belong to the caller of the machine.
func kept(ev *cm.Event) cmmsg.Msg {
	switch ev.Type {
	case cm.EventEstablished, cm.EventDREQ, cm.EventDREP:
		return nil
	}
	return bytes.Clone(ev.Msg)
}

// refusePath answers a peer that asks for an alternate path: a RoCE connection has the paths that IP finds.
func (m *manager) refusePath(c *cm.ID) { _ = m.answerPath(c, cmmsg.APRUnsupported) }

// eventQueue has two lists: one takes new events while those of the other are handled.
type eventQueue struct{ in, spare []cm.Event }

// push adds an event.
func (q *eventQueue) push(ev cm.Event) { q.in = append(q.in, ev) }

// take takes all events out. The caller returns the list with giveBack.
func (q *eventQueue) take() (events []cm.Event) {
	if len(q.in) > 0 {
		events, q.in, q.spare = q.in, q.spare, nil
	}
	return events
}

// giveBack returns the memory of a list that take returned.
func (q *eventQueue) giveBack(events []cm.Event) {
	clear(events)
	q.spare = events[:0]
}
