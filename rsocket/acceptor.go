package rsocket

import (
	"net"
	"net/netip"
	"os"
	"sync"

	"github.com/verbena-rdma/verbena/internal/rs"
	"github.com/verbena-rdma/verbena/rdmacm"
)

// acceptor makes streams of the requests to a listening ID. It has one goroutine, which waits for nobody: the rest of each
// handshake is the hub's.
type acceptor struct {
	hub      *hub
	id       *rdmacm.ID
	ch       *rdmacm.EventChannel
	opts     func() Options // of the streams to come
	deadline deadline

	slots chan struct{} // a token for each stream that is being made or waits for the program
	queue chan *stream
	done  chan struct{}
	once  sync.Once

	mu     sync.Mutex
	closed bool    // done is closed: nothing is put into the queue any more
	others waiters // in Poll
}

// defaultBacklog is how many connections wait for the program, at most.
const defaultBacklog = 1024

// listen begins to take requests to addr. The acceptor leaves the hub in the end.
func listen(b *hub, id *rdmacm.ID, ch *rdmacm.EventChannel, backlog int, opts func() Options) (*acceptor, error) {
	if backlog <= 0 || backlog > defaultBacklog {
		backlog = defaultBacklog
	}
	if err := id.Listen(backlog); err != nil {
		return nil, err
	}
	a := &acceptor{
		hub: b, id: id, ch: ch, opts: opts, slots: make(chan struct{}, backlog), queue: make(chan *stream, backlog), done: make(chan struct{}),
	}
	go a.run()
	return a, nil
}

func (a *acceptor) addr() netip.AddrPort { return a.id.LocalAddr() }

// run takes requests while there is room in the queue. Others wait in the connection manager's backlog, or are lost there without
// an answer, so that the client tries again.
func (a *acceptor) run() {
	defer a.hub.leave()
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
		if !isRequest || !a.request(id, &asked) {
			<-a.slots
		}
	}
}

// request answers a request. It tells whether a stream came of it.
func (a *acceptor) request(id *rdmacm.ID, asked *rdmacm.ConnParam) bool {
	peer, err := rs.ParseConnData(asked.PrivateData)
	if err != nil {
		_ = id.Reject(nil) // it speaks another protocol (R-SOCK-16)
		_ = id.Close()
		return false
	}
	a.hub.join()
	st := newStream(a.hub, a.opts())
	st.id, st.ready = id, func() { a.onReady(st) }
	id.Context = st
	if err := id.Migrate(a.hub.ch); err != nil {
		_ = id.Close()
		a.hub.leave()
		return false
	}
	_ = st.accept(peer, asked) // an error has made st fail, and onReady sees to it
	return true
}

// onReady takes a stream whose handshake is over. st.mu is held.
func (a *acceptor) onReady(st *stream) {
	if st.state == streamConnected && a.enqueue(st) {
		return
	}
	<-a.slots
	go st.close(0)
}

// enqueue puts a stream into the queue, in which there is room: it has a slot. It tells whether it did.
func (a *acceptor) enqueue(st *stream) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return false
	}
	a.queue <- st
	a.others.wake()
	return true
}

// accept waits for a stream. With nonblock it does not wait: EAGAIN.
func (a *acceptor) accept(nonblock bool) (*stream, error) {
	if a.deadline.expired() {
		return nil, os.ErrDeadlineExceeded
	}
	var st *stream
	if nonblock {
		select {
		case st = <-a.queue:
		case <-a.done:
			return nil, net.ErrClosed
		default:
			return nil, errWouldBlock
		}
	} else {
		select {
		case st = <-a.queue:
		case <-a.done:
			return nil, net.ErrClosed
		case <-a.deadline.wait():
			return nil, os.ErrDeadlineExceeded
		}
	}
	<-a.slots
	return st, nil
}

func (a *acceptor) wakeOthers() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.others.wake()
}

// close ends listening. Connections that the program has not got are closed.
func (a *acceptor) close() error {
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
		for {
			select {
			case st := <-a.queue:
				st.close(0)
				continue
			default:
			}
			break
		}
	})
	return err
}
