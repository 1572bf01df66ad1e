package sock

import (
	"net"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// MaxLinger bounds the wait of Close for acknowledgements, and lingerBackground the wait in the background after it.
const (
	MaxLinger        = 2 * time.Second
	lingerBackground = 30 * time.Second
)

// Shutdown ends reading, writing or both, and waits until all written data is acknowledged (R-SHUT-05). A writer
// that waits for room returns.
func (st *Stream) Shutdown(read, write bool) error {
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
		st.write.waiter.Wake()
		st.mu.Unlock()
		st.writing.lock()
		defer st.writing.unlock()
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

// deliver waits up to MaxLinger until the peer has acknowledged everything, then continues in the background, so
// that the peer gets the end of the stream although no call is under way. mu is held.
//
// +checklocks:st.mu
func (st *Stream) deliver() {
	if st.drain(MaxLinger, true) == nil {
		return
	}
	go func() {
		st.mu.Lock()
		defer st.mu.Unlock()
		_ = st.drain(lingerBackground, true)
	}()
}

// Unacked returns how many bytes of the send buffer the peer has not acknowledged; 0 without a connection.
func (st *Stream) Unacked() int {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.progress()
	if st.state != streamConnected {
		return 0
	}
	return st.m.Buffered()
}

// endQP moves the QP to ERR when the connection is over, so that the peer cannot write to the stream's memory any
// more. mu is held.
//
// +checklocks:st.mu
func (st *Stream) endQP() {
	if st.state == streamConnected && !st.qpEnded && st.m.Over() {
		st.qpEnded = true
		if st.words { // the stream of TCP may still have to take what was sent, and moving the QP would cut it
			_ = st.id.Disconnect(background)
			return
		}
		_ = st.res.qp.Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, verbs.QPAttrState)
	}
}

// drain waits until no posted request is outstanding or the time is over; with untilClosed also until Close is
// called. Over TCP, where a completion does not say that the peer has the data, Close waits until the peer has closed
// its side. mu is held, but not while it waits.
//
// +checklocks:st.mu
func (st *Stream) drain(limit time.Duration, untilClosed bool) error {
	w := NewWaiter()
	st.others.add(&w)
	defer st.others.remove(&w)
	var over deadline
	over.set(time.Now().Add(limit))
	defer over.set(time.Time{})
	p := WaitMode{deadline: &over}
	for st.state == streamConnected && !st.m.PeerGone() && (!st.m.Idle() || st.words && !untilClosed) &&
		(!untilClosed || !st.closed) {
		if err := st.pause(&w, &p); err != nil {
			return err
		}
	}
	return st.err
}

// Close ends the connection and destroys all objects. It waits up to linger for the acknowledgement of written data,
// then continues in the background. It reports whether this was the first call.
func (st *Stream) Close(linger time.Duration) bool {
	st.mu.Lock()
	if st.closed {
		st.mu.Unlock()
		return false
	}
	st.closed = true
	st.wakeAll()
	st.mu.Unlock()
	// Once both locks were free no goroutine copies to or from the buffers.
	st.reading.lock()
	st.writing.lock()
	st.reading.unlock()
	st.writing.unlock()
	st.mu.Lock()
	done := true
	if st.state == streamConnected && linger > 0 {
		st.m.Shutdown(true, true)
		st.postControls()
		st.endQP()
		done = st.drain(min(linger, MaxLinger), false) == nil || st.state != streamConnected
	}
	st.mu.Unlock()
	if done {
		st.release()
		return true
	}
	go func() {
		st.mu.Lock()
		_ = st.drain(lingerBackground, false)
		st.mu.Unlock()
		st.release()
	}()
	return true
}

// IsClosed reports whether Close was called.
func (st *Stream) IsClosed() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.closed
}
