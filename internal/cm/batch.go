package cm

import (
	"fmt"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// Batch collects the output of calls: the caller sends the mail, passes on the events, and empties it with Reset.
type Batch struct {
	Mail   []Mail
	Events []Event
}

// Mail is a datagram to be sent from QP 1 to QP 1 with wire.GSIQKey and Path.PKey.
type Mail struct {
	Path link.Path
	MAD  [wire.MADLen]byte
}

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() {
	clear(b.Events) // drop the IDs
	b.Mail, b.Events = b.Mail[:0], b.Events[:0]
}

// add appends a datagram whose bytes are undefined.
func (b *Batch) add(path *link.Path) *Mail {
	if n := len(b.Mail); n < cap(b.Mail) {
		b.Mail = b.Mail[:n+1]
	} else {
		b.Mail = append(b.Mail, Mail{})
	}
	mail := &b.Mail[len(b.Mail)-1]
	mail.Path = *path
	return mail
}

// Event is an event of an ID.
type Event struct {
	Type EventType
	ID   *ID

	// Listener is the listener of the service ID, in EventREQ and EventSIDRREQ; the ID is new then.
	Listener *Listener

	// Msg is the message that came; nil if none came: after a time-out, at the end of timewait, and after Notify.
	// It aliases the bytes given to OnMAD.
	Msg cmmsg.Msg
}

// EventType is the kind of an event (enum ib_cm_event_type, with values of our own).
type EventType uint8

// The events. The comment has the message that comes along and the ID's new state.
const (
	EventREQ          EventType = iota + 1 // REQ; REQ_RCVD: Accept, Reject or Destroy it
	EventREP                               // REP; REP_RCVD: Establish, Reject or Destroy
	EventEstablished                       // RTU, or nil after Notify; ESTABLISHED
	EventREJ                               // REJ; IDLE or TIMEWAIT
	EventDREQ                              // DREQ; DREQ_RCVD: Disconnect answers. TIMEWAIT if both ends sent one
	EventDREP                              // DREP; TIMEWAIT
	EventTimewaitExit                      // IDLE; the QP may be used again
	EventREQTimeout                        // IDLE; the peer does not answer the REQ
	EventREPTimeout                        // IDLE; the peer does not answer the REP
	EventDREQTimeout                       // TIMEWAIT; the peer does not answer the DREQ
	EventSIDRREQ                           // SIDR_REQ; SIDR_REQ_RCVD: Answer or Destroy it
	EventSIDRREP                           // SIDR_REP; IDLE
	EventSIDRTimeout                       // IDLE; the peer does not answer the SIDR_REQ
	EventLAP                               // LAP; ESTABLISHED: AnswerPath
	EventAPR                               // APR; ESTABLISHED
	EventLAPTimeout                        // ESTABLISHED; the peer does not answer the LAP
	EventSilent                            // ESTABLISHED; the peer does not answer keep-alive: Disconnect or Destroy
)

var eventNames = [...]string{
	"", "REQ", "REP", "ESTABLISHED", "REJ", "DREQ", "DREP", "TIMEWAIT_EXIT", "REQ_TIMEOUT", "REP_TIMEOUT", "DREQ_TIMEOUT",
	"SIDR_REQ", "SIDR_REP", "SIDR_TIMEOUT", "LAP", "APR", "LAP_TIMEOUT", "SILENT",
}

func (t EventType) String() string {
	if t > 0 && int(t) < len(eventNames) {
		return eventNames[t]
	}
	return fmt.Sprintf("event %d", uint8(t))
}

// report appends an event, unless the caller has destroyed the ID.
func (b *Batch) report(t EventType, id *ID, msg cmmsg.Msg) {
	if !id.destroyed {
		b.Events = append(b.Events, Event{Type: t, ID: id, Msg: msg})
	}
}

// compose begins a datagram in the batch.
func (m *Machine) compose(out *Batch, to *link.Path, k cmmsg.Kind, tid uint64) cmmsg.Msg {
	m.Counters.Tx.add(k)
	return cmmsg.Make(out.add(to).MAD[:], k, tid)
}

// ownTID is the transaction ID of messages that id sends first.
func (m *Machine) ownTID(id *ID) uint64 { return uint64(m.cfg.Agent)<<32 | uint64(id.localID) }
