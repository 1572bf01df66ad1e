package rsocket

import (
	"reflect"
	"time"
)

// Events are what Poll looks for and finds, with poll's values.
type Events int16

// The events.
const (
	PollIn   Events = 0x01 // there is something to receive or to accept, or the stream has ended
	PollOut  Events = 0x04 // there is room for something to send, or the connection is made
	PollErr  Events = 0x08 // always looked for: the connection has failed
	PollHup  Events = 0x10 // always looked for: the connection is over
	PollNval Events = 0x20 // always looked for: the socket or descriptor is closed
)

// PollFD is what Poll looks at (struct pollfd): a socket, or an ordinary descriptor if Socket is nil.
type PollFD struct {
	Socket  *Socket
	FD      int
	Events  Events // wished for
	Revents Events // found
}

// pollable is what a socket is while it is polled.
type pollable interface {
	// pollEvents looks what there is. With progress it also takes what has come.
	pollEvents() Events
	// watch lets w know of changes until unwatch.
	watch(w *waiter)
	unwatch(w *waiter)
	// token is a channel to wait for as well, whose token onToken takes; nil if there is none. It is asked for before each look.
	token() <-chan struct{}
	onToken()
}

// Poll waits until one of the sockets and descriptors has an event that is wished for, or the timeout is over; a negative one never
// is, 0 does not wait (rpoll). It returns how many have events. Before it sleeps it polls for a while, the configuration's
// polling_time; it looks again every wake_up_interval at least. Ordinary descriptors are not possible on Windows: EOPNOTSUPP.
func Poll(fds []PollFD, timeout time.Duration) (int, error) {
	p := poller{fds: fds, timeout: timeout, start: time.Now()}
	n, err := p.look()
	if n > 0 || err != nil || timeout == 0 {
		return n, err
	}
	if n, err = p.spin(); n > 0 || err != nil {
		return n, err
	}
	return p.wait()
}

type poller struct {
	fds     []PollFD
	timeout time.Duration
	start   time.Time
	w       waiter
}

// look fills in what there is now.
func (p *poller) look() (n int, err error) {
	if err := pollSystem(p.fds, 0, nil); err != nil {
		return 0, err
	}
	for i := range p.fds {
		f := &p.fds[i]
		if f.Socket != nil {
			f.Revents = f.Socket.pollEvents() & (f.Events | PollErr | PollHup | PollNval)
		}
		if f.Revents != 0 {
			n++
		}
	}
	return n, nil
}

// left is the time until Poll returns; less than 0 for never.
func (p *poller) left() time.Duration {
	if p.timeout < 0 {
		return -1
	}
	return max(0, p.timeout-time.Since(p.start))
}

// spin looks again and again for a while (R-POLL-07).
func (p *poller) spin() (n int, err error) {
	limit := config().polling
	if p.timeout > 0 {
		limit = min(limit, p.left())
	}
	for q := (patience{}); n == 0 && err == nil && q.busy(limit); {
		n, err = p.look()
	}
	return n, err
}

// wait sleeps until something has changed, and looks, until there is an event.
func (p *poller) wait() (int, error) {
	p.w = newWaiter()
	cases := []reflect.SelectCase{{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(p.w.c)}, {Dir: reflect.SelectRecv}}
	var socks []pollable
	for i := range p.fds {
		if s := p.fds[i].Socket; s != nil {
			if t := s.pollable(); t != nil {
				socks = append(socks, t)
				cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv})
				t.watch(&p.w)
			}
		}
	}
	stop, err := watchSystem(p.fds, &p.w)
	if err != nil {
		return 0, err
	}
	defer func() {
		stop()
		for _, t := range socks {
			t.unwatch(&p.w)
		}
	}()
	for {
		for i, t := range socks {
			cases[i+2].Chan = reflect.ValueOf(t.token())
		}
		if n, err := p.look(); n > 0 || err != nil {
			return n, err
		}
		left := p.left()
		if left == 0 {
			return 0, nil
		}
		nap := config().wakeUp // R-POLL-08
		if left > 0 {
			nap = min(nap, left)
		}
		timer := time.NewTimer(nap)
		cases[1].Chan = reflect.ValueOf(timer.C)
		if i, _, _ := reflect.Select(cases); i >= 2 {
			socks[i-2].onToken()
		}
		timer.Stop()
	}
}

// pollable is what there is to poll; nil for a socket that has nothing yet.
func (s *Socket) pollable() pollable {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil
	case s.dg != nil:
		return s.dg
	case s.l != nil:
		return s.l
	case s.st != nil:
		return s.st
	}
	return nil
}

func (s *Socket) pollEvents() Events {
	if p := s.pollable(); p != nil {
		return p.pollEvents()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return PollNval
	}
	return 0
}

func (st *stream) pollEvents() (e Events) {
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
	switch {
	case st.state != streamConnected:
		e |= PollErr | PollHup
	case st.m.Disconnected():
		e |= PollHup
	case st.m.CanSend() || st.m.WriteShut(): // a write would not wait
		e |= PollOut
	}
	return e
}

func (st *stream) watch(w *waiter) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.others.add(w)
}

func (st *stream) token() <-chan struct{} {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.arm()
	return st.res.event
}

func (st *stream) unwatch(w *waiter) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.others.remove(w)
}

func (st *stream) onToken() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.onCQEvent()
}

func (a *acceptor) pollEvents() Events {
	select {
	case <-a.done:
		return PollNval
	default:
	}
	if len(a.queue) > 0 {
		return PollIn
	}
	return 0
}

func (a *acceptor) watch(w *waiter) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.others.add(w)
}

func (a *acceptor) unwatch(w *waiter) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.others.remove(w)
}

func (a *acceptor) token() <-chan struct{} { return nil }
func (a *acceptor) onToken()               {}

// Handle is an element of a set of Select: a socket, or an ordinary descriptor if Socket is nil.
type Handle struct {
	Socket *Socket
	FD     int
}

// SelectSets are what Select looks at, and then what it has found (fd_set).
type SelectSets struct {
	Read, Write, Except []Handle
}

// Select waits until one of the sockets and descriptors can be read, can be written or has an exceptional condition, or the timeout is
// over, as Poll does (rselect). It leaves those in the sets of which that is true, and returns how many they are.
func Select(sets *SelectSets, timeout time.Duration) (int, error) {
	const exceptional = ^(PollIn | PollOut)
	var fds []PollFD
	add := func(list []Handle, e Events) {
		for _, h := range list {
			fds = append(fds, PollFD{h.Socket, h.FD, e, 0})
		}
	}
	add(sets.Read, PollIn)
	add(sets.Write, PollOut)
	add(sets.Except, PollErr|PollHup)
	if _, err := Poll(fds, timeout); err != nil {
		return 0, err
	}
	n := 0
	keep := func(list []Handle, e Events) (kept []Handle) {
		for i, h := range list {
			if fds[i].Revents&e != 0 {
				kept = append(kept, h)
			}
		}
		fds = fds[len(list):]
		n += len(kept)
		return kept
	}
	sets.Read = keep(sets.Read, PollIn|PollHup)
	sets.Write = keep(sets.Write, PollOut)
	sets.Except = keep(sets.Except, exceptional)
	return n, nil
}
