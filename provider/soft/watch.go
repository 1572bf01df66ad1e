package soft

import (
	"net/netip"
	"sync"

	"github.com/verbena-rdma/verbena/verbs"
)

// watchers are told when the process of a QP's peer has died.
type watchers struct {
	mu sync.Mutex
	of map[*func(verbs.PeerDeath)]struct{}
}

// peerDied is called by a shard that is held.
func (w *watchers) peerDied(qpn, destQPN uint32, peer netip.Addr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for f := range w.of {
		(*f)(verbs.PeerDeath{QPN: qpn, DestQPN: destQPN, Peer: peer})
	}
}

// WatchPeers has f called for each QP whose peer has died; see verbs.PD.
func (p *pd) WatchPeers(f func(verbs.PeerDeath)) (stop func()) {
	w := &p.ctx.dev.watchers
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of == nil {
		w.of = map[*func(verbs.PeerDeath)]struct{}{}
	}
	w.of[&f] = struct{}{}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.of, &f)
	}
}
