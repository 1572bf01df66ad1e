package sock

// Events are the operations that a socket is ready for, with poll's values.
type Events int16

// The events.
const (
	PollIn   Events = 0x01 // there is something to receive or to accept, or the stream has ended
	PollOut  Events = 0x04 // there is room to send, or the connection is made
	PollErr  Events = 0x08 // the connection has failed
	PollHup  Events = 0x10 // the connection is over
	PollNval Events = 0x20 // the socket is closed

	PollRdHup Events = 0x2000 // no more arrives: there may be something to receive
)

// Pollable is a socket that can be polled: a Stream, a Datagram or an Acceptor.
type Pollable interface {
	// PollEvents processes what has arrived and returns the events.
	PollEvents() Events
	// Watch makes each change wake w, until Unwatch.
	Watch(w *Waiter)
	Unwatch(w *Waiter)
	// Token returns a further channel to wait at, nil if there is none. It is called before each look at the events. The
	// receiver of the channel's token calls OnToken.
	Token() <-chan struct{}
	OnToken()
	// OnBell is OnToken for a waiter that sleeps in the kernel: it processes the event that has rung its bell, if it is
	// of this socket.
	OnBell()
}

var (
	_ Pollable = (*Stream)(nil)
	_ Pollable = (*Datagram)(nil)
	_ Pollable = (*Acceptor)(nil)
)

func (st *Stream) PollEvents() (e Events) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.progress()
	switch {
	case st.state == streamConnecting:
		return 0
	case st.closed:
		return PollNval
	case st.state != streamConnected && !st.established:
		return PollErr | PollIn | PollOut
	}
	if st.m.Readable() > 0 || st.m.EOF() || st.state != streamConnected {
		e |= PollIn
	}
	if st.m.ReadShut() || st.m.PeerShut() || st.state != streamConnected {
		e |= PollRdHup
	}
	switch {
	case st.state != streamConnected:
		e |= PollErr | PollHup
	case st.m.Disconnected():
		// Not before the data is read: programs end a connection without reading at POLLHUP, and the peer's end comes
		// close behind its last message. A write fails at once, and who waits for it may not read before.
		if st.m.Readable() == 0 {
			e |= PollHup
		} else {
			e |= PollOut
		}
	case st.m.CanSend() || st.m.WriteShut(): // a write would not wait
		e |= PollOut
	}
	return e
}

func (st *Stream) Watch(w *Waiter) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.others.add(w)
	st.asleep.add(w)
}

func (st *Stream) Token() <-chan struct{} {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.arm()
	return st.res.event
}

func (st *Stream) Unwatch(w *Waiter) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.others.remove(w)
	st.asleep.remove(w)
}

func (st *Stream) OnToken() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.onCQEvent()
}

func (st *Stream) OnBell() {
	if !st.asleep.rung.CompareAndSwap(true, false) {
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	select {
	case <-st.res.event: // no other waiter needs to look
	default:
	}
	st.onCQEvent()
}

func (a *Acceptor) PollEvents() Events {
	select {
	case <-a.done:
		return PollNval
	case <-a.gone:
		return PollIn // Accept does not wait
	default:
	}
	if len(a.queue) > 0 {
		return PollIn
	}
	return 0
}

func (a *Acceptor) Watch(w *Waiter) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.others.add(w)
}

func (a *Acceptor) Unwatch(w *Waiter) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.others.remove(w)
}

func (a *Acceptor) Token() <-chan struct{} { return nil }
func (a *Acceptor) OnToken()               {}
func (a *Acceptor) OnBell()                {}
