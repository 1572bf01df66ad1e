package engine

import "github.com/verbena-rdma/verbena/internal/transport"

// CountMissed makes Arm raise the event at once if the CQ holds a matching completion that came after the last event.
// It is called before the CQ is used.
//
// The manual says that only completions after the request count (V-NTF-02), and tells programs to poll after it. But
// adapters compare the request with the last completion that was polled, so that programs work there that poll, then
// arm, and then sleep. UCX does. A completion for which an event was raised does not count again, so that a program
// that arms before it polls gets no event for nothing.
func (cq *CQ) CountMissed() { cq.lateArm = true }

// missed reports whether the CQ holds a completion after the last event for which it is armed.
//
// +checklocks:cq.mu
func (cq *CQ) missed() bool {
	all := arming(cq.armed.Load()) == armedNext
	for i := cq.seen; i != cq.tail; i++ {
		if e := &cq.ring[i&uint32(len(cq.ring)-1)]; all || wakesSolicited(e) {
			return true
		}
	}
	return false
}

// Wake raises the event of the request at once, if there is one. The caller of Poll has kept completions for which the
// program has yet to ask.
func (cq *CQ) Wake() {
	cq.mu.Lock()
	wake := arming(cq.armed.Load()) != disarmed
	if wake {
		cq.disarm()
	}
	cq.mu.Unlock()
	if wake {
		cq.up.Completion()
	}
}

// wakesSolicited reports whether a completion raises the event of a request for solicited ones.
func wakesSolicited(e *transport.CQE) bool { return e.Solicited || e.Status != transport.Success }

// disarm ends the request, since its event is raised.
//
// +checklocks:cq.mu
func (cq *CQ) disarm() {
	cq.mod.forget()
	cq.armed.Store(uint32(disarmed))
	cq.seen = cq.tail
}

// pastSeen moves seen past entries that were taken out.
//
// +checklocks:cq.mu
func (cq *CQ) pastSeen() {
	if int32(cq.head-cq.seen) > 0 {
		cq.seen = cq.head
	}
}
