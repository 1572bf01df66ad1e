package rsocket

import (
	"net"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// linger bounds how long Close waits for the peer's acknowledgement of what was written, and how long the rest goes on in the
// background.
const (
	lingerInClose    = 2 * time.Second
	lingerBackground = 30 * time.Second
)

// shutdown ends reading, writing or both, and waits until everything that was written is acknowledged (R-SHUT-05). A writer
// that waits for room gives up.
func (st *stream) shutdown(read, write bool) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	switch {
	case st.closed:
		return net.ErrClosed
	case !st.established:
		return syscall.ENOTCONN
	}
	if write {
		st.stopWriting = true
		st.write.waiter.wake()
		st.mu.Unlock()
		st.writing.take()
		defer st.writing.give()
		st.mu.Lock()
		if st.closed {
			return net.ErrClosed
		}
	}
	st.m.Shutdown(read, write)
	st.wakeAll()
	if st.state == streamConnected {
		st.postControls()
		if write {
			st.deliver()
		}
		st.endQP()
	}
	return nil
}

// deliver waits a while until the peer has acknowledged everything. The rest goes on in the background, so that the peer learns of the end
// though no call is under way. mu is held.
func (st *stream) deliver() {
	closed := func() bool { return st.closed }
	if st.drain(lingerInClose, closed) == nil {
		return
	}
	go func() {
		st.mu.Lock()
		defer st.mu.Unlock()
		_ = st.drain(lingerBackground, closed)
	}()
}

// endQP moves the QP to ERR once the connection is over: nobody can write to the stream's memory any more. mu is held.
func (st *stream) endQP() {
	if st.state == streamConnected && !st.qpEnded && st.m.Over() {
		st.qpEnded = true
		_ = st.res.qp.Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, verbs.QPAttrState)
	}
}

// drain waits until nothing that was posted is under way, stop says so or the time is over. mu is held, but not while it waits.
func (st *stream) drain(limit time.Duration, stop func() bool) error {
	w := newWaiter()
	st.others.add(&w)
	defer st.others.remove(&w)
	var over deadline
	over.set(time.Now().Add(limit))
	defer over.set(time.Time{})
	p := patience{deadline: &over}
	for st.state == streamConnected && !st.m.PeerGone() && !st.m.Idle() && !stop() {
		if err := st.pause(&w, &p); err != nil {
			return err
		}
	}
	if st.state == streamFailed {
		return st.err
	}
	return nil
}

// close ends the connection and destroys everything. What was written is delivered first, as long as the peer acknowledges:
// Close waits a while for that, the rest goes on by itself. It tells whether it was not closed before.
func (st *stream) close(linger time.Duration) bool {
	st.mu.Lock()
	if st.closed {
		st.mu.Unlock()
		return false
	}
	st.closed = true
	st.wakeAll()
	st.mu.Unlock()
	// Once these were to be had nobody copies to or from the buffers any more.
	st.reading.take()
	st.writing.take()
	st.reading.give()
	st.writing.give()
	st.mu.Lock()
	done := true
	if st.state == streamConnected && linger > 0 {
		st.m.Shutdown(true, true)
		st.postControls()
		done = st.drain(min(linger, lingerInClose), never) == nil || st.state != streamConnected
	}
	st.mu.Unlock()
	if done {
		st.release()
		return true
	}
	go func() {
		st.mu.Lock()
		_ = st.drain(lingerBackground, never)
		st.mu.Unlock()
		st.release()
	}()
	return true
}

func (st *stream) isClosed() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.closed
}

func never() bool { return false }
