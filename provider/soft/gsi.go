package soft

import (
	"net/netip"
	"sync"

	"github.com/verbena-rdma/verbena/internal/gsi"
	"github.com/verbena-rdma/verbena/internal/link"
)

// shared returns the device's link if other processes may share it, nil otherwise.
func (p *pd) shared() link.Shared {
	l := p.ctx.eng.Link()
	if l == nil {
		return nil
	}
	return l.Capabilities().Shared
}

// CommIDs returns the prefix of this process's communication IDs; see gsi.Driver.
func (p *pd) CommIDs() (prefix uint32, bits int) {
	if s := p.shared(); s != nil {
		return s.CommIDs()
	}
	return 0, 0
}

// ClaimService claims a service ID; see gsi.Driver.
func (p *pd) ClaimService(id uint64, at netip.Addr) (release func(), err error) {
	if s := p.shared(); s != nil {
		return s.ClaimService(id, at)
	}
	return func() {}, nil
}

// Screen sets what drops datagrams for QP 1 early; see gsi.Driver.
func (p *pd) Screen(s link.Screen) {
	if l := p.ctx.eng.Link(); l != nil {
		if c := l.Capabilities().Screener; c != nil {
			c.SetScreen(s)
		}
	}
}

// NewLastWill returns a last will, the packets that another process sends when this one dies; see gsi.Driver.
func (p *pd) NewLastWill(local, remote netip.Addr, tclass, hopLimit uint8, pkey uint16) gsi.LastWill {
	wills := p.ctx.eng.LastWills()
	if wills == nil {
		return nil
	}
	return wills.NewLastWill(&link.Path{Src: local, Dst: remote, TClass: tclass, HopLimit: hopLimit, PKey: pkey})
}

// watchers is the set of functions that are called when the process of a QP's peer has died.
type watchers struct {
	mu sync.Mutex // guards funcs
	// +checklocks:mu
	funcs map[*func(gsi.PeerDeath)]struct{}
}

// peerDied calls the functions. The engine calls it with a shard held.
func (w *watchers) peerDied(qpn, destQPN uint32, peer netip.Addr, silent bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for f := range w.funcs {
		(*f)(gsi.PeerDeath{QPN: qpn, DestQPN: destQPN, Peer: peer, Silent: silent})
	}
}

// WatchPeers registers a function that is called for each QP whose peer has died; see gsi.Driver.
func (p *pd) WatchPeers(f func(gsi.PeerDeath)) (stop func()) {
	w := &p.ctx.dev.watchers
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.funcs == nil {
		w.funcs = map[*func(gsi.PeerDeath)]struct{}{}
	}
	w.funcs[&f] = struct{}{}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.funcs, &f)
	}
}
