package host

import (
	"bytes"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// A sorter sends mail to members. Each member has a queue of bounded length, and the queues are served in turn, so
// that a member with much mail, or one that reads nothing, does not delay the others. Sending does not block: a
// member whose socket is full loses mail.
type sorter struct {
	mu sync.Mutex
	// +checklocks:mu
	turns []*session // with mail
	// +checklocks:mu
	bytes int
	ready chan struct{}

	dropped atomic.Uint64
}

const (
	memberMail = 64      // messages queued for one member
	allMail    = 4 << 20 // bytes queued for all
)

// put queues a frame for a member.
func (o *sorter) put(s *session, frame []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(s.queue) >= memberMail || o.bytes+len(frame) > allMail {
		o.dropped.Add(1)
		return
	}
	s.queue = append(s.queue, frame)
	o.bytes += len(frame)
	if !s.inTurns {
		s.inTurns = true
		o.turns = append(o.turns, s)
	}
	select {
	case o.ready <- struct{}{}:
	default:
	}
}

// next removes one frame from the queue of the next member in turn.
func (o *sorter) next() (s *session, frame []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.turns) == 0 {
		return nil, nil
	}
	s = o.turns[0]
	o.turns = o.turns[1:]
	frame, s.queue = s.queue[0], s.queue[1:]
	o.bytes -= len(frame)
	if len(s.queue) > 0 {
		o.turns = append(o.turns, s)
	} else {
		s.inTurns, s.queue = false, nil
	}
	return s, frame
}

// run sends until end is closed.
func (o *sorter) run(end <-chan struct{}) {
	for {
		for s, f := o.next(); s != nil; s, f = o.next() {
			if !s.send(f) {
				o.dropped.Add(1)
			}
		}
		select {
		case <-o.ready:
		case <-end:
			return
		}
	}
}

// forward forwards a packet that this process or a member received. It returns false if the packet is for this
// process or has no destination.
func (l *leader) forward(m Mail) bool {
	if wire.BTH(m.Packet).DestQPN() == wire.MulticastQPN {
		return l.multiply(m)
	}
	l.mu.Lock()
	to, local := l.table.route(m.Packet), l.local
	held := to == nil && l.hold(m)
	if to == nil && !held {
		to = l.formerOwnerOf(m.Packet)
	}
	l.mu.Unlock()
	if to != nil && to != local {
		l.post(to, m)
		return true
	}
	return held
}

// A request may arrive for a service ID whose owner has not yet repeated its claim to this leader, because the previous
// leader has just ended. It is held until the owner does: a refusal would end the client's attempt.
type heldMail struct {
	service uint64
	mail    Mail
	until   time.Time
}

const (
	maxHeld = 32 // fewer than the socket of a member has room for
	// heldTime is shorter than the usual time after which a client repeats its request.
	heldTime = 4 * time.Second
)

// hold keeps a request for a service ID that another process has locked and not claimed from this leader, and reports
// whether it did. If there are too many, the oldest is dropped; its client repeats it.
//
// +checklocks:l.mu
func (l *leader) hold(m Mail) bool {
	a, ok := addressOf(m.Packet)
	if !ok || a.Slot >= 0 || l.locks == nil || !l.locks.foreign(serviceLock(a.Service)) {
		return false
	}
	now := l.now()
	l.dropHeld(now)
	if len(l.held) == maxHeld {
		l.held = slices.Delete(l.held, 0, 1)
		l.sorter.dropped.Add(1)
	}
	m.Packet = bytes.Clone(m.Packet)
	l.held = append(l.held, heldMail{a.Service, m, now.Add(heldTime)})
	return true
}

// dropHeld drops the requests that were held for too long.
//
// +checklocks:l.mu
func (l *leader) dropHeld(now time.Time) {
	n := 0
	for n < len(l.held) && !now.Before(l.held[n].until) {
		n++
	}
	l.held = slices.Delete(l.held, 0, n)
	l.sorter.dropped.Add(uint64(n))
}

// releaseHeld posts the requests held for a service ID to its owner.
//
// +checklocks:l.mu
func (l *leader) releaseHeld(id uint64, to *session) {
	l.dropHeld(l.now())
	l.held = slices.DeleteFunc(l.held, func(h heldMail) bool {
		if h.service == id {
			l.post(to, h.mail)
		}
		return h.service == id
	})
}

// multiply forwards a multicast packet to the members of its group. It returns false if this process is a member.
func (l *leader) multiply(m Mail) bool {
	l.mu.Lock()
	var to []*session
	mine := false
	for s := range l.table.groups[m.Dst] {
		if s == l.local {
			mine = true
		} else {
			to = append(to, s)
		}
	}
	l.mu.Unlock()
	for _, s := range to {
		l.post(s, m)
	}
	return !mine
}

func (l *leader) post(to *session, m Mail) {
	if f := m.bytes(); f != nil {
		l.sorter.put(to, f)
	} else {
		l.sorter.dropped.Add(1)
	}
}

// takeMail forwards a packet that a member received for another one. If several users share the address it drops the
// packet, because its source cannot be verified.
func (l *leader) takeMail(b []byte, joined bool) {
	m, ok := parseMail(b)
	if !ok || !joined || l.shared() {
		l.sorter.dropped.Add(1)
		return
	}
	if !l.forward(m) {
		l.cfg.Deliver(m)
	}
}
