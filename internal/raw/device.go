package raw

import (
	"sync"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/transport"
)

// Config says what a Device is made of.
type Config struct {
	Regions *mr.Table
	// Memory is read-held while memory of regions is used, so that whoever removes one can wait for that to end.
	Memory *sync.RWMutex
	// Now reads the clock, nanoseconds.
	Now func() int64
	// Manual means that no timer runs: Step does what rate limits held back.
	Manual bool
}

// Counters of a device. Each only grows.
type Counters struct {
	TxFrames, TxBytes atomic.Uint64
	TxDropped         atomic.Uint64 // the network did not take them, or an egress rule dropped them
	RxFrames, RxBytes atomic.Uint64 // that came from the network
	RxUnsteered       atomic.Uint64 // no rule took them
	RxNoBuffer        atomic.Uint64 // the QP or WQ had no receive posted
	RxNotReady        atomic.Uint64 // the QP or WQ was not in a state to receive
}

// CQ is a completion queue.
type CQ interface {
	Push(e *transport.CQE)
	Broken() bool // it has overflowed
	PurgeSQ(q *transport.SendQueue)
	PurgeSRQ(q *transport.RecvQueue)
}

// Device steers frames between a link and its QPs and work queues.
type Device struct {
	cfg      Config
	link     link.Raw // while there are QPs
	Counters Counters

	mu      sync.Mutex // the table, the states of QPs and WQs, and what follows
	table   Table
	cur     arrival
	deliver func(*Rule) // bound once
	qps     []*QP
}

// arrival is the frame that rules look at.
type arrival struct {
	b       []byte
	h       Headers
	csumOK  bool
	checked bool // csumOK says something
}

// NewDevice makes a device without a link.
func NewDevice(c Config) *Device {
	d := &Device{cfg: c}
	d.deliver = func(r *Rule) { r.QP.receive(&d.cur, r.Tag) }
	return d
}

// Open gives the device a link, before it has QPs, and lets frames come.
func (d *Device) Open(l link.Raw) {
	d.link = l
	l.Start(d.receive)
}

// Close closes the link, when the QPs are gone.
func (d *Device) Close() error { return d.link.Close() }

// AddRule puts a prepared rule in force, RemoveRule ends that.
func (d *Device) AddRule(r *Rule) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.table.Add(r)
}

// RemoveRule takes a rule out. No frame meets it afterwards.
func (d *Device) RemoveRule(r *Rule) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.table.Remove(r)
}

// Count makes a rule count into c too.
func (d *Device) Count(r *Rule, c *Counter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r.Counters = append(r.Counters, c)
}

// receive takes a frame from the link.
func (d *Device) receive(b []byte, verified bool) {
	d.Counters.RxFrames.Add(1)
	d.Counters.RxBytes.Add(uint64(len(b)))
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.look(b) {
		return
	}
	if s := &d.cur.h.Outer; verified && s.IP == 4 && s.hasPorts() {
		d.cur.csumOK, d.cur.checked = true, true
	}
	d.table.sniff(b, d.deliver)
	if !d.table.receive(b, &d.cur.h, false, d.deliver) {
		d.Counters.RxUnsteered.Add(1)
	}
}

// look prepares a frame for the rules.
func (d *Device) look(b []byte) bool {
	d.cur.b, d.cur.csumOK, d.cur.checked = b, false, false
	return Parse(b, &d.cur.h)
}

// send runs the rules for a frame of one of the device's QPs, and sends it.
func (d *Device) send(b []byte) {
	if !d.sending(b) || d.link.Send(b) != nil {
		d.Counters.TxDropped.Add(1)
		return
	}
	d.Counters.TxFrames.Add(1)
	d.Counters.TxBytes.Add(uint64(len(b)))
}

// sending shows a frame to those on this side who look at it, and tells whether it may go.
func (d *Device) sending(b []byte) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := &d.table
	if len(t.egress)+len(t.sniffers)+len(t.rules) == 0 {
		return true
	}
	if !d.look(b) || !t.send(b, &d.cur.h) {
		return false
	}
	t.sniff(b, d.deliver)
	t.receive(b, &d.cur.h, true, d.deliver)
	return true
}

// verified tells whether the checksums of the frame are right.
func (a *arrival) verified() bool {
	if !a.checked {
		a.csumOK, a.checked = VerifyChecksums(a.b, &a.h), true
	}
	return a.csumOK
}

// Step lets QPs go on whose rate limit allows it now. It is for manual devices.
func (d *Device) Step() {
	for _, q := range d.list() {
		q.kick()
	}
}

// NextDeadline is when a Step can do something, transport.Never if none can.
func (d *Device) NextDeadline() int64 {
	next := int64(transport.Never)
	for _, q := range d.list() {
		if q.unsent() {
			next = min(next, max(q.pause.Load(), d.cfg.Now()))
		}
	}
	return next
}

func (d *Device) list() []*QP {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.qps
}
