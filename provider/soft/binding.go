package soft

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/verbena-rdma/verbena/internal/link"
)

// binding is a device's link and the addresses that it could be bound to. An IPv6 address that the kernel still checks for
// duplicates cannot be bound yet (EADDRNOTAVAIL): the device does without it until the next change of addresses is reported.
type binding struct {
	mu    sync.Mutex
	link  link.Link // nil while there is none
	addrs []netip.Addr
}

// open opens a link at addrs, or at those of them that exist. Every other error is returned.
func (b *binding) open(addrs []netip.Addr, open func([]netip.Addr) (link.Link, error)) (link.Link, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l, err := open(addrs)
	bound := addrs
	for i := 0; err != nil && errnoOf(err) == eaddrnotavail && len(addrs) > 1 && i < len(addrs); i++ {
		bound = addrs[i : i+1]
		l, err = open(bound)
	}
	if err != nil {
		return nil, err
	}
	b.link, b.addrs = l, bound
	b.add(addrs)
	return l, nil
}

// follow gives the link other addresses, if it is open. One that cannot be bound is left out for now.
func (b *binding) follow(addrs []netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.link == nil {
		return
	}
	kept := slices.DeleteFunc(slices.Clone(b.addrs), func(a netip.Addr) bool { return !slices.Contains(addrs, a) })
	if len(kept) < len(b.addrs) && len(kept) > 0 && b.link.SetAddrs(kept) == nil {
		b.addrs = kept
	}
	b.add(addrs)
}

// add binds what is not bound yet.
func (b *binding) add(addrs []netip.Addr) {
	for _, a := range addrs {
		if slices.Contains(b.addrs, a) {
			continue
		}
		if next := append(slices.Clone(b.addrs), a); b.link.SetAddrs(next) == nil {
			b.addrs = next
		}
	}
}

// forget says that the link is closed.
func (b *binding) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.link, b.addrs = nil, nil
}
