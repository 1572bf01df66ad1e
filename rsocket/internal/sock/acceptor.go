package sock

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/rs"
	"github.com/verbena-rdma/verbena/rdmacm"
)

// An Acceptor makes streams from the requests to a listening ID. It has one goroutine, which never waits for a client:
// the rest of each handshake runs on the hub.
type Acceptor struct {
	hub      *Hub
	id       *rdmacm.ID
	ch       *rdmacm.EventChannel
	opts     func() Options // of new streams
	deadline deadline

	slots   chan struct{} // a token for each stream in its handshake or in the queue
	queue   chan *Stream  // of connected streams, as large as slots
	backlog int           // run answers no request while the queue has this many streams
	room    chan struct{} // has a token after Accept has taken a stream
	done    chan struct{}
	gone    chan struct{} // closed when the device of the address was removed: no request comes any more
	once    sync.Once

	mu sync.Mutex
	// +checklocks:mu
	closed bool // no handshake begins, and nothing enters the queue any more
	// +checklocks:mu
	shaking map[*Stream]struct{} // in their handshake
	// +checklocks:mu
	others waiters // callers of Poll
}

// defaultBacklog is the largest number of connections that wait for Accept.
const defaultBacklog = 1024

// maxHalfOpen is the limit of handshakes that clients have not finished, for known and for unknown clients each: see
// rdmacm.ID.SetHalfOpenLimit. Each takes about 230 KB.
const maxHalfOpen = 256

// Listen starts to accept requests to the address of id. The acceptor leaves the hub when it ends.
func Listen(b *Hub, id *rdmacm.ID, ch *rdmacm.EventChannel, backlog int, opts func() Options) (*Acceptor, error) {
	if backlog <= 0 || backlog > defaultBacklog {
		backlog = defaultBacklog
	}
	if err := id.SetHalfOpenLimit(maxHalfOpen); err != nil {
		return nil, err
	}
	if err := id.Listen(backlog); err != nil {
		return nil, err
	}
	const all = 2*maxHalfOpen + defaultBacklog
	a := &Acceptor{
		hub: b, id: id, ch: ch, opts: opts, slots: make(chan struct{}, all), queue: make(chan *Stream, all),
		backlog: backlog, room: make(chan struct{}, 1), done: make(chan struct{}), gone: make(chan struct{}),
		shaking: map[*Stream]struct{}{},
	}
	go a.run()
	return a, nil
}

// Addr returns the local address.
func (a *Acceptor) Addr() netip.AddrPort { return a.id.LocalAddr() }

// run accepts requests while the queue has room. It holds one further request; the others wait in the backlog of the
// connection manager, which drops the excess without an answer, so that the clients try again. Handshakes under way
// when the queue becomes full still enter it.
func (a *Acceptor) run() {
	defer a.hub.Leave()
	for {
		select {
		case a.slots <- struct{}{}:
		case <-a.done:
			return
		}
		ev, err := a.ch.GetEvent(background)
		if err != nil {
			return // closed
		}
		id, asked, isRequest := ev.ID, ev.Conn, ev.Type == rdmacm.EventConnectRequest
		_ = ev.Ack()
		if isRequest && !a.awaitRoom() {
			_ = id.Close()
			return
		}
		if !isRequest || !a.request(id, &asked) {
			<-a.slots
		}
		if ev.Type == rdmacm.EventDeviceRemoval {
			a.onRemoval(id)
		}
	}
}

// awaitRoom waits while the queue is full. It looks only when there is a request, so that the handshake of the request
// before had the time between the two to enter the queue. It reports whether the acceptor is open.
func (a *Acceptor) awaitRoom() bool {
	for len(a.queue) >= a.backlog {
		select {
		case <-a.room:
		case <-a.done:
			return false
		}
	}
	return true
}

// onRemoval ends calls of Accept if the device of the listening ID was removed; each ID has that event once. The ID of
// a request on this channel may have it too, before its request.
func (a *Acceptor) onRemoval(id *rdmacm.ID) {
	if id == a.id {
		close(a.gone)
		a.wakeOthers()
	}
}

// request answers a request. It reports whether there is a stream for it.
func (a *Acceptor) request(id *rdmacm.ID, asked *rdmacm.ConnParam) bool {
	peer, err := rs.ParseConnData(asked.PrivateData)
	if err != nil {
		_ = id.Reject(nil) // the client speaks another protocol (R-SOCK-16)
		_ = id.Close()
		return false
	}
	a.hub.Join()
	st := NewStream(a.hub, a.opts())
	st.id = id
	st.mu.Lock()
	st.acceptor = a
	st.mu.Unlock()
	id.Context = st
	if err := id.Migrate(a.hub.Channel); err != nil {
		_ = id.Close()
		a.hub.Leave()
		return false
	}
	_ = st.accept(peer, asked) // after an error onReady closes st
	return true
}

// begin records a stream whose handshake begins. It reports whether the acceptor is open. st.mu is held.
//
// +checklocks:st.mu
func (a *Acceptor) begin(st *Stream) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed {
		a.shaking[st] = struct{}{}
	}
	return !a.closed
}

// onReady receives a stream whose handshake has ended. st.mu is held.
//
// +checklocks:st.mu
func (a *Acceptor) onReady(st *Stream) {
	if a.enqueue(st, st.state == streamConnected) {
		return
	}
	<-a.slots
	go st.Close(0)
}

// enqueue puts a stream into the queue if it is connected. The queue has room because the stream has a slot. It reports
// whether it did.
func (a *Acceptor) enqueue(st *Stream, connected bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.shaking, st)
	if a.closed || !connected {
		return false
	}
	a.queue <- st
	a.others.Wake()
	return true
}

// errGone is the error of Accept when no request can come any more.
var errGone = fmt.Errorf("the device was removed: %w", syscall.ENODEV)

// Accept waits for a stream. With nonblock it returns EAGAIN instead of waiting. ENODEV if the device was removed.
func (a *Acceptor) Accept(nonblock bool) (*Stream, error) {
	if err := a.ended(); err != nil {
		return nil, err
	}
	var st *Stream
	if nonblock {
		select {
		case st = <-a.queue:
		case <-a.done:
			return nil, net.ErrClosed
		case <-a.gone:
			return nil, errGone
		default:
			return nil, errWouldBlock
		}
	} else {
		select {
		case st = <-a.queue:
		case <-a.done:
			return nil, net.ErrClosed
		case <-a.gone:
			return nil, errGone
		case <-a.deadline.wait():
			return nil, os.ErrDeadlineExceeded
		}
	}
	<-a.slots
	select {
	case a.room <- struct{}{}:
	default:
	}
	return st, nil
}

// ended returns the reason why Accept must not begin. Close comes before the deadline: a server that continues after
// time-outs would not end.
func (a *Acceptor) ended() error {
	select {
	case <-a.done:
		return net.ErrClosed
	default:
	}
	if a.deadline.expired() {
		return os.ErrDeadlineExceeded
	}
	return nil
}

func (a *Acceptor) wakeOthers() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.others.Wake()
}

// endHandshakes closes the streams in their handshake: nobody will accept them.
func (a *Acceptor) endHandshakes() {
	a.mu.Lock()
	list := slices.Collect(maps.Keys(a.shaking))
	clear(a.shaking)
	a.mu.Unlock()
	for _, st := range list {
		st.mu.Lock()
		ours := st.acceptor == a // otherwise its handshake has just ended
		if ours {
			st.acceptor = nil
			st.fail(net.ErrClosed)
		}
		st.mu.Unlock()
		if ours {
			<-a.slots
			st.Close(0)
		}
	}
}

// Close ends listening, and closes the connections in the queue and those in their handshake.
func (a *Acceptor) Close() error {
	err := net.ErrClosed
	a.once.Do(func() {
		err = nil
		a.mu.Lock()
		a.closed = true
		a.mu.Unlock()
		close(a.done)
		a.wakeOthers()
		_ = a.id.Close()
		_ = a.ch.Close()
		a.endHandshakes()
		for {
			select {
			case st := <-a.queue:
				st.Close(0)
				continue
			default:
			}
			break
		}
	})
	return err
}

// SetDeadline ends calls of Accept at t; the zero time stands for never. net.ErrClosed after Close.
func (a *Acceptor) SetDeadline(t time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return net.ErrClosed
	}
	a.deadline.set(t)
	return nil
}
