package cm

import (
	"slices"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// A program may end a listener and listen at the same port again. perftest does so between its two connections, of
// which the second may be of another port space; its client does not know when, and connects again after one second. A
// request that comes in between is not refused at once: the new listener gets it. If there is none in time, the request
// is refused then.

const (
	// endedTime is the time after the end of a port's last listener for which requests to it wait.
	endedTime = 3000 * millisecond

	// holdTime is the longest time that a request waits. Peers wait longer: Linux repeats a request after 4.3 s first.
	holdTime = 1000 * millisecond

	maxEnded   = 64 // services
	maxWaiting = 16 // requests; others are refused at once
)

// endedService is a service whose last listener has ended.
type endedService struct {
	id    cmmsg.ServiceID
	until int64 // when requests are refused at once again
}

// waitingRequest is a REQ or SIDR_REQ for a service that has no listener yet.
type waitingRequest struct {
	service cmmsg.ServiceID
	until   int64
	back    link.Path
	mad     [wire.MADLen]byte
}

// noteEnd notes that the last listener of a service has ended.
func (m *Machine) noteEnd(now int64, s cmmsg.ServiceID) {
	m.ended = slices.DeleteFunc(m.ended, func(e endedService) bool { return e.id == s || e.until <= now })
	if len(m.ended) == maxEnded {
		m.ended = slices.Delete(m.ended, 0, 1)
	}
	m.ended = append(m.ended, endedService{s, now + endedTime})
}

// serves reports whether the service has a listener, or the last one at its port has ended lately.
func (m *Machine) serves(s cmmsg.ServiceID) bool {
	return len(m.listeners[s]) > 0 || slices.ContainsFunc(m.ended, func(e endedService) bool { return e.id.SamePort(s) })
}

// hold keeps a request whose port has lost its listener lately, if there is room. It reports whether the request waits.
func (m *Machine) hold(now int64, s cmmsg.ServiceID, back *link.Path, msg cmmsg.Msg) bool {
	if !slices.ContainsFunc(m.ended, func(e endedService) bool { return e.id.SamePort(s) && e.until > now }) {
		return false
	}
	w := waitingRequest{service: s, until: now + holdTime, back: *back}
	copy(w.mad[:], msg)
	again := func(old waitingRequest) bool { return old.mad == w.mad && old.back == w.back }
	switch {
	case slices.ContainsFunc(m.waiting, again):
		return true
	case len(m.waiting) == maxWaiting:
		return false
	}
	m.waiting = append(m.waiting, w)
	return true
}

// nextRefusal is the time at which a waiting request is refused, or Never.
func (m *Machine) nextRefusal() int64 {
	if len(m.waiting) == 0 {
		return Never
	}
	return m.waiting[0].until
}

// refuseWaiting refuses the requests that have waited long enough.
func (m *Machine) refuseWaiting(now int64, out *Batch) {
	m.answers.now = now
	for m.nextRefusal() <= now {
		w := &m.waiting[0]
		if msg := cmmsg.Msg(w.mad[:]); msg.Kind() == cmmsg.KindREQ {
			m.rejectREQ(&w.back, msg, cmmsg.RejInvalidServiceID, nil, out)
		} else {
			m.rejectLookup(&w.back, msg, cmmsg.SIDRUnsupported, out)
		}
		m.waiting = slices.Delete(m.waiting, 0, 1)
	}
}

// admitWaiting passes the requests that wait for a service to its new listener.
func (m *Machine) admitWaiting(now int64, s cmmsg.ServiceID, out *Batch) {
	m.ended = slices.DeleteFunc(m.ended, func(e endedService) bool { return e.id == s })
	var mine []waitingRequest
	m.waiting = slices.DeleteFunc(m.waiting, func(w waitingRequest) bool {
		if w.service == s {
			mine = append(mine, w)
		}
		return w.service == s
	})
	for i := range mine {
		msg := cmmsg.Msg(mine[i].mad[:])
		if msg.Kind() == cmmsg.KindREQ {
			m.onREQ(now, &mine[i].back, msg, out)
		} else {
			m.onSIDRREQ(now, &mine[i].back, msg, out)
		}
	}
}
