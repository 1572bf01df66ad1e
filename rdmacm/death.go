package rdmacm

import (
	"sync"

	"github.com/verbena-rdma/verbena/internal/cm"
	"github.com/verbena-rdma/verbena/umad"
	"github.com/verbena-rdma/verbena/verbs"
)

// obituary is the list of deaths that the machine has not been told of yet. The engine adds to it while it holds a shard, which
// whoever has device.mu may wait for, so it has a lock of its own.
type obituary struct {
	mu     sync.Mutex
	deaths []cm.Death
}

// peerDied is called by the engine.
func (d *device) peerDied(p verbs.PeerDeath) {
	d.obituary.mu.Lock()
	d.obituary.deaths = append(d.obituary.deaths, cm.Death{Peer: p.Peer, RemoteQPN: p.DestQPN, LocalQPN: p.QPN})
	d.obituary.mu.Unlock()
	d.wake()
}

// tellDeaths tells the machine. d.mu is held.
func (d *device) tellDeaths() {
	d.obituary.mu.Lock()
	deaths := d.obituary.deaths
	d.obituary.deaths = nil
	d.obituary.mu.Unlock()
	if len(deaths) > 0 {
		d.machine.OnDeath(d.now(), deaths, &d.batch)
		d.flush()
	}
}

// bequeath leaves the last word of an ID to the other processes that share the device, nil if it has none any more. d.mu is held.
func (d *device) bequeath(id *cm.ID, mad []byte) {
	b, _ := id.Bequest.(verbs.Bequest)
	switch {
	case mad == nil && b != nil:
		b.Drop()
		id.Bequest = nil
	case mad == nil:
	case b == nil:
		p := id.Path()
		if b = d.port.Bequeath(&umad.Address{Local: p.Src, Remote: p.Dst, TClass: p.TClass, HopLimit: p.HopLimit}); b == nil {
			return
		}
		id.Bequest = b
		fallthrough
	default:
		b.Set(mad)
	}
}
