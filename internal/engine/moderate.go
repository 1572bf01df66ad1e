package engine

import (
	"time"

	"github.com/verbena-rdma/verbena/internal/transport"
)

// moderation holds a CQ's completion events back (X-CQ-01): an armed CQ raises its event once count completions that it
// waits for have come, or period after the first of them. The shard that took that first one keeps the time, in steps like
// any other timer, so that it works while the program sleeps.
type moderation struct {
	count    uint32 // 0: any number
	period   int64  // ns; 0: no matter how long
	held     uint32 // completions that have come since the CQ was armed
	deadline int64
	listed   uint64 // shards that have the CQ in their list, as bits
}

func (m *moderation) on() bool { return m.count > 1 || m.count == 0 && m.period > 0 }

// forget ends the wait for an event, because it was raised or asked for anew.
func (m *moderation) forget() { m.held, m.deadline = 0, transport.Never }

// Moderate puts moderation in force. An event that was held back is raised at once.
func (cq *CQ) Moderate(count uint16, period time.Duration) {
	cq.mu.Lock()
	m := &cq.mod
	wake := m.held > 0
	if wake {
		cq.armed.Store(uint32(disarmed))
	}
	m.count, m.period = uint32(count), int64(period)
	m.forget()
	cq.mu.Unlock()
	if wake {
		cq.up.Completion()
	}
}

// due counts a completion that the armed CQ waits for and tells whether the event must be raised now. It is called with
// the CQ's lock and the shard of qp held.
func (cq *CQ) due(qp *transport.QP) bool {
	m := &cq.mod
	if m.held++; m.count > 0 && m.held >= m.count {
		return true
	}
	if m.held == 1 && m.period > 0 {
		m.deadline = cq.eng.now() + m.period
		s := qp.Host.(*shard)
		s.eventsAt = min(s.eventsAt, m.deadline)
		if bit := uint64(1) << s.index; m.listed&bit == 0 {
			m.listed |= bit
			s.events = append(s.events, cq)
		}
	}
	return false
}

// expire raises the event of a CQ whose time is over. It returns when shard s must look again, transport.Never if it need not.
func (cq *CQ) expire(s *shard, now int64) (next int64) {
	cq.mu.Lock()
	m := &cq.mod
	wake := m.held > 0 && m.deadline <= now
	if wake {
		m.forget()
		cq.armed.Store(uint32(disarmed))
	}
	if next = m.deadline; m.held == 0 || next == transport.Never {
		m.listed &^= 1 << s.index
		next = transport.Never
	}
	cq.mu.Unlock()
	if wake {
		cq.up.Completion()
	}
	return next
}

// raiseEvents raises the events that were held back long enough.
func (s *shard) raiseEvents(now int64) {
	if s.eventsAt > now {
		return
	}
	s.eventsAt = transport.Never
	kept := s.events[:0]
	for _, cq := range s.events {
		if next := cq.expire(s, now); next != transport.Never {
			kept = append(kept, cq)
			s.eventsAt = min(s.eventsAt, next)
		}
	}
	clear(s.events[len(kept):])
	s.events = kept
}

// nextTimer is when the shard has something to do without any packet, transport.Never if not at all.
func (s *shard) nextTimer() int64 { return min(s.wheel.next(), s.eventsAt) }
