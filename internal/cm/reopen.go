package cm

import (
	"slices"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// A program may end a listener and listen at the same port again at once. perftest does so between its two connections,
// of which the second may be of another port space. The client does not know when. A request that comes in between is
// not refused: the new listener gets it. If there is none in time, the request is dropped. The peer repeats it, and
// gets an answer then.

const (
	// reopenTime is the time after the end of a listener for which requests wait. It is shorter than the time after
	// which a machine repeats a request first; see hasten.
	reopenTime = 450 * millisecond

	maxEnded   = 64 // services
	maxWaiting = 16 // requests
)

// endedService is a service whose last listener has ended.
type endedService struct {
	id    cmmsg.ServiceID
	until int64 // when requests are refused again
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
	m.ended = append(m.ended, endedService{s, now + reopenTime})
}

// serves reports whether the service has a listener, or the last one at its port has ended lately.
func (m *Machine) serves(s cmmsg.ServiceID) bool {
	return len(m.listeners[s]) > 0 || slices.ContainsFunc(m.ended, func(e endedService) bool { return e.id.SamePort(s) })
}

// hold keeps a request whose port has just lost a listener, if there is room, and reports whether the port has.
func (m *Machine) hold(now int64, s cmmsg.ServiceID, back *link.Path, msg cmmsg.Msg) bool {
	i := slices.IndexFunc(m.ended, func(e endedService) bool { return e.id.SamePort(s) && e.until > now })
	if i < 0 {
		return false
	}
	m.waiting = slices.DeleteFunc(m.waiting, func(w waitingRequest) bool { return w.until <= now })
	if len(m.waiting) < maxWaiting {
		w := waitingRequest{service: s, until: m.ended[i].until, back: *back}
		copy(w.mad[:], msg)
		m.waiting = append(m.waiting, w)
	}
	return true
}

// admitWaiting passes the requests that wait for a service to its new listener.
func (m *Machine) admitWaiting(now int64, s cmmsg.ServiceID, out *Batch) {
	m.ended = slices.DeleteFunc(m.ended, func(e endedService) bool { return e.id == s })
	var mine []waitingRequest
	m.waiting = slices.DeleteFunc(m.waiting, func(w waitingRequest) bool {
		if w.service == s && w.until > now {
			mine = append(mine, w)
		}
		return w.service == s || w.until <= now
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
