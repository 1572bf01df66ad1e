package iwtcp

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/iwarp"
	"github.com/verbena-rdma/verbena/internal/link/pcap"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/transport"
)

// CQ is a completion queue.
type CQ interface {
	Push(e *transport.CQE)
	Broken() bool // an overflow has occurred
	PurgeNum(qpn uint32)
}

// Upcalls is how a QP reports to the layer above. The upcalls must not block or call back.
type Upcalls interface {
	Event(ev transport.Event)
	StateChanged(s transport.State)
}

// Config holds the parameters of a new QP.
type Config struct {
	Num            uint32
	PD             uint32
	SigAll         bool
	SQ             *transport.SendQueue
	RQ             *transport.RecvQueue // the QP's own, or an SRQ
	SendCQ, RecvCQ CQ
	Regions        *mr.Table
	// Memory is read-locked while memory of regions is accessed, so that a writer can wait until a removed region is
	// unused.
	Memory *sync.RWMutex
	Up     Upcalls
}

// QP is a queue pair.
type QP struct {
	Config
	dev   *Device
	loop  *loop
	id    uint64
	state atomic.Uint32

	nearby atomic.Bool // what the peer sends comes through memory

	mu sync.Mutex
	// +checklocks:mu
	access mr.Access
	// +checklocks:mu
	m *iwarp.QP // nil before Start, unless the QP is in ERR
	// +checklocks:mu
	fd int // -1: there is no stream
	// +checklocks:mu
	vec [][]byte
	// +checklocks:mu
	room bool // room for writing is watched
	// +checklocks:mu
	deaf bool // data to read is not watched
	// +checklocks:mu
	shut bool // this side has closed its direction
	// +checklocks:mu
	eof bool // the peer has closed its direction, or the stream is lost
	// +checklocks:mu
	ended func(silent bool)
	// +checklocks:mu
	silent bool // the stream is lost: the peer does not answer
	// +checklocks:mu
	timer *time.Timer // of the end
	// +checklocks:mu
	quiet bool // the program moves the QP: the machine's report of its state is not passed on
	// +checklocks:mu
	dead bool
	// +checklocks:mu
	trace trace
	// +checklocks:mu
	near near
	// +checklocks:mu
	params iwarp.Params // of the connection
	// +checklocks:mu
	idle time.Duration // of keep-alive; 0: none
	// +checklocks:mu
	counters Counters // without those of TCP of the present connection: see countStream
}

var lastID atomic.Uint64

// NewQP makes a QP in RESET.
func (d *Device) NewQP(c Config) (*QP, error) {
	q := &QP{Config: c, dev: d, id: lastID.Add(1), fd: -1}
	var err error
	if q.loop, err = d.enter(q); err != nil {
		return nil, err
	}
	return q, nil
}

// State returns the state: RESET, INIT, RTS or ERR.
func (q *QP) State() transport.State { return transport.State(q.state.Load()) }

// machine makes the machine of a connection.
//
// +checklocks:q.mu
func (q *QP) machine(p iwarp.Params) {
	q.m = iwarp.NewQP(iwarp.Config{
		Num: q.Num, ID: q.id, PD: q.PD, SigAll: q.SigAll, SQ: q.SQ, RQ: q.RQ, SendCQ: q.SendCQ, RecvCQ: q.RecvCQ,
		Regions: q.Regions, Access: q.access, Host: (*host)(q), Counters: &q.counters.QP,
	}, p)
}

// Init moves the QP from RESET to INIT, or changes its rights there.
func (q *QP) Init(a mr.Access) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.State(); s != transport.Reset && s != transport.Init || q.dead {
		return transport.ErrMoved
	}
	q.access = a
	q.state.Store(uint32(transport.Init))
	return nil
}

// Fail moves the QP to ERR for the program. The connection is cut, unless it is ending already.
func (q *QP) Fail() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.State() == transport.Err || q.dead {
		return
	}
	q.quiet = true
	if q.m == nil {
		q.machine(iwarp.Params{})
	}
	q.state.Store(uint32(transport.Err))
	q.m.Move()
	q.quiet = false
	if q.fd >= 0 {
		_ = unix.SetsockoptLinger(q.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		q.traceEnd(true, pcap.FlagRST)
		q.shut = true
	}
	q.close()
}

// Reset moves the QP to RESET: the connection ends, requests and completions are dropped.
func (q *QP) Reset() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.reset()
}

// +checklocks:q.mu
func (q *QP) reset() {
	if q.fd >= 0 && q.shut && !q.eof {
		q.linger()
	}
	q.close()
	q.SQ.Lock() // no post is between its look at the state and its end
	q.state.Store(uint32(transport.Reset))
	q.SQ.Unlock()
	if q.m != nil {
		q.m.Abandon()
		q.m = nil
	}
	q.SendCQ.PurgeNum(q.Num)
	q.RecvCQ.PurgeNum(q.Num)
	q.SQ.Clear() // last: completions that are purged free places
	if !q.RQ.Shared() {
		q.RQ.Clear()
	}
	q.eof, q.shut, q.room, q.deaf, q.silent = false, false, false, false, false
	q.trace = trace{}
}

// Destroy ends the QP.
func (q *QP) Destroy() {
	q.mu.Lock()
	if q.dead {
		q.mu.Unlock()
		return
	}
	q.dead = true
	q.reset()
	q.mu.Unlock()
	q.dev.leave(q)
}

// PostSend calls post, which adds work requests to the locked send queue, and sends them.
func (q *QP) PostSend(post func(*transport.SendQueue) error) error {
	q.SQ.Lock()
	if s := q.State(); s != transport.RTS && s != transport.Err {
		q.SQ.Unlock()
		return transport.ErrState
	}
	err := post(q.SQ)
	q.SQ.Publish()
	q.SQ.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.drive()
	return err
}

// PostedRecv must be called after receives were posted to the QP's own queue: in ERR they are flushed.
func (q *QP) PostedRecv() {
	if q.State() != transport.Err {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.m != nil {
		q.m.OnPosted()
	}
}

// host is how the machine reports.
type host QP

// Raise implements iwarp.Host.
func (h *host) Raise(ev transport.Event) { h.Up.Event(ev) }

// StateChanged implements iwarp.Host. The machine moves to ERR only.
func (h *host) StateChanged(s transport.State) {
	h.state.Store(uint32(s))
	if !(*QP)(h).moving() {
		h.Up.StateChanged(s)
	}
}

// moving reports whether the program moves the QP. The lock is held: the machine calls.
//
// +checklocksignore
func (q *QP) moving() bool { return q.quiet }
