package soft

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"sync"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/xrcd"
	"github.com/verbena-rdma/verbena/verbs"
)

// A handle of an XRC_RECV QP of another process is a connection to that process, which has a handle in its place. The
// handle ends with the connection. After msgHandle the client sends requests, one at a time; the other end sends
// replies.

// handleRequest asks for one call of DriverQP: Query if Attr is nil, otherwise Modify.
type handleRequest struct {
	Attr *verbs.QPAttr    `json:",omitempty"`
	Mask verbs.QPAttrMask `json:",omitempty"`
}

// handleReply is an answer, or reports what happened meanwhile.
type handleReply struct {
	Event *verbs.EventType `json:",omitempty"`
	State *verbs.QPState   `json:",omitempty"`

	// Of an answer: the result of the call, or why it failed.
	Attr  *verbs.QPAttr `json:",omitempty"`
	Errno verbs.Errno   `json:",omitempty"`
	Error string        `json:",omitempty"`
}

// handleTimeout is the time that a process has to answer. A test shortens it.
var handleTimeout = 10 * time.Second

// serveHandle serves another process's handle of a QP of this one.
func (d *domain) serveHandle(c *xrcd.Conn, qpn uint32) {
	defer c.Close()
	h := d.openHere(qpn, distantEvents{c})
	if h == nil {
		reply(c, &handleReply{Errno: verbs.EINVAL})
		return
	}
	defer func() { _ = h.Destroy() }()
	reply(c, &handleReply{})
	for {
		b, err := c.Receive()
		if err != nil {
			return
		}
		var q handleRequest
		if json.Unmarshal(b, &q) != nil {
			return
		}
		reply(c, h.answer(&q))
	}
}

// answer makes the call that a request asks for.
func (h *handle) answer(q *handleRequest) *handleReply {
	attr, err := q.Attr, error(nil)
	if attr != nil {
		err = h.Modify(attr, q.Mask)
	} else {
		var now verbs.QPAttr
		now, err = h.Query()
		attr = &now
	}
	if err == nil {
		return &handleReply{Attr: attr}
	}
	r := &handleReply{Errno: syscall.EIO, Error: err.Error()}
	_ = errors.As(err, &r.Errno)
	return r
}

func reply(c *xrcd.Conn, r *handleReply) { c.Send(func(b []byte) []byte { return putJSON(b, r) }) }

// distantEvents reports a QP's events to the process of a handle.
type distantEvents struct{ *xrcd.Conn }

// Event reports an event.
func (e distantEvents) Event(ev verbs.EventType) { reply(e.Conn, &handleReply{Event: &ev}) }

// StateChanged reports a transition that the QP made by itself, or through another handle.
func (e distantEvents) StateChanged(s verbs.QPState) { reply(e.Conn, &handleReply{State: &s}) }

// distant is a DriverQP: a handle of an XRC_RECV QP of another process.
type distant struct {
	verbs.DriverUnsupported
	*xrcd.Conn
	qpn     uint32
	up      verbs.DriverQPEvents
	answers chan *handleReply // closed when the connection has ended
	over    sync.WaitGroup
	closed  chan struct{} // closed by Destroy

	asking sync.Mutex // held during a request
}

// openElsewhere makes a handle of a QP of another member, nil if none has a QP of this number.
func (d *domain) openElsewhere(qpn uint32, up verbs.DriverQPEvents) *distant {
	if d.member == nil {
		return nil
	}
	for n := range xrcd.Members {
		c, err := d.member.Dial(n)
		if err != nil {
			continue
		}
		q := &distant{Conn: c, qpn: qpn, up: up, answers: make(chan *handleReply), closed: make(chan struct{})}
		c.Send(func(b []byte) []byte { return binary.BigEndian.AppendUint32(append(b, byte(msgHandle)), qpn) })
		q.over.Go(q.receive)
		if _, err := q.await(); err == nil {
			return q
		}
		_ = q.Destroy()
	}
	return nil
}

// errEnded is the error of a handle whose process has ended.
var errEnded = fail(syscall.EIO, "the process of the QP has ended, and the QP with it")

// receive passes answers and events on until the connection ends. The QP ends with its process.
func (q *distant) receive() {
	defer close(q.answers)
	exists := false
	for {
		b, err := q.Receive()
		if err != nil {
			break
		}
		var r handleReply
		if json.Unmarshal(b, &r) != nil {
			break
		}
		switch {
		case r.Event != nil:
			q.up.Event(*r.Event)
		case r.State != nil:
			q.up.StateChanged(*r.State)
		default:
			exists = exists || r.Errno == 0
			select {
			case q.answers <- &r:
			case <-q.closed:
			}
		}
	}
	select {
	case <-q.closed:
		return
	default:
	}
	if exists {
		q.up.StateChanged(verbs.QPSErr)
		q.up.Event(verbs.EventQPFatal)
	}
}

// await returns the next answer.
func (q *distant) await() (*handleReply, error) {
	late := time.NewTimer(handleTimeout)
	defer late.Stop()
	select {
	case r, ok := <-q.answers:
		switch {
		case !ok:
			return nil, errEnded
		case r.Errno != 0:
			return nil, fail(r.Errno, "%s", r.Error)
		}
		return r, nil
	case <-late.C:
		q.Close() // a later answer would be that of the next request
		return nil, fail(syscall.ETIMEDOUT, "the process of QP 0x%06x did not answer within %v", q.qpn, handleTimeout)
	}
}

func (q *distant) ask(r handleRequest) (*handleReply, error) {
	q.asking.Lock()
	defer q.asking.Unlock()
	q.Send(func(b []byte) []byte { return putJSON(b, &r) })
	return q.await()
}

// QPN returns the number of the QP.
func (q *distant) QPN() uint32 { return q.qpn }

// Modify changes the QP for all handles.
func (q *distant) Modify(attr *verbs.QPAttr, mask verbs.QPAttrMask) error {
	r, err := q.ask(handleRequest{attr, mask})
	if err == nil && r.Attr != nil {
		*attr = *r.Attr
	}
	return err
}

// Query returns attributes and state. A QP whose process has ended is in ERR.
func (q *distant) Query() (verbs.QPAttr, error) {
	r, err := q.ask(handleRequest{})
	switch {
	case errors.Is(err, errEnded):
		return verbs.QPAttr{QPState: verbs.QPSErr}, nil
	case err != nil:
		return verbs.QPAttr{}, err
	case r.Attr == nil:
		return verbs.QPAttr{}, fail(syscall.EIO, "the process of QP 0x%06x answered without attributes", q.qpn)
	}
	return *r.Attr, nil
}

// PostSend returns EINVAL: the QP has no send queue.
func (*distant) PostSend([]verbs.SendWR) (int, error) { return (*handle)(nil).PostSend(nil) }

// PostRecv returns EINVAL: the QP has no receive queue.
func (*distant) PostRecv([]verbs.RecvWR) (int, error) { return (*handle)(nil).PostRecv(nil) }

// QueryECE returns no options: the device has no enhancements.
func (*distant) QueryECE() (verbs.ECE, error) { return verbs.ECE{}, nil }

// Destroy removes the handle.
func (q *distant) Destroy() error {
	close(q.closed)
	q.Close()
	q.over.Wait()
	return nil
}
