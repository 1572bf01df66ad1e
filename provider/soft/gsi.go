package soft

import (
	"net/netip"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/verbs"
)

// shared is the device's link if other processes may share it, nil otherwise.
func (p *pd) shared() link.Shared {
	l := p.ctx.eng.Link()
	if l == nil {
		return nil
	}
	s, _ := link.As[link.Shared](l)
	return s
}

// CommIDs tells how communication IDs begin; see verbs.PD.
func (p *pd) CommIDs() (prefix uint32, bits int) {
	if s := p.shared(); s != nil {
		return s.CommIDs()
	}
	return 0, 0
}

// ClaimService claims a service ID; see verbs.PD.
func (p *pd) ClaimService(id uint64, at netip.Addr) (release func(), err error) {
	if s := p.shared(); s != nil {
		return s.ClaimService(id, at)
	}
	return func() {}, nil
}

// Bequeath makes room for what other processes send for this one; see verbs.PD.
func (p *pd) Bequeath(local, remote netip.Addr, tclass, hopLimit uint8) verbs.Bequest {
	h, ok := link.As[link.Heirs](p.ctx.eng.Link())
	if !ok {
		return nil
	}
	return h.Bequeath(&link.Path{Src: local, Dst: remote, TClass: tclass, HopLimit: hopLimit})
}
