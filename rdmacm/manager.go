package rdmacm

import (
	"crypto/rand"
	"sync"
	"time"

	"github.com/verbena-rdma/verbena/internal/cm"
	"github.com/verbena-rdma/verbena/internal/gsi"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
	"github.com/verbena-rdma/verbena/umad"
)

// manager is the connection management of one device: the state machine of internal/cm, with the lock, the clock, QP
// 1 and the goroutine that it needs. Every call of the machine is a method in calls.go: it takes the lock, calls the
// machine, and sends the datagrams that the call has composed (flush). The machine's events are queued, and dispatch
// (dispatch.go) passes them to the IDs, in their order and without the lock.
//
// Locks are taken in this order; a goroutine that holds one takes only later ones:
//
//	manager.delivering
//	ID.mu              of a listener before that of the new ID of a request
//	Host.mu
//	neighbours.mu, routeMTUs.mu
//	manager.mu
//	EventChannel.mu, then acks.mu
//	deathNotices.mu
//
// A goroutine that holds an ID's lock does not deliver events, as delivering comes first: it wakes the manager's
// goroutine, which does. A goroutine that holds a lock of internal/engine may take deathNotices.mu, and none of the
// others.
type manager struct {
	dev   *device
	port  *umad.Port
	agent *umad.Agent
	epoch time.Time
	kick  chan struct{} // has a token when run has to look at timers, events or death notices
	stop  chan struct{}
	ended sync.WaitGroup // run and keepVigil

	vigil        vigil
	asking       asking
	unwatchPeers func()
	unscreen     func() // once: a device that comes back has another manager with its own screen
	notices      deathNotices

	delivering sync.Mutex // held by the one goroutine that passes events to IDs

	mu sync.Mutex
	// +checklocks:mu
	machine *cm.Machine
	// The datagrams and the events of the present call.
	// +checklocks:mu
	batch cm.Batch
	// +checklocks:mu
	events eventQueue
	// Of the datagram that is being sent; it would have an allocation of its own otherwise.
	// +checklocks:mu
	to umad.Address
	// When run looks at the timers next.
	// +checklocks:mu
	wakeAt int64
	// +checklocks:mu
	closed bool
}

// newManager opens QP 1 of a device and starts the connection management.
func newManager(d *device) (*manager, error) {
	port, err := umad.Open(d.vdev)
	if err != nil {
		return nil, err
	}
	m := &manager{
		dev: d, port: port, epoch: time.Now(), kick: make(chan struct{}, 1), stop: make(chan struct{}), vigil: newVigil(d),
	}
	m.agent, err = port.Register(umad.Registration{
		Class: umad.ClassCM, ClassVersion: cmmsg.ClassVersion, Methods: []uint8{umad.MethodSend}, Handler: m.receive,
	})
	if err != nil {
		_ = port.Close()
		return nil, err
	}
	c := cm.Config{GUID: d.vdev.GUID().Uint64(), AckDelay: d.attr.LocalCAAckDelay, Agent: m.agent.ID()}
	c.IDPrefix, c.IDBits = gsi.CommIDs(port)
	c.MTU, c.HasPKey = d.mtuCode, d.hasPKeyAt
	c.LastWills = c.IDBits > 0 // other processes share the device and can send them
	_, _ = rand.Read(c.Seed[:])
	machine := cm.New(c)
	m.mu.Lock()
	m.wakeAt, m.machine = cm.Never, machine
	m.mu.Unlock()
	gsi.Screen(port, machine.Guard())
	m.unscreen = sync.OnceFunc(func() { gsi.Screen(port, nil) })
	m.ended.Go(m.run)
	m.unwatchPeers = gsi.WatchPeers(port, m.onPeerDeath)
	return m, nil
}

// end stops the connection management, once.
func (m *manager) end() {
	m.mu.Lock()
	was := m.closed
	m.closed = true
	if m.vigil.next != nil {
		m.vigil.next.Stop()
	}
	m.mu.Unlock()
	if was {
		return
	}
	m.unscreen()
	_ = m.agent.Close()
	m.unwatchPeers()
	m.dev.unwatch()
	close(m.stop)
	m.vigil.end()
	m.ended.Wait()
}

func (m *manager) now() int64 { return int64(time.Since(m.epoch)) }

// receive is the agent's handler: it passes a datagram to the machine, and the resulting events to the IDs.
func (m *manager) receive(r *umad.Received) {
	m.mu.Lock()
	if m.machine != nil && !m.closed {
		key := m.dev.pkeyOf(m.dev.portOf(r.From.Local), r.From.PKeyIndex)
		m.machine.OnMAD(m.now(), key, r.From.Remote, r.From.Local, r.MAD, &m.batch)
		m.flush()
	}
	m.mu.Unlock()
	m.deliver()
}

// run is the manager's goroutine: timers, death notices, and events of calls made under an ID's lock.
func (m *manager) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait := m.runTimers()
		m.deliver()
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-m.kick:
		case <-m.stop:
			return
		}
	}
}

// runTimers does what is due and returns the time to the next deadline.
func (m *manager) runTimers() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.readNotices()
	for m.machine.NextDeadline() <= m.now() {
		m.machine.OnTimer(m.now(), &m.batch)
		m.flush()
	}
	m.wakeAt = m.machine.NextDeadline()
	return time.Duration(m.wakeAt - m.now())
}

// wake makes run go round once more.
func (m *manager) wake() {
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// finish ends a call of the machine that was made under an ID's lock: it flushes the batch and leaves the events to
// run.
//
// +checklocks:m.mu
func (m *manager) finish() {
	m.flush()
	if len(m.events.in) > 0 {
		m.wake()
	}
}

// finishSent is finish of a call after which the program may exit: the datagrams of the call, if any, have been handed
// to the network when it returns. It unlocks the manager.
//
// +checklocksrelease:m.mu
func (m *manager) finishSent() {
	sends := len(m.batch.Mail) > 0
	m.finish()
	m.mu.Unlock()
	if sends {
		m.agent.Flush()
	}
}

// flush sends the datagrams of the batch, queues its events and sets the alarm. Last wills are updated first: if
// the process is killed in between, its last will has all that its peers were sent.
//
// +checklocks:m.mu
func (m *manager) flush() {
	m.machine.LastWills(m.updateWill)
	for i := range m.batch.Mail {
		mail := &m.batch.Mail[i]
		// A datagram that cannot be sent counts as lost: the machine sends it again. That goes for one whose partition the
		// port has left, too.
		index, _, ok := m.dev.partition(m.dev.portOf(mail.Path.Src), mail.Path.PKey)
		if !ok {
			continue
		}
		m.to = umad.Address{
			Local: mail.Path.Src, Remote: mail.Path.Dst, TClass: mail.Path.TClass, HopLimit: mail.Path.HopLimit,
			PKeyIndex: index,
		}
		_ = m.agent.Send(&m.to, mail.MAD[:])
	}
	for _, ev := range m.batch.Events {
		ev.Msg = kept(&ev)
		m.events.push(ev)
	}
	m.batch.Reset()
	if m.machine.NextDeadline() < m.wakeAt {
		m.wake()
	}
	m.startVigil(time.Duration(askEvery.Load()))
}
