package raw

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/internal/transport"
)

// Upcalls is how a QP reports to the layer above. They do not block or call back.
type Upcalls interface {
	Event(ev transport.Event)
	StateChanged(s transport.State)
}

// QP sends and receives frames.
//
// Whoever has something for the transmit side first publishes it (a posted request, a state), then tries the lock tx; its holder
// first lets go, then looks at what was published. Nobody waits for it but Modify and Remove.
type QP struct {
	Num    uint32
	PD     uint32
	SigAll bool
	SQ     *transport.SendQueue // nil without one
	SendCQ CQ
	RQ     *RQ  // nil with RSS
	RSS    *RSS // nil without
	Up     Upcalls

	dev   *Device
	state atomic.Uint32 // written with the device locked, or from RTS to SQE by the holder of tx

	tx    sync.Mutex // guards what follows
	sent  atomic.Uint32
	pause atomic.Int64 // nothing is sent before
	sender
}

// RSS spreads the frames of a QP over work queues.
type RSS struct {
	Table  []*WQ // a power of two
	Key    [KeyLen]byte
	Fields HashFields
}

// AddQP makes a QP, in RESET, one of the device's.
func (d *Device) AddQP(q *QP) {
	q.dev = d
	d.mu.Lock()
	defer d.mu.Unlock()
	d.qps = append(slices.Clone(d.qps), q)
}

// State is the QP's state.
func (q *QP) State() transport.State { return transport.State(q.state.Load()) }

// Modify makes a transition. transport.ErrMoved says that the QP has moved by itself, so that there is no such transition any more.
func (q *QP) Modify(to transport.State) error { return q.modify(to, nil) }

// ModifyWithRate is Modify, and Limit if that succeeds.
func (q *QP) ModifyWithRate(to transport.State, l RateLimit) error { return q.modify(to, &l) }

func (q *QP) modify(to transport.State, l *RateLimit) error {
	q.tx.Lock()
	err := q.move(to)
	if err == nil && l != nil {
		q.setLimit(*l)
	}
	q.tx.Unlock()
	q.kick()
	return err
}

func (q *QP) setLimit(l RateLimit) {
	q.limit = l
	q.tat = q.dev.cfg.Now()
	q.pause.Store(0)
}

func (q *QP) move(to transport.State) error {
	q.dev.mu.Lock()
	defer q.dev.mu.Unlock()
	if !possible(q.State(), to) {
		return transport.ErrMoved
	}
	q.state.Store(uint32(to))
	switch to {
	case transport.Reset:
		q.reset()
	case transport.Err:
		q.flushReceives()
	}
	return nil
}

func (q *QP) reset() {
	q.pause.Store(0)
	q.cut.left, q.cut.active = 0, false
	q.limit = RateLimit{}
	if q.SQ != nil {
		q.SendCQ.PurgeSQ(q.SQ)
		q.sent.Store(q.SQ.Clear())
	}
	if q.RQ != nil {
		q.RQ.reset()
	}
}

// possible tells whether there is a transition between two states.
func possible(from, to transport.State) bool {
	switch to {
	case transport.Reset, transport.Err:
		return true
	case transport.Init:
		return from == transport.Reset || from == transport.Init
	case transport.RTR:
		return from == transport.Init
	case transport.RTS:
		return from == transport.RTR || from >= transport.RTS && from <= transport.SQE
	case transport.SQD:
		return from == transport.RTS || from == transport.SQD
	case transport.SQE:
	}
	return false
}

func (q *QP) flushReceives() {
	if q.RQ != nil {
		q.RQ.flush(q.Num)
	}
}

// PostSend lets fill put requests in the send queue, which is locked meanwhile, and sends them.
func (q *QP) PostSend(fill func(*transport.SendQueue) error) error {
	q.SQ.Lock()
	if q.State() < transport.RTS {
		q.SQ.Unlock()
		return transport.ErrState
	}
	err := fill(q.SQ)
	q.SQ.Publish()
	q.SQ.Unlock()
	q.kick()
	return err
}

// PostedRecv must be called after receives were posted to the QP's own queue: in ERR they are flushed.
func (q *QP) PostedRecv() {
	if q.State() != transport.Err {
		return
	}
	q.dev.mu.Lock()
	defer q.dev.mu.Unlock()
	if q.State() == transport.Err {
		q.flushReceives()
	}
}

// Remove takes the QP, which no rule names, off the device. Its requests get no completion.
func (q *QP) Remove() {
	q.tx.Lock()
	defer q.tx.Unlock()
	_ = q.move(transport.Reset)
	d := q.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	d.qps = slices.DeleteFunc(slices.Clone(d.qps), func(o *QP) bool { return o == q })
	if q.timer != nil {
		q.timer.Stop()
	}
}

// receive takes a frame that a rule gives the QP. The device is locked.
func (q *QP) receive(a *arrival, tag uint32) {
	if s := q.State(); s < transport.RTR || s == transport.Err {
		q.dev.Counters.RxNotReady.Add(1)
		return
	}
	if r := q.RSS; r != nil {
		hash := Hash(&r.Key, r.Fields, a.b, &a.h)
		r.Table[hash&uint32(len(r.Table)-1)].receive(a, q.Num, tag)
		return
	}
	if f := q.RQ.take(q.dev, a, q.Num, tag); f != nil {
		q.fail(f)
	}
}

// fail moves the QP to ERR, from the receive side. The device is locked.
func (q *QP) fail(f *failed) {
	q.state.Store(uint32(transport.Err))
	q.Up.StateChanged(transport.Err)
	q.flushReceives()
	for q.unsent() && q.tx.TryLock() { // or its holder does it; the state cannot change meanwhile
		q.flushSends()
		q.tx.Unlock()
	}
	if f.fatal {
		q.Up.Event(transport.EventQPFatal)
	}
}

// unsent tells whether there is something that could be sent or flushed.
func (q *QP) unsent() bool {
	if q.SQ == nil || q.sent.Load() == q.SQ.Posted() {
		return false
	}
	s := q.State()
	return s == transport.RTS || s == transport.SQE || s == transport.Err
}

// due tells whether the time has come for what is unsent.
func (q *QP) due() bool {
	if !q.unsent() {
		return false
	}
	p := q.pause.Load()
	return p == 0 || q.State() != transport.RTS || p <= q.dev.cfg.Now()
}

// kick sends what there is to send, unless somebody is doing it.
func (q *QP) kick() {
	for q.due() && q.tx.TryLock() {
		q.transmit()
		q.tx.Unlock()
	}
}

// RateLimit bounds how fast a QP sends. The zero value does not.
type RateLimit struct {
	Kbps  uint32
	Burst uint32 // bytes that may go at once after a silence; 0: what the rate makes of burstTime
}

// burstTime is longer than what a timer may be late.
const burstTime = 2 * time.Millisecond

// Limit sets the rate.
func (q *QP) Limit(l RateLimit) {
	q.tx.Lock()
	q.setLimit(l)
	q.tx.Unlock()
	q.kick()
}
