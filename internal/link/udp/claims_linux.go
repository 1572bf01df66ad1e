package udp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// A serviceClaim makes the link the receiver of requests for a service ID, at one address or, if at is not valid, at
// all. It lasts until it is released, also while the link does not have the address. Link.mu guards it.
type serviceClaim struct {
	id      uint64
	at      netip.Addr
	members []*member // where the ID is claimed
}

// covers reports whether the claim holds at an address.
func (c *serviceClaim) covers(a netip.Addr) bool { return !c.at.IsValid() || c.at == a }

// claimService adds a claim of a service ID at the address of the member. Link.mu is held, here and in
// releaseService.
func (m *member) claimService(id uint64) error {
	if m.uses[id] == 0 {
		switch err := m.group.ClaimService(id); {
		case errors.Is(err, unix.EADDRINUSE):
			return fmt.Errorf("link/udp: another process listens on service ID 0x%x: %w", id, err)
		case err != nil:
			return fmt.Errorf("link/udp: claiming service ID 0x%x: %w", id, err)
		}
	}
	m.uses[id]++
	return nil
}

func (m *member) releaseService(id uint64) {
	if m.uses[id]--; m.uses[id] == 0 {
		delete(m.uses, id)
		m.group.ReleaseService(id)
	}
}

// ClaimService claims a service ID; see link.Shared.
func (l *Link) ClaimService(id uint64, at netip.Addr) (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &serviceClaim{id: id, at: at}
	for a, m := range l.members {
		if !c.covers(a) {
			continue
		}
		if err := m.claimService(id); err != nil {
			l.release(c)
			return nil, err
		}
		c.members = append(c.members, m)
	}
	l.claims[c] = struct{}{}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.release(c)
	}, nil
}

// release ends a claim. Link.mu is held, here and in the following.
func (l *Link) release(c *serviceClaim) {
	for _, m := range c.members {
		m.releaseService(c.id)
	}
	c.members = nil
	delete(l.claims, c)
}

// renewClaims makes the claims hold at an address that the link gets, unless another process has claimed the ID there.
func (l *Link) renewClaims(a netip.Addr, m *member) {
	for c := range l.claims {
		if c.covers(a) && m.claimService(c.id) == nil {
			c.members = append(c.members, m)
		}
	}
}

// forgetMember ends the claims at the address of a member that has left.
func (l *Link) forgetMember(m *member) {
	for c := range l.claims {
		c.members = slices.DeleteFunc(c.members, func(n *member) bool { return n == m })
	}
}
