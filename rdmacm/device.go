package rdmacm

import (
	"bytes"
	"crypto/rand"
	"net/netip"
	"sync"
	"time"

	"github.com/verbena-rdma/verbena/internal/cm"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
	"github.com/verbena-rdma/verbena/umad"
	"github.com/verbena-rdma/verbena/verbs"
)

// portNum is the port of a device that IDs use; RoCE devices have one.
const portNum = 1

// device is an RDMA device of a host and the connection management on it.
//
// The machine of internal/cm runs under mu. Whoever calls it sends the mail that comes of it at once, and leaves the
// events in a queue. pump hands them to the IDs, in their order, with mu free: locks are taken in the order
// pumping, ID.mu, Host.mu, device.mu. Those who hold an ID's lock do not pump, they wake the goroutine that does.
type device struct {
	host *Host
	vdev *verbs.Device
	ctx  *verbs.Context
	attr verbs.DeviceAttr
	caps verbs.DeviceCapFlags // those above 31 too

	// Guarded by Host.mu.
	users   map[*ID]struct{} // that are bound to it
	gone    bool
	started bool
	pd      *verbs.PD
	xrcd    *verbs.XRCD

	port  *umad.Port
	agent *umad.Agent
	epoch time.Time
	kick  chan struct{}
	eyes  *verbs.Context // for events of the device, which the program may want to get from ctx
	stop  chan struct{}
	ended sync.WaitGroup

	unwatchPeers func()
	obituary     obituary

	pumping sync.Mutex

	mu      sync.Mutex
	machine *cm.Machine
	batch   cm.Batch
	events  eventQueue
	wakeAt  int64 // when the goroutine looks at the timers
	closed  bool
}

func newDevice(h *Host, dev *verbs.Device) (*device, error) {
	ctx, err := dev.Open()
	if err != nil {
		return nil, err
	}
	attr, err := ctx.QueryDeviceEx()
	if err != nil {
		_ = ctx.Close()
		return nil, err
	}
	return &device{host: h, vdev: dev, ctx: ctx, attr: attr.Orig, caps: attr.DeviceCapFlagsEx, users: map[*ID]struct{}{}}, nil
}

// gidIndex is the index of a local address in the GID table, -1 if it is not there. The last one counts: index 0 may stand
// for no address.
func (d *device) gidIndex(a netip.Addr) int {
	table, err := d.ctx.QueryGIDTable()
	found := -1
	if err != nil || !a.IsValid() {
		return found
	}
	gid := verbs.GIDFromAddr(a)
	for _, e := range table {
		if e.GID == gid && e.Port == portNum {
			found = e.Index
		}
	}
	return found
}

// defaultPD is the PD of IDs that are not told another, one for the device. Host.mu is held.
func (d *device) defaultPD() (pd *verbs.PD, err error) {
	if d.pd == nil {
		d.pd, err = d.ctx.AllocPD()
	}
	return d.pd, err
}

// start opens QP 1 and begins to run the machine, once. Host.mu is held.
func (d *device) start() (err error) {
	if d.started {
		return nil
	}
	if d.port, err = umad.Open(d.vdev); err != nil {
		return err
	}
	c := cm.Config{GUID: d.vdev.GUID().Uint64(), AckDelay: d.attr.LocalCAAckDelay}
	c.IDPrefix, c.IDBits = d.port.CommIDs()
	c.LastWords = c.IDBits > 0 // there may be others who would say them
	_, _ = rand.Read(c.Seed[:])
	d.epoch, d.wakeAt = time.Now(), cm.Never
	d.kick, d.stop = make(chan struct{}, 1), make(chan struct{})
	d.agent, err = d.port.Register(umad.Registration{
		Class: umad.ClassCM, ClassVersion: cmmsg.ClassVersion, Methods: []uint8{umad.MethodSend}, Handler: d.receive,
	})
	if err != nil {
		_ = d.port.Close()
		return err
	}
	d.mu.Lock()
	c.Agent = d.agent.ID()
	d.machine = cm.New(c)
	d.mu.Unlock()
	d.ended.Go(d.run)
	d.unwatchPeers = d.port.WatchPeers(d.peerDied)
	d.watch()
	d.started = true
	d.host.tell()
	return nil
}

// close ends everything. No IDs are left and the host has forgotten the device. After an error it can be called again. Host.mu is not held, as
// it waits for goroutines that may wait for it.
func (d *device) close() error {
	if d.started {
		d.end()
		if err := d.port.Close(); err != nil {
			return err
		}
	}
	if d.xrcd != nil {
		if err := d.xrcd.Close(); err != nil {
			return err
		}
		d.xrcd = nil
	}
	if d.pd != nil {
		if err := d.pd.Close(); err != nil {
			return err
		}
		d.pd = nil
	}
	return d.ctx.Close()
}

// end ends the connection management, once.
func (d *device) end() {
	d.mu.Lock()
	was := d.closed
	d.closed = true
	d.mu.Unlock()
	if was {
		return
	}
	_ = d.agent.Close()
	d.unwatchPeers()
	d.unwatch()
	close(d.stop)
	d.ended.Wait()
}

func (d *device) now() int64 { return int64(time.Since(d.epoch)) }

// receive is the agent's Handler.
func (d *device) receive(r *umad.Received) {
	d.mu.Lock()
	if d.machine != nil && !d.closed {
		d.machine.OnMAD(d.now(), r.From.Remote, r.From.Local, r.MAD, &d.batch)
		d.flush()
	}
	d.mu.Unlock()
	d.pump()
}

// do runs a call of the machine.
func (d *device) do(f func(m *cm.Machine, now int64, out *cm.Batch) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := f(d.machine, d.now(), &d.batch)
	if d.flush() {
		d.wake()
	}
	return err
}

// flush sends the mail of the batch, keeps its events and sets the alarm. It tells whether there are events. d.mu is held.
func (d *device) flush() bool {
	d.machine.LastWords(d.bequeath) // before anybody hears of what they are about
	for i := range d.batch.Mail {
		m := &d.batch.Mail[i]
		// What cannot be sent is lost, as what is lost under way: the machine sends it again.
		_ = d.agent.Send(&umad.Address{Local: m.Path.Src, Remote: m.Path.Dst, TClass: m.Path.TClass, HopLimit: m.Path.HopLimit}, m.MAD[:])
	}
	for _, ev := range d.batch.Events {
		ev.Msg = bytes.Clone(ev.Msg)
		d.events.push(ev)
	}
	d.batch.Reset()
	if d.machine.NextDeadline() < d.wakeAt {
		d.wake()
	}
	return len(d.events.in) > 0
}

func (d *device) wake() {
	select {
	case d.kick <- struct{}{}:
	default:
	}
}

// run is the goroutine of the timers. It also pumps for those who cannot.
func (d *device) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		d.mu.Lock()
		d.tellDeaths()
		for d.machine.NextDeadline() <= d.now() {
			d.machine.OnTimer(d.now(), &d.batch)
			d.flush()
		}
		d.wakeAt = d.machine.NextDeadline()
		wait := time.Duration(d.wakeAt - d.now())
		d.mu.Unlock()
		d.pump()
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-d.kick:
		case <-d.stop:
			return
		}
	}
}

// pump hands the machine's events to the IDs.
func (d *device) pump() {
	d.pumping.Lock()
	defer d.pumping.Unlock()
	for {
		d.mu.Lock()
		events := d.events.take()
		d.mu.Unlock()
		if len(events) == 0 {
			return
		}
		for i := range events {
			d.handle(&events[i])
		}
		d.mu.Lock()
		d.events.giveBack(events)
		d.mu.Unlock()
	}
}

// eventQueue has two lists, one that is added to while the events of the other are handled.
type eventQueue struct{ in, spare []cm.Event }

func (q *eventQueue) push(ev cm.Event) { q.in = append(q.in, ev) }

// take takes all events out. The caller gives the list back when it is through with it.
func (q *eventQueue) take() (events []cm.Event) {
	if len(q.in) > 0 {
		events, q.in, q.spare = q.in, q.spare, nil
	}
	return events
}

func (q *eventQueue) giveBack(events []cm.Event) {
	clear(events)
	q.spare = events[:0]
}
