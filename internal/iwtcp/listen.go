package iwtcp

import (
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/verbena-rdma/verbena/internal/fdset"
	"github.com/verbena-rdma/verbena/internal/iwarp"
)

// acceptWait is the pause of a listener for which the process has no descriptors.
const acceptWait = 10 * time.Millisecond

// Listener takes the requests that come to an address.
type Listener struct {
	l  *net.TCPListener
	on func(*Request)

	waiting *waiting      // connections whose request has not come yet
	brief   chan struct{} // has an element for each connection without a place
}

// A connection that finds no place in waiting is served if its request comes at once, as that of an honest initiator
// does: other users of its host can take all places of its source.
const (
	briefWait = 50 * time.Millisecond
	maxBrief  = 512 // at most a quarter of the descriptors of the process
)

// Listen listens on an address; the port 0 chooses one. on is called for each request, by a goroutine of its own, and
// takes it over. A wildcard address of IPv6 takes IPv4 too, unless only6 is set.
func Listen(at netip.AddrPort, only6 bool, on func(*Request)) (*Listener, error) {
	network := "tcp"
	switch {
	case at.Addr().Is4():
		network = "tcp4"
	case only6:
		network = "tcp6"
	}
	l, err := net.ListenTCP(network, net.TCPAddrFromAddrPort(at))
	if err != nil {
		return nil, noListener(err, at)
	}
	fdset.AddConn(l)
	ln := &Listener{l: l, on: on, waiting: newWaiting(maxWaiting), brief: make(chan struct{}, Places(maxBrief))}
	go ln.run()
	return ln, nil
}

// Port is the port of the listener.
func (l *Listener) Port() uint16 { return plain(l.l.Addr()).Port() }

// Close ends the listener and the connections whose request has not come yet. It does not wait for on.
func (l *Listener) Close() {
	_ = l.l.Close()
	l.waiting.close()
}

func (l *Listener) run() {
	for {
		c, err := l.l.AcceptTCP()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // no descriptors are left, or the client has gone
			time.Sleep(acceptWait)
			continue
		}
		_, remote := addrsOf(c)
		if w := l.waiting.enter(c, remote.Addr()); w != nil {
			go l.ask(c, w)
			continue
		}
		select {
		case l.brief <- struct{}{}:
			go l.askBriefly(c)
		default:
			_ = c.Close()
		}
	}
}

// askBriefly is ask for a connection without a place.
func (l *Listener) askBriefly(c *net.TCPConn) {
	fdset.AddConn(c)
	s := iwarp.Respond(0)
	_ = c.SetDeadline(time.Now().Add(briefWait))
	step, _ := readFrame(c, s)
	<-l.brief
	if step != iwarp.Asked || l.waiting.isClosed() {
		_ = c.Close()
		return
	}
	_ = c.SetDeadline(time.Time{})
	l.on(&Request{tcp: c, setup: s})
}

// ask reads the request of a connection.
func (l *Listener) ask(c *net.TCPConn, w *waiter) {
	fdset.AddConn(c)
	s := iwarp.Respond(0)
	_ = c.SetDeadline(time.Now().Add(time.Duration(s.Deadline())))
	step, _ := readFrame(c, s)
	if !l.waiting.leave(w) || step != iwarp.Asked {
		_ = c.Close()
		return
	}
	_ = c.SetDeadline(time.Time{})
	l.on(&Request{tcp: c, setup: s})
}
