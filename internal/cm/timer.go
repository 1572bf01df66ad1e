package cm

import (
	"math"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// Never is a deadline that does not come.
const Never = math.MaxInt64

// timersPerCall bounds the work of one OnTimer.
const timersPerCall = 64

// pending is a message that is repeated until an answer comes.
type pending struct {
	next     *pending
	interval int64
	left     uint8 // repetitions left
	early    uint8 // repetitions left within the first interval; see hasten
	due      int64 // end of the first interval
	rest     int64 // the wait after the last repetition is longer by this time
	extended bool  // an MRA has extended the present wait
	mad      [wire.MADLen]byte
}

// keep arms the repetition of msg, which has just been composed. It replaces the message that was repeated before.
func (m *Machine) keep(now int64, id *ID, msg cmmsg.Msg, interval int64, retries uint8) {
	m.stopWaiting(id)
	p := m.pending()
	copy(p.mad[:], msg)
	p.interval, p.left, p.early, p.rest = interval, retries, 0, 0
	id.pend = p
	m.arm(id, now+interval)
}

// earlyRepeats is the number of repetitions within the first interval, after 1/8 and 3/8 of it.
const earlyRepeats = 2

// hasten repeats the message of keep, which has just been sent, within its first interval too. The usual interval is
// 4.6 s: a connection would need that long whenever the network loses one packet. At most half of the repetitions are
// early; the last wait is longer instead, so the machine gives up at the same time.
func (m *Machine) hasten(now int64, id *ID) {
	p := id.pend
	if p.early = min(earlyRepeats, p.left/2); p.early > 0 {
		p.left -= p.early
		p.rest, p.due = int64(p.early)*p.interval, now+p.interval
		m.arm(id, now+p.interval/8)
	}
}

// last returns the length of a wait, which is longer if it is the last one.
func (p *pending) last(wait int64) int64 {
	if p.left == 0 {
		return wait + p.rest
	}
	return wait
}

// repeat sends the message of p again and arms the next repetition.
func (m *Machine) repeat(now int64, id *ID, p *pending, out *Batch) {
	next := p.due
	switch {
	case p.early > 1:
		p.early--
		next = now + p.interval/4
	case p.early == 1:
		p.early--
	default:
		p.left--
		p.extended = false
		next = now + p.last(p.interval)
	}
	m.Counters.TxRetries.add(cmmsg.Msg(p.mad[:]).Kind())
	m.resend(id, out)
	if id.halfOpen {
		next = min(next, id.until)
	}
	m.arm(id, next)
}

// pending returns a free pending, or a new one.
func (m *Machine) pending() *pending {
	p := m.free
	if p == nil {
		return &pending{}
	}
	m.free, p.next, p.extended = p.next, nil, false
	m.freeLen--
	return p
}

// stopWaiting ends repetition and the timer: an answer has come, or is not needed any more.
func (m *Machine) stopWaiting(id *ID) {
	m.change(id)
	m.disarm(id)
	m.leaveHalfOpen(id)
	p := id.pend
	if p == nil {
		return
	}
	id.pend = nil
	if m.freeLen < 256 {
		p.next, m.free = m.free, p
		m.freeLen++
	}
}

// extend extends the present wait, once for each time that the message was sent.
func (m *Machine) extend(now int64, id *ID, by int64) {
	if p := id.pend; !p.extended && !id.peerDied {
		p.left += p.early
		p.rest -= int64(p.early) * p.interval
		p.extended, p.early = true, 0
		m.arm(id, now+p.last(by))
		id.until = max(id.until, now+by+halfOpenTime)
	}
}

// resend sends the message of id again.
func (m *Machine) resend(id *ID, out *Batch) {
	mail := out.add(&id.path.Path)
	mail.MAD = id.pend.mad
	m.Counters.Tx.add(cmmsg.Msg(mail.MAD[:]).Kind())
}

// NextDeadline is the time at which OnTimer has something to do, or Never.
func (m *Machine) NextDeadline() int64 {
	if len(m.timers) == 0 {
		return m.nextRefusal()
	}
	return min(m.timers[0].deadline, m.nextRefusal())
}

// OnTimer does what is due at now, up to a limit: the caller repeats it while NextDeadline is not later than now.
func (m *Machine) OnTimer(now int64, out *Batch) {
	m.refuseWaiting(now, out)
	for range timersPerCall {
		if m.NextDeadline() > now {
			return
		}
		m.expire(now, m.timers[0].id, out)
	}
}

// expire handles id's deadline. It arms or disarms the timer, or retires the ID.
func (m *Machine) expire(now int64, id *ID, out *Batch) {
	if id.peerDied && id.state.is(StateREPSent, StateMRAREPRcvd) {
		m.lostRTU(now, id, out)
		return
	}
	if id.halfOpen && now >= id.until {
		m.timeOut(id, EventREPTimeout, out)
		return
	}
	if p := id.pend; p != nil && p.left > 0 {
		m.repeat(now, id, p, out)
		return
	}
	switch id.state {
	case StateREQSent, StateMRAREQRcvd:
		m.timeOut(id, EventREQTimeout, out)
	case StateREPSent, StateMRAREPRcvd:
		m.timeOut(id, EventREPTimeout, out)
	case StateDREQSent:
		m.enterTimewait(now, id)
		out.report(EventDREQTimeout, id, nil)
	case StateEstablished:
		m.stopWaiting(id)
		id.lap = lapIdle
		out.report(EventLAPTimeout, id, nil)
	case StateTimewait:
		m.retire(id)
		out.report(EventTimewaitExit, id, nil)
	case StateSIDRREQSent:
		m.retire(id)
		out.report(EventSIDRTimeout, id, nil)
	default: // stateAnswered; no other state has a timer
		m.dropAnswer(id)
	}
}

// timeOut ends an ID whose peer does not answer, and sends a REJ in case the peer is only slow.
func (m *Machine) timeOut(id *ID, event EventType, out *Batch) {
	m.rejectTimeout(id, out)
	m.retire(id)
	out.report(event, id, nil)
}

// timers is a heap of IDs by deadline. Most of them are in TIMEWAIT, of which there are very many if connections are
// short, so the deadlines are here and not in the IDs.
type timers []timer

type timer struct {
	deadline int64
	id       *ID
}

func (m *Machine) arm(id *ID, deadline int64) {
	if id.slot == 0 {
		m.timers = append(m.timers, timer{})
		id.slot = int32(len(m.timers))
	}
	m.timers.place(int(id.slot)-1, timer{deadline, id})
}

func (m *Machine) disarm(id *ID) {
	if id.slot == 0 {
		return
	}
	i, last := int(id.slot)-1, len(m.timers)-1
	moved := m.timers[last]
	m.timers[last] = timer{}
	m.timers = m.timers[:last]
	if i != last {
		m.timers.place(i, moved)
	}
	id.slot = 0
}

// place puts a timer where the heap's order wants it. Index i is vacant.
func (t timers) place(i int, w timer) {
	for i > 0 && w.deadline < t[(i-1)/2].deadline {
		t.put(i, t[(i-1)/2])
		i = (i - 1) / 2
	}
	for {
		least := 2*i + 1
		if least+1 < len(t) && t[least+1].deadline < t[least].deadline {
			least++
		}
		if least >= len(t) || w.deadline <= t[least].deadline {
			break
		}
		t.put(i, t[least])
		i = least
	}
	t.put(i, w)
}

// put stores a timer at index i.
func (t timers) put(i int, w timer) {
	t[i] = w
	w.id.slot = int32(i + 1)
}
