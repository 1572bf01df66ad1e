package engine

import (
	"time"

	"github.com/verbena-rdma/verbena/internal/transport"
)

// moderation delays a CQ's completion events (X-CQ-01): an armed CQ raises its event after count matching
// completions, or period after the first of them. The shard that pushed the first one keeps the time in its steps,
// like other timers, so it works while the program sleeps.
type moderation struct {
	count    uint32 // 0: unlimited
	period   int64  // ns; 0: unlimited
	held     uint32 // matching completions since the CQ was armed
	deadline int64
	listed   uint64 // shards that list the CQ in events, as bits
}

func (m *moderation) on() bool { return m.count > 1 || m.count == 0 && m.period > 0 }

// forget resets the count, because the event was raised or requested anew.
func (m *moderation) forget() { m.held, m.deadline = 0, transport.Never }

// Moderate sets the moderation parameters. A delayed event is raised at once.
func (cq *CQ) Moderate(count uint16, period time.Duration) {
	cq.mu.Lock()
	m := &cq.mod
	wake := m.held > 0
	if wake {
		cq.disarm()
	}
	m.count, m.period = uint32(count), int64(period)
	m.forget()
	cq.mu.Unlock()
	if wake {
		cq.up.Completion()
	}
}

// due counts a matching completion and reports whether the event must be raised now. The CQ's lock and the shard of
// qp are held.
//
// +checklocks:cq.mu
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

// expire raises the event of a CQ whose period is over. It returns when shard s must look again, or transport.Never.
func (cq *CQ) expire(s *shard, now int64) (next int64) {
	cq.mu.Lock()
	m := &cq.mod
	wake := m.held > 0 && m.deadline <= now
	if wake {
		cq.disarm()
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

// raiseEvents raises the delayed events that are due.
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

// nextTimer returns when the shard has work without a packet, or transport.Never.
func (s *shard) nextTimer() int64 { return min(s.wheel.next(), s.eventsAt, s.acks.until) }
