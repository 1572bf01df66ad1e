package sock

import (
	"errors"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// progress processes the completions of the CQ: it updates the state machine, posts what is due, and wakes the
// goroutines that can go on. It reports whether there were completions. Before the connection is made they stay in
// the CQ. mu is held.
//
// +checklocks:st.mu
func (st *Stream) progress() (any bool) {
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
//
// +checklocks:st.mu
func (st *Stream) notify() {
	if st.read.waiter.on && (st.m.Readable() > 0 || st.m.EOF() || st.state != streamConnected) {
		st.read.waiter.Wake()
	}
	if st.write.waiter.on && (st.canWrite() || st.m.Disconnected() || st.state != streamConnected) {
		st.write.waiter.Wake()
	}
	st.others.Wake()
}

// canWrite reports whether the writer has room. Data for IO maps needs no room in the peer's ring. mu is held.
//
// +checklocks:st.mu
func (st *Stream) canWrite() bool { return st.m.CanSend() || st.placing && st.m.CanPlace() }

// complete processes one completion. mu is held.
//
// +checklocks:st.mu
func (st *Stream) complete(wc *verbs.WC) {
	if wc.Status != verbs.WCSuccess {
		st.failed(wc)
		return
	}
	if wc.Opcode&verbs.WCRecv != 0 {
		st.unposted++
		if st.words {
			st.word(wc)
			return
		}
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

// message processes a received message word. mu is held.
//
// +checklocks:st.mu
func (st *Stream) message(word, written uint32) {
	if st.state != streamConnected {
		return
	}
	if err := st.m.OnMessage(word, written); err != nil {
		st.breakOff(err)
	}
}

// failed processes a completion with an error. Requests that are flushed after an orderly end of the connection are no
// failure: the reader finds the end of the stream. mu is held.
//
// +checklocks:st.mu
func (st *Stream) failed(wc *verbs.WC) {
	if st.state != streamConnected || st.m.PeerGone() {
		return
	}
	status := wc.Status
	if wc.Cause != nil && wc.Cause.First != nil {
		status = wc.Cause.First.Status
	}
	if status == verbs.WCWRFlushErr || st.m.Disconnected() {
		st.m.Disconnect() // progress wakes those who wait
		return
	}
	errno := syscall.ECONNRESET
	if status == verbs.WCRetryExcErr || status == verbs.WCRNRRetryExcErr {
		errno = syscall.ETIMEDOUT
	}
	st.fail(&verbs.Error{Op: "rsocket", Obj: st.name(), Errno: errno, Detail: "the connection has failed", Err: wc.Err()})
}

// onCQEvent processes the event of the CQ, whose token the caller has, and arms the CQ again if others wait. mu is
// held.
//
// +checklocks:st.mu
func (st *Stream) onCQEvent() {
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

// arm requests an event at the next completion, and processes the completions that precede it (V-EV-06). It reports
// whether there were any. mu is held.
//
// +checklocks:st.mu
func (st *Stream) arm() bool {
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
