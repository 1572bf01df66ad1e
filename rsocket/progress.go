package rsocket

import (
	"errors"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// progress takes what has come from the CQ, tells the state machine, posts what is due and wakes those whom it concerns. It
// tells whether anything has come. Before the connection is made it waits in the CQ. mu is held.
func (st *stream) progress() (any bool) {
	if st.state != streamConnected {
		return false
	}
	var wcs [16]verbs.WC
	for {
		n, err := st.res.cq.Poll(wcs[:])
		if err != nil {
			st.fail(err)
			return true
		}
		for i := range wcs[:n] {
			st.complete(&wcs[i])
		}
		any = any || n > 0
		if n < len(wcs) {
			break
		}
	}
	if !any || st.state != streamConnected {
		return any
	}
	if !st.m.PeerGone() {
		if err := st.postRecvs(); err != nil {
			st.fail(err)
		}
		st.postControls()
	}
	st.endQP()
	st.notify()
	return true
}

// notify wakes the reader and the writer if they can go on. mu is held.
func (st *stream) notify() {
	if st.read.waiter.on && (st.m.Readable() > 0 || st.m.EOF() || st.state != streamConnected) {
		st.read.waiter.wake()
	}
	if st.write.waiter.on && (st.canWrite() || st.m.Disconnected() || st.state != streamConnected) {
		st.write.waiter.wake()
	}
	st.others.wake()
}

// canWrite tells whether the writer has room. What goes to IO maps needs none in the peer's stream.
func (st *stream) canWrite() bool { return st.m.CanSend() || st.placing && st.m.CanPlace() }

// complete takes one completion. mu is held.
func (st *stream) complete(wc *verbs.WC) {
	if wc.Status != verbs.WCSuccess {
		st.failed(wc)
		return
	}
	if wc.Opcode&verbs.WCRecv != 0 {
		st.unposted++
		st.message(wc.ImmData, wc.ByteLen)
		return
	}
	switch wc.WRID & wrKinds {
	case wrData:
		st.m.OnSent(int(uint32(wc.WRID)))
	case wrControl, wrKeepalive:
		st.m.OnControlSent()
	}
}

// message takes what has come in one receive.
func (st *stream) message(word, written uint32) {
	if st.state != streamConnected {
		return
	}
	if err := st.m.OnMessage(word, written); err != nil {
		st.breakOff(err)
	}
}

// failed takes a completion that is not a success. Requests that are flushed after the end of the connection are no failure.
func (st *stream) failed(wc *verbs.WC) {
	if st.state != streamConnected || st.m.PeerGone() {
		return
	}
	if wc.Status == verbs.WCWRFlushErr || st.m.Disconnected() {
		st.m.Disconnect()
		st.wakeAll()
		return
	}
	errno := syscall.ECONNRESET
	if wc.Status == verbs.WCRetryExcErr || wc.Status == verbs.WCRNRRetryExcErr {
		errno = syscall.ETIMEDOUT
	}
	st.fail(&Error{Op: "rsocket", Obj: st.name(), Errno: errno, Detail: "the connection has failed", Err: wc.Err()})
}

// onCQEvent takes the event of the CQ, whose token the caller has, and passes the duty to wait for the next one on. mu is held.
func (st *stream) onCQEvent() {
	if st.state == streamClosed {
		return
	}
	for {
		cq, err := st.res.ch.TryGetEvent()
		if err != nil {
			if !errors.Is(err, syscall.EAGAIN) {
				st.fail(err)
			}
			break
		}
		cq.AckEvents(1)
	}
	st.armed = false
	st.progress()
	if st.read.waiter.on || st.write.waiter.on || len(st.others) > 0 {
		st.arm()
	}
}

// arm asks for an event at the next completion, and takes those that have come before it (V-EV-06). It tells whether there
// were any. mu is held.
func (st *stream) arm() bool {
	if st.armed || st.state != streamConnected {
		return false
	}
	if err := st.res.cq.ReqNotify(false); err != nil {
		st.fail(err)
		return true
	}
	st.armed = true
	return st.progress()
}
