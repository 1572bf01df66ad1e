package raw

import (
	"sync"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/transport"
)

// Config configures a Device.
type Config struct {
	Regions *mr.Table
	// Memory is read-locked while memory of regions is accessed, so that a writer can wait until a removed region
	// is unused.
	Memory *sync.RWMutex
	// Now returns the time in nanoseconds.
	Now func() int64
	// Manual disables the timer: Step resumes QPs after their rate limit's pause.
	Manual bool
}

// Counters are the counters of a device. Each only grows.
type Counters struct {
	TxFrames, TxBytes atomic.Uint64
	TxDropped         atomic.Uint64 // frames that the network did not take, or that an egress rule dropped
	RxFrames, RxBytes atomic.Uint64 // frames from the network
	RxUnsteered       atomic.Uint64 // frames that no rule matched
	RxNoBuffer        atomic.Uint64 // frames for a QP or WQ without a posted receive
	RxNotReady        atomic.Uint64 // frames for a QP or WQ whose state does not allow receiving
	RxBadDatagram     atomic.Uint64 // frames for a UD QP that are no valid RoCE packets, though of RoCE's port
	ESPRefused        atomic.Uint64 // frames that an ESP action could not encrypt, decrypt or authenticate
	ESPReplayed       atomic.Uint64 // frames outside of an ESP action's replay window, or received before
}

// CQ is a completion queue.
type CQ interface {
	Push(e *transport.CQE)
	Broken() bool // an overflow has occurred
	PurgeSQ(q *transport.SendQueue)
	PurgeSRQ(q *transport.RecvQueue)
}

// Device steers frames between a link and its QPs and work queues.
type Device struct {
	cfg      Config
	link     link.Raw     // set while there are QPs
	mtu      atomic.Int64 // of link
	Counters Counters

	mu sync.Mutex // guards the table, the states of QPs and WQs, and the fields below
	// +checklocks:mu
	table   Table
	cur     arrival
	changed changed
	// +checklocks:mu
	qps []*QP
	// +checklocks:mu
	wqs []*WQ
}

// arrival is the frame being matched against rules.
type arrival struct {
	b       []byte
	h       Headers
	csumOK  bool
	checked bool // csumOK is valid
}

// changed is the room for frames that ESP actions make of the frame being matched. Each goes into the room that the
// frame before is not in.
type changed struct {
	room [2][]byte
	last int
}

// NewDevice makes a device without a link.
func NewDevice(c Config) *Device { return &Device{cfg: c} }

// Open sets the device's link, before it has QPs, and starts receiving.
func (d *Device) Open(l link.Raw) {
	d.link = l
	d.MTUChanged()
	l.Start(d.receive)
}

// MTUChanged reads the MTU of the link, which is open, again.
func (d *Device) MTUChanged() { d.mtu.Store(int64(d.link.MTU())) }

// Close closes the link, after the QPs were removed.
func (d *Device) Close() error { return d.link.Close() }

// AddRule puts a prepared rule in force until RemoveRule.
func (d *Device) AddRule(r *Rule) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.table.Add(r)
}

// RemoveRule removes a rule. It matches no frame afterwards.
func (d *Device) RemoveRule(r *Rule) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.table.Remove(r)
}

// Count makes a rule also count into c.
func (d *Device) Count(r *Rule, c *Counter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r.Counters = append(r.Counters, c)
}

// receive processes a frame from the link.
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
	d.table.sniff(&d.cur, d)
	if !d.table.receive(&d.cur, false, d) {
		d.Counters.RxUnsteered.Add(1)
	}
}

// deliver passes the frame to the receiver of a rule. mu is held.
func (d *Device) deliver(r *Rule) { r.To.receive(d, &d.cur, r.Tag) }

// change replaces the frame by the one that the ESP action of a rule makes of it. mu is held.
func (d *Device) change(r *Rule) bool {
	c := &d.changed
	c.last ^= 1
	room := c.room[c.last]
	if need := len(d.cur.b) + maxESPOverhead + r.ESP.TFCPad; cap(room) < need {
		room = make([]byte, 0, need)
	}
	out, result := r.ESP.apply(room[:0], d.cur.b, &d.cur.h)
	c.room[c.last] = out[:0]
	switch result {
	case espDone:
		return d.look(out)
	case espReplayed:
		d.Counters.ESPReplayed.Add(1)
	case espRefused:
		d.Counters.ESPRefused.Add(1)
	}
	return false
}

// ChangeESP runs f, which changes ESP actions that rules may use.
func (d *Device) ChangeESP(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

// look parses a frame for the rules.
func (d *Device) look(b []byte) bool {
	d.cur.b, d.cur.csumOK, d.cur.checked = b, false, false
	return Parse(b, &d.cur.h)
}

// send applies the rules to a frame of one of the device's QPs, and sends it. room is the sender's, for a frame that
// an action makes of it.
func (d *Device) send(b []byte, room *[]byte) {
	b, ok := d.sending(b, room)
	if !ok || d.link.Send(b) != nil {
		d.Counters.TxDropped.Add(1)
		return
	}
	d.Counters.TxFrames.Add(1)
	d.Counters.TxBytes.Add(uint64(len(b)))
}

// sending shows a frame to the egress rules and sniffers of this side. It returns the frame to send, and whether there
// is one.
func (d *Device) sending(b []byte, room *[]byte) ([]byte, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := &d.table
	if len(t.egress)+len(t.sniffers)+len(t.rules) == 0 {
		return b, true
	}
	if !d.look(b) || !t.send(&d.cur, d) {
		return nil, false
	}
	if len(d.cur.b) > 0 && &d.cur.b[0] != &b[0] { // changed: the device's room has other frames once mu is released
		*room = append((*room)[:0], d.cur.b...)
		b = *room
	}
	t.sniff(&d.cur, d)
	t.receive(&d.cur, true, d)
	return b, true
}

// verified reports whether the checksums of the frame are right.
func (a *arrival) verified() bool {
	if !a.checked {
		a.csumOK, a.checked = VerifyChecksums(a.b, &a.h), true
	}
	return a.csumOK
}

// Step resumes the QPs whose rate limit permits sending now, in Manual mode.
func (d *Device) Step() {
	for _, q := range d.list() {
		q.kick()
	}
}

// NextDeadline returns the time of the next useful Step, transport.Never if there is none.
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
