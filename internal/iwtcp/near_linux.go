package iwtcp

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/iwarp"
	"github.com/verbena-rdma/verbena/internal/link/shm"
	"github.com/verbena-rdma/verbena/internal/transport"
)

// near is the way of a connection between two processes of a user on one host: through memory that they share (decision
// 44). TCP keeps the connection, and carries each direction up to its Switch and its end.
//
//	initiator   Offer, a random token                  over TCP
//	responder   the token; both pass their memory      over a unix socket
//	both        ready: the memory of the peer is read  over the unix socket
//	both        Switch; what follows is in the memory  over TCP
//
// The socket's name does not tell the token, so the process that has it receives this stream. Else a process of another
// user could have two streams of this user exchange their bytes.
type near struct {
	*shm.Duplex
	token     uint64 // of shm.ListenDuplex
	asked     bool   // the initiator has made its offer, or the responder has answered one
	switching bool   // Switch was given to the machine
	out, in   bool   // what this side sends, what it receives, goes through memory
	hot       bool   // pollers look at the memory: the peer need not wake this side. Written with loop.turn held too
	over      bool   // the peer has closed its direction of TCP, or TCP has failed
	err       error
}

const (
	// offerAfter is how many bytes of both directions go over TCP before an offer. Two mappings and a descriptor are not
	// worth it for less.
	offerAfter = 16 << 10
	// nearPiece is how much follows the payload that goes to its place, so that the next payload does too.
	nearPiece = 1 << 10
	// maxHandshakes limits the offers and answers of a process that are in progress. Others stay with TCP.
	maxHandshakes = 64
)

var handshakes = make(chan struct{}, maxHandshakes)

// handshake runs f in a goroutine, unless too many run. remote is the peer's address.
func handshake(remote netip.Addr, f func()) {
	select {
	case handshakes <- struct{}{}:
	default:
		return
	}
	go func() {
		defer func() { <-handshakes }()
		if shm.Enabled() && new(shm.Sockets).Local(remote) {
			f()
		}
	}()
}

// offerNear makes the offer of an initiator that has sent and received enough.
//
// +checklocks:q.mu
func (q *QP) offerNear() {
	if q.near.asked || q.trace.sent+q.trace.got < offerAfter || q.fd < 0 || !q.params.Initiator ||
		q.State() != transport.RTS {
		return
	}
	q.near.asked = true
	m := q.m
	handshake(q.trace.remote.Addr(), func() {
		l, err := shm.ListenDuplex()
		if err != nil {
			return
		}
		if !q.signalOffer(m, l.Token) {
			l.Close()
			return
		}
		if d, err := l.Accept(); err == nil {
			q.install(m, d, l.Token)
		}
	})
}

// signalOffer sends an offer, unless the connection has ended.
func (q *QP) signalOffer(m *iwarp.QP, token uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.m != m || q.fd < 0 || q.State() != transport.RTS {
		return false
	}
	m.Signal(iwarp.Signal{Kind: iwarp.Offer, Arg: token})
	q.drive()
	return true
}

// onSignal does what the peer has signaled, if anything. A token that was not agreed is ignored, as all others ignore
// signals.
//
// +checklocks:q.mu
func (q *QP) onSignal() {
	s := q.m.TakeSignal()
	switch {
	case s.Kind == iwarp.Offer && !q.near.asked && !q.params.Initiator && q.State() == transport.RTS:
		q.near.asked = true
		m := q.m
		handshake(q.trace.remote.Addr(), func() {
			if d, err := shm.DialDuplex(s.Arg); err == nil {
				q.install(m, d, s.Arg)
			}
		})
	case s.Kind == iwarp.Switch && q.near.Duplex != nil && s.Arg == q.near.token:
		q.near.in = true
		q.nearby.Store(true)
	}
}

// install gives a connection its memory, unless it has ended.
func (q *QP) install(m *iwarp.QP, d *shm.Duplex, token uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.m != m || q.fd < 0 || q.State() != transport.RTS || q.loop.add(q, d.FD()) != nil {
		d.Close()
		return
	}
	q.near.Duplex, q.near.token = d, token
	d.Start()
}

// onNear takes an event of a socket, or none.
//
// +checklocks:q.mu
func (q *QP) onNear(socket int, readable bool) {
	switch {
	case socket == q.near.FD():
		ready, gone := q.near.OnEvent()
		if gone {
			q.loop.remove(socket) // TCP tells why
		} else if ready && !q.near.switching {
			q.near.switching = true
			q.m.Signal(iwarp.Signal{Kind: iwarp.Switch, Arg: q.near.token})
		}
	case socket == q.fd && readable && q.near.in && !q.near.over:
		n, err := unix.Read(q.fd, make([]byte, 1))
		switch {
		case err == unix.EAGAIN || err == unix.EINTR:
			return
		case n > 0:
			err = unix.EPROTO // the peer sends by two ways
		}
		q.near.over, q.near.err = true, err
	}
}

// readNear is read of a direction that goes through memory. The end of TCP is that of what was sent before.
//
// +checklocks:q.mu
func (q *QP) readNear(place, buf []byte) (int, error) {
	n, err := q.near.Read(place, buf)
	if err == unix.EAGAIN && q.near.over {
		return 0, q.near.err
	}
	return n, err
}

// write writes to the stream.
//
// +checklocks:q.mu
func (q *QP) write(v [][]byte) (int, error) {
	if q.near.out {
		return q.near.Write(v)
	}
	if n, ok := q.m.BeforeSwitch(); ok {
		v = firstOf(v, n)
	}
	return unix.SendmsgBuffers(q.fd, v, nil, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
}

// flush ends a sequence of writes.
//
// +checklocks:q.mu
func (q *QP) flush() {
	if q.near.out {
		q.near.Flush()
	}
}

// firstOf returns the first n bytes of vectors.
func firstOf(v [][]byte, n uint64) (first [][]byte) {
	for _, b := range v {
		k := min(n, uint64(len(b)))
		if n -= k; k > 0 {
			first = append(first, b[:k])
		}
	}
	return first
}

// switchOut switches after the last byte of a Switch.
//
// +checklocks:q.mu
func (q *QP) switchOut() {
	if left, ok := q.m.BeforeSwitch(); ok && left == 0 {
		q.m.Switched()
		q.near.out = true
	}
}

// closeNear frees the memory with the connection.
//
// +checklocks:q.mu
func (q *QP) closeNear() {
	if q.near.Duplex != nil {
		q.loop.remove(q.near.FD())
		q.near.Close()
	}
	q.near = near{asked: true}
	q.nearby.Store(false)
}

// warm makes pollers look at the memory, because the peer has sent something and a program polls. It reports false if
// they do so already. The loop's turn is held.
func (q *QP) warm() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.near.hot || !q.near.in {
		return false
	}
	q.near.hot = true
	q.near.Awake()
	return true
}

// cool undoes warm. It reports false if there is something to receive. The loop's turn is held.
func (q *QP) cool() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.near.in && !q.eof && !q.near.Sleep() {
		return false
	}
	q.near.hot = false
	return true
}

// look runs the QP if there is something to receive. The loop's turn is held.
//
// +checklocksignore: the analyzer does not know TryLock
func (q *QP) look(buf []byte) (found bool) {
	if !q.mu.TryLock() {
		return false
	}
	defer q.mu.Unlock()
	if !q.near.in || q.eof || !q.near.Ready() {
		return false
	}
	q.receive(buf)
	q.drive()
	return true
}
