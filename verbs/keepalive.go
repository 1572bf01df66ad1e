package verbs

import "time"

// SetKeepAlive makes the QP check whether its peer still answers (libibverbs has no twin; sockets have SO_KEEPALIVE).
// Without it a program that only receives never learns that its peer has gone. After each time idle in which the QP has
// received no packet and had nothing to send, it sends a WRITE of 0 bytes, which takes no slot of the send queue and
// makes no completion. The peer's program does not notice it, but its QP must permit AccessRemoteWrite, as QPs of
// rdma_cm do. A check without an acknowledgement is repeated as any request is (Timeout, RetryCnt), but for the time
// idle, or 5 s if idle is shorter, at the longest. Then the QP moves to ERR, EventQPFatal is raised, and receives are
// flushed. So a peer that has gone is noticed after 2*idle, or idle + 5 s. The Cause of the completions begins with
// "keep-alive".
//
// A check of an XRC_SEND QP names the SRQ of the QP's latest request, which must still exist; before the first request
// there are no checks.
//
// SetKeepAlive may be called in any state. Checks are sent in RTS; a QP whose Timeout is 0 waits for ever for the
// acknowledgement. 0 ends the checks, as Close does. EINVAL if idle is below 0 or from 1 ns to less than 1 ms, or if
// the QP is not of type RC or XRC_SEND. EOPNOTSUPP if the device has no keep-alive.
func (qp *QP) SetKeepAlive(idle time.Duration) error {
	const op = "set_keepalive"
	qp.mu.Lock()
	defer qp.mu.Unlock()
	switch {
	case qp.word.Load()&stateClosed != 0:
		return errClosed(op, qp.obj())
	case qp.ctx.isRemoved():
		return errRemoved(op, qp)
	case qp.Type() != QPTypeRC && qp.Type() != QPTypeXRCSend:
		return newError(op, qp.obj(), EINVAL, "QP type %v: must be RC or XRC_SEND", qp.Type())
	case idle < 0, idle != 0 && idle < time.Millisecond:
		return newError(op, qp.obj(), EINVAL, "idle time %v: must be 0 or at least 1ms", idle)
	}
	return driverError(op, qp.obj(), qp.drv.SetKeepAlive(idle))
}
