package socket

import (
	"reflect"
	"slices"
	"time"

	"github.com/verbena-rdma/verbena/rsocket/internal/sock"
)

// Events are the requested and the returned events of Poll, with the values of poll(2).
type Events int16

// The events.
const (
	PollIn   Events = 0x01 // there is something to receive or to accept, or the stream has ended
	PollOut  Events = 0x04 // there is room to send, or the connection is made
	PollErr  Events = 0x08 // always requested: the connection has failed
	PollHup  Events = 0x10 // always requested: the connection is over
	PollNval Events = 0x20 // always requested: the socket or descriptor is closed

	PollRdHup Events = 0x2000 // no more arrives: the peer has ended sending, or Shutdown receiving
)

// PollFD is an entry of Poll (struct pollfd): a socket, or an ordinary descriptor if Socket is nil.
type PollFD struct {
	Socket  *Socket
	FD      int
	Events  Events // requested
	Revents Events // returned
}

// Poll waits until one of the sockets and descriptors has a requested event, or until the timeout (rpoll): a
// negative one never ends, 0 does not wait. It returns the number of entries with events. Before it sleeps it polls
// for the polling_time of the configuration; asleep, it polls again at least every wake_up_interval. Windows has no
// ordinary descriptors: EOPNOTSUPP.
func Poll(fds []PollFD, timeout time.Duration) (int, error) {
	p := poller{fds: fds, timeout: timeout, start: time.Now()}
	if err := p.system.set(fds); err != nil {
		return 0, err
	}
	n, err := p.look()
	if n > 0 || err != nil || timeout == 0 {
		return n, err
	}
	if n, err = p.spin(); n > 0 || err != nil {
		return n, err
	}
	if p.system.none() {
		return p.wait()
	}
	return p.waitInKernel()
}

type poller struct {
	fds     []PollFD
	system  systemFDs
	timeout time.Duration
	start   time.Time
	socks   []sock.Pollable // those that are watched
}

// look sets the events of all entries, and returns the number of entries with events.
func (p *poller) look() (n int, err error) {
	if err := p.system.look(p.fds); err != nil {
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

// left returns the time until Poll returns; a negative one for no limit.
func (p *poller) left() time.Duration {
	if p.timeout < 0 {
		return -1
	}
	return max(0, p.timeout-time.Since(p.start))
}

// nap returns the time until the next look without an event (R-POLL-08), and whether Poll has ended.
func (p *poller) nap() (d time.Duration, over bool) {
	d = sock.Config().WakeUp
	if left := p.left(); left >= 0 {
		return min(d, left), left == 0
	}
	return d, false
}

// longPolls is for all polls of the process.
var longPolls sock.LongPolls

// fewFDs is the largest number of entries for long polls. With more a look takes longer, and after a sleep there is
// more to do at once.
const fewFDs = 8

// spin polls during the spin budget (R-POLL-07), or for longer while that pays.
func (p *poller) spin() (n int, err error) {
	var s sock.Spin
	if len(p.fds) <= fewFDs {
		s.Begin(sock.Config().Polling, &longPolls)
	} else {
		s.Begin(sock.Config().Polling, nil)
	}
	if p.timeout > 0 {
		s.AtMost(p.left())
	}
	for n == 0 && err == nil && s.Busy() {
		n, err = p.look()
	}
	s.End(n > 0)
	return n, err
}

// watch makes each change of a socket wake w.
func (p *poller) watch(w *sock.Waiter) {
	for i := range p.fds {
		if s := p.fds[i].Socket; s != nil {
			if t := s.pollable(); t != nil {
				p.socks = append(p.socks, t)
				t.Watch(w)
			}
		}
	}
}

func (p *poller) unwatch(w *sock.Waiter) {
	for _, t := range p.socks {
		t.Unwatch(w)
	}
}

// wait sleeps until a change and looks again, until there is an event.
func (p *poller) wait() (int, error) {
	w := sock.NewWaiter()
	p.watch(&w)
	defer p.unwatch(&w)
	cases := make([]reflect.SelectCase, len(p.socks)+2)
	for i := range cases {
		cases[i].Dir = reflect.SelectRecv
	}
	cases[0].Chan = reflect.ValueOf(w.C)
	for {
		for i, t := range p.socks {
			cases[i+2].Chan = reflect.ValueOf(t.Token())
		}
		n, err := p.look()
		nap, over := p.nap()
		if n > 0 || err != nil || over {
			return n, err
		}
		timer := time.NewTimer(nap)
		cases[1].Chan = reflect.ValueOf(timer.C)
		if i, _, _ := reflect.Select(cases); i >= 2 {
			p.socks[i-2].OnToken()
		}
		timer.Stop()
	}
}

// waitInKernel is wait with ordinary descriptors: the calling thread sleeps in poll(2), and changes of sockets wake it
// by a descriptor of its own.
func (p *poller) waitInKernel() (int, error) {
	bell, err := bells.take()
	if err != nil {
		return 0, err
	}
	defer bells.give(bell)
	w := sock.NewSleeper(bell, len(p.fds) > fewFDs)
	p.watch(w)
	defer p.unwatch(w)
	for {
		for _, t := range p.socks {
			t.OnBell() // also for an event that came before the call
			t.Token()  // asks for the next one
		}
		n, err := p.look()
		nap, over := p.nap()
		if n > 0 || err != nil || over {
			return n, err
		}
		w.Sleep(func() { p.system.wait(bell, nap) })
	}
}

// pollable returns what is polled; nil for a socket that is neither connected nor listening.
func (s *Socket) pollable() sock.Pollable {
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
		return Events(p.PollEvents())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return PollNval
	}
	return 0
}

// Handle is an element of a set of Select: a socket, or an ordinary descriptor if Socket is nil.
type Handle struct {
	Socket *Socket
	FD     int
}

// SelectSets are the sets that Select waits for, and then the results (fd_set).
type SelectSets struct {
	Read, Write, Except []Handle
}

// Select waits until one of the sockets and descriptors can be read, can be written or has an exceptional condition,
// or until the timeout, as Poll does (rselect). It leaves the ready ones in the sets, and returns their number. A
// closed one is exceptional; EBADF if it is not in Except and none is ready.
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
	n, closed := 0, slices.ContainsFunc(fds, func(f PollFD) bool { return f.Revents&PollNval != 0 })
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
	if n == 0 && closed {
		return 0, errBadSocket // the result would be that of the timeout
	}
	return n, nil
}
