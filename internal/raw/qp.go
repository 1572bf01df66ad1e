package raw

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/internal/transport"
)

// Upcalls are the reports of a QP to the layer above. They must not block or call back.
type Upcalls interface {
	Event(ev transport.Event)
	StateChanged(s transport.State)
}

// QP sends and receives frames.
//
// A goroutine with work for the transmit side publishes it first (a posted request, a state), then tries the lock
// tx; the holder of tx unlocks first, then checks the published work. Only Modify and Remove wait for tx.
type QP struct {
	Num    uint32
	PD     uint32
	SigAll bool
	SQ     *transport.SendQueue // nil: no send queue
	SendCQ CQ
	RQ     *RQ  // nil with RSS
	RSS    *RSS // nil: no RSS
	Up     Upcalls

	dev   *Device
	state atomic.Uint32 // written with the device's mu held, or from RTS to SQE by the holder of tx

	tx    sync.Mutex // guards the fields below
	sent  atomic.Uint32
	pause atomic.Int64 // time before which nothing is sent
	begun atomic.Bool  // some frames of the oldest request were sent, not all
	sender
}

// RSS spreads the frames of a QP over work queues.
type RSS struct {
	Table  []*WQ // length is a power of two
	Key    [KeyLen]byte
	Fields HashFields
}

// AddQP adds a QP in RESET to the device.
func (d *Device) AddQP(q *QP) {
	q.dev = d
	d.mu.Lock()
	defer d.mu.Unlock()
	d.qps = append(slices.Clone(d.qps), q)
}

// State returns the QP's state.
func (q *QP) State() transport.State { return transport.State(q.state.Load()) }

// Modify makes a transition. transport.ErrMoved reports that the QP has changed its state by itself, so that the
// transition does not exist any more.
func (q *QP) Modify(to transport.State) error { return q.modify(to, nil) }

// ModifyWithRate is Modify followed by Limit, if Modify succeeds.
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
	if !q.State().CanMove(to) {
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
	q.cut.left = 0
	q.begun.Store(false)
	q.limit = RateLimit{}
	if q.SQ != nil {
		q.SendCQ.PurgeSQ(q.SQ)
		q.sent.Store(q.SQ.Clear())
	}
	if q.RQ != nil {
		q.RQ.reset()
	}
}

func (q *QP) flushReceives() {
	if q.RQ != nil {
		q.RQ.flush(q.Num)
	}
}

// PostSend calls fill to put requests into the locked send queue, and sends them.
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

// PostedRecv must be called after receives were posted to the QP's own queue: in ERR it flushes them.
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

// Remove removes the QP, which no rule refers to, from the device. Its requests get no completion.
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

// receive processes a frame that a rule steers to the QP. The device's mu is held.
func (q *QP) receive(_ *Device, a *arrival, tag uint32) {
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

// fail moves the QP to ERR after a failure on the receive side. The device's mu is held.
//
// +checklocksignore: the analyzer does not follow TryLock.
func (q *QP) fail(f *failed) {
	q.state.Store(uint32(transport.Err))
	q.Up.StateChanged(transport.Err)
	q.RQ.report(f)
	q.flushReceives()
	for q.unsent() && q.tx.TryLock() { // otherwise its holder does it; the state cannot change meanwhile
		q.flushSends()
		q.tx.Unlock()
	}
	if f.receive == nil {
		q.Up.Event(transport.EventQPFatal)
	}
}

// unsent reports whether requests wait to be sent or flushed.
func (q *QP) unsent() bool {
	if q.SQ == nil || q.sent.Load() == q.SQ.Posted() {
		return false
	}
	switch s := q.State(); s {
	case transport.RTS, transport.SQE, transport.Err:
		return true
	default:
		return s == transport.SQD && q.begun.Load() // V-QPS-10
	}
}

// sends reports whether the state permits sending the frames of the oldest request.
func (q *QP) sends() bool {
	s := q.State()
	return s == transport.RTS || s == transport.SQD
}

// Draining reports whether the QP is in SQD and has not sent all frames of a request.
func (q *QP) Draining() bool { return q.State() == transport.SQD && q.begun.Load() }

// due reports whether the rate limit permits sending now.
func (q *QP) due() bool {
	if !q.unsent() {
		return false
	}
	p := q.pause.Load()
	return p == 0 || !q.sends() || p <= q.dev.cfg.Now()
}

// kick sends waiting requests, unless another goroutine is sending.
//
// +checklocksignore: the analyzer does not follow TryLock.
func (q *QP) kick() {
	for q.due() && q.tx.TryLock() {
		q.transmit()
		q.tx.Unlock()
	}
}

// RateLimit is a bound on the rate of a QP. The zero value is no limit.
type RateLimit struct {
	Kbps  uint32
	Burst uint32 // bytes that may be sent at once after a pause; 0: the rate times burstTime
}

// burstTime is longer than a timer may be late.
const burstTime = 2 * time.Millisecond

// Limit sets the rate limit.
func (q *QP) Limit(l RateLimit) {
	q.tx.Lock()
	q.setLimit(l)
	q.tx.Unlock()
	q.kick()
}
