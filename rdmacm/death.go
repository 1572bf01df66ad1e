package rdmacm

import (
	"sync"

	"github.com/verbena-rdma/verbena/internal/cm"
	"github.com/verbena-rdma/verbena/internal/gsi"
)

// deathNotices is the list of deaths of peers that the machine has not taken yet. The engine adds to it while it
// holds a shard, and a goroutine that holds manager.mu may wait for the shard: so the list has a lock of its own.
type deathNotices struct {
	mu sync.Mutex
	// +checklocks:mu
	deaths []cm.Death
}

// onPeerDeath is called by the engine when a peer's process has died.
func (m *manager) onPeerDeath(p gsi.PeerDeath) {
	m.notices.mu.Lock()
	m.notices.deaths = append(m.notices.deaths, cm.Death{Peer: p.Peer, RemoteQPN: p.DestQPN, LocalQPN: p.QPN,
		Silent: p.Silent})
	m.notices.mu.Unlock()
	m.wake()
}

// readNotices passes the death notices to the machine.
//
// +checklocks:m.mu
func (m *manager) readNotices() {
	m.notices.mu.Lock()
	deaths := m.notices.deaths
	m.notices.deaths = nil
	m.notices.mu.Unlock()
	if len(deaths) > 0 {
		m.machine.OnDeath(m.now(), deaths, &m.batch)
		m.flush()
	}
}

// settle passes the death notices to the machine and their events to the IDs. The caller holds no lock.
func (m *manager) settle() {
	m.mu.Lock()
	if !m.closed {
		m.readNotices()
	}
	m.mu.Unlock()
	m.deliver()
}

// updateWill keeps the last will of an ID with the other processes that share the device: the datagram that they send
// if this process dies. With mad nil there is no last will any more. It is called by the machine, and so under m.mu.
func (m *manager) updateWill(id *cm.ID, mad []byte) {
	will, _ := id.LastWill.(gsi.LastWill)
	switch {
	case mad == nil && will != nil:
		will.Drop()
		id.LastWill = nil
	case mad == nil:
	case will == nil:
		p := id.Path()
		// The path of a request has the peer's entry for the partition, which may be of a limited member.
		_, key, ok := m.dev.partition(m.dev.portOf(p.Src), p.PKey)
		if !ok {
			return
		}
		if will = gsi.NewLastWill(m.port, p.Src, p.Dst, p.TClass, p.HopLimit, key); will == nil {
			return
		}
		id.LastWill = will
		fallthrough
	default:
		will.Set(mad)
	}
}
