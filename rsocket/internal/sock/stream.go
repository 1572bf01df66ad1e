package sock

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/rs"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// Stream is one end of a connection: the state machine of internal/rs, the objects of its device, and the waiting
// goroutines.
//
// mu guards the state. reading and writing are locked before mu; their owners copy data without mu. Every call with
// a reason processes completions for all. While no call is under way no goroutine does: the device places and
// acknowledges data by itself.
type Stream struct {
	hub  *Hub
	id   *rdmacm.ID
	opts Options
	poll time.Duration // the spin budget of a call; at most 0 for none

	reading fairLock // locked by the reader
	writing fairLock // locked by the writer
	read    direction
	write   direction

	mu sync.Mutex
	// +checklocks:mu
	state streamState
	// +checklocks:mu
	err error // of a connection that could not be made, or has failed
	// +checklocks:mu
	m *rs.Stream
	// +checklocks:mu
	peerKnown bool // a request has had the peer's parameters
	// +checklocks:mu
	established bool // the connection was made, and may have ended
	// +checklocks:mu
	closed bool // Close was called
	// +checklocks:mu
	stopWriting bool // the writer must return EPIPE
	// +checklocks:mu
	placing bool // the writer writes to IO maps
	// +checklocks:mu
	acceptor *Acceptor // gets the stream when its handshake has ended; nil afterwards, and for clients
	// +checklocks:mu
	errTold bool // TakeError has returned err
	// +checklocks:mu
	qpEnded bool // the QP is in ERR, because the connection is over
	// +checklocks:mu
	tries int    // attempts to resolve the address or the route
	route []byte // replaces route resolution

	res   resources
	words bool // message words come by SENDs (words.go)
	// +checklocks:mu
	armed bool // the CQ was asked for an event, which has not come yet
	// +checklocks:mu
	unposted int // receives that were consumed and not posted again
	// +checklocks:mu
	nextRecv int // with words: the receive to post next
	// +checklocks:mu
	sentOnce bool // something was posted since the last keepalive
	// +checklocks:mu
	keepalive *keepalive
	// +checklocks:mu
	others    waiters // goroutines that neither read nor write
	asleep    sleepers
	longPolls LongPolls

	// +checklocks:mu
	publish publishing
}

// direction has the deadline and the waiter of reading or of writing.
type direction struct {
	deadline deadline
	waiter   Waiter
}

type streamState uint8

const (
	streamNew streamState = iota
	streamConnecting
	streamConnected
	streamFailed // err has the reason
	streamClosed // its objects are destroyed
)

// NewStream returns a stream without a connection. The caller has joined the hub; Close leaves it.
func NewStream(b *Hub, opts Options) *Stream {
	st := &Stream{hub: b, opts: opts, poll: opts.Polling}
	st.reading.init()
	st.writing.init()
	st.read.waiter, st.write.waiter = NewWaiter(), NewWaiter()
	return st
}

// fail ends the connection with an error. mu is held.
//
// +checklocks:st.mu
func (st *Stream) fail(err error) {
	if st.state == streamFailed || st.state == streamClosed {
		return
	}
	st.state, st.err = streamFailed, err
	st.wakeAll()
	st.endHandshake()
}

// endHandshake passes the stream to its acceptor, once. mu is held.
//
// +checklocks:st.mu
func (st *Stream) endHandshake() {
	if a := st.acceptor; a != nil {
		st.acceptor = nil
		a.onReady(st)
	}
}

// breakOff is fail for a peer that broke the protocol. It also disconnects. mu is held.
//
// +checklocks:st.mu
func (st *Stream) breakOff(err error) {
	st.fail(&verbs.Error{Op: "rsocket", Obj: st.name(), Errno: syscall.EPROTO, Err: err})
	if st.id != nil {
		_ = st.id.Disconnect(background)
	}
}

// wakeAll wakes all waiters. mu is held.
//
// +checklocks:st.mu
func (st *Stream) wakeAll() {
	st.read.waiter.Wake()
	st.write.waiter.Wake()
	st.others.Wake()
}

func (st *Stream) name() string {
	if st.id == nil {
		return "stream"
	}
	return fmt.Sprintf("%v-%v", st.id.LocalAddr(), st.id.PeerAddr())
}

// IsConnecting reports whether the connection is being made.
func (st *Stream) IsConnecting() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.state == streamConnecting
}

// IsOver reports whether there was a connection, or an attempt, that has ended.
func (st *Stream) IsOver() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.closed || st.state == streamFailed || st.state == streamConnected && st.m.Disconnected()
}

// TakeError returns the error that ended the connection, once.
func (st *Stream) TakeError() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.errTold {
		return nil
	}
	st.errTold = st.err != nil
	return st.err
}

// LocalAddr returns the local address.
func (st *Stream) LocalAddr() netip.AddrPort { return st.id.LocalAddr() }

// IsMade reports whether the connection was made. It may have ended.
func (st *Stream) IsMade() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.established
}

// PeerAddr returns the address of the peer.
func (st *Stream) PeerAddr() netip.AddrPort { return st.id.PeerAddr() }

// onEvent processes an event of the connection manager.
func (st *Stream) onEvent(ev *cmEvent) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.state == streamClosed || st.state == streamFailed {
		return
	}
	switch ev.Type {
	case rdmacm.EventAddrResolved, rdmacm.EventRouteResolved, rdmacm.EventAddrError, rdmacm.EventRouteError:
		st.onResolved(ev)
	case rdmacm.EventEstablished:
		st.onEstablished(ev.Conn.PrivateData)
	case rdmacm.EventConnectError, rdmacm.EventUnreachable, rdmacm.EventRejected:
		st.fail(connectError(ev.Err))
	case rdmacm.EventDisconnected, rdmacm.EventDeviceRemoval:
		if st.state != streamConnected {
			st.fail(connectError(endError(ev.Type)))
			return
		}
		st.progress() // data that arrived before can still be read
		st.m.Disconnect()
		st.wakeAll()
	}
}

// endError is the reason of an event that ends a connection before it is made.
func endError(t rdmacm.EventType) error {
	if t == rdmacm.EventDeviceRemoval {
		return errGone
	}
	return syscall.ECONNRESET
}

// onEstablished starts the connection. A client gets the peer's parameters from the private data, a server has them
// from the request. mu is held.
//
// +checklocks:st.mu
func (st *Stream) onEstablished(private []byte) {
	if st.state != streamConnecting {
		return
	}
	if !st.peerKnown {
		peer, err := rs.ParseConnData(private)
		if err != nil {
			st.fail(versionError(err))
			_ = st.id.Disconnect(background)
			return
		}
		st.m.Connect(peer)
	}
	st.state, st.established = streamConnected, true
	st.postControls()
	st.wakeAll()
	st.endHandshake()
}

// versionError returns the error of private data that cannot be parsed.
func versionError(err error) error {
	errno := syscall.EPROTO
	if errors.Is(err, rs.ErrVersion) {
		errno = syscall.ENOTSUP
	}
	return &verbs.Error{Op: "connect", Errno: errno, Err: err}
}

// Hub returns the hub of the stream's host.
func (st *Stream) Hub() *Hub { return st.hub }

// SetRoute makes Connect use a route instead of resolving one: an array of struct ibv_path_data. It is called
// before Connect.
func (st *Stream) SetRoute(route []byte) { st.route = route }

// Options returns the sizes in use.
func (st *Stream) Options() Options {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.opts
}

// Paths returns the paths in use.
func (st *Stream) Paths() []rdmacm.PathRec { return st.id.Route().PathRec }

// Reading returns the mode of a read that waits until the read deadline.
func (st *Stream) Reading() WaitMode { return WaitMode{deadline: &st.read.deadline} }

// Writing returns the mode of a write that waits until the write deadline.
func (st *Stream) Writing() WaitMode { return WaitMode{deadline: &st.write.deadline} }

// SetDeadline sets the deadline of reading, of writing or of both; the zero time stands for none.
func (st *Stream) SetDeadline(t time.Time, read, write bool) error {
	if st.IsClosed() {
		return net.ErrClosed
	}
	setDeadlines(t, &st.read, read, &st.write, write)
	return nil
}
