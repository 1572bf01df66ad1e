package rdmacm

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
)

// portTable knows which IDs are bound to which ports. It is guarded by Host.mu; what it reads of the IDs in it changes under Host.mu only
// while they are there.
type portTable map[portKey][]*ID

type portKey struct {
	ps   PortSpace
	port uint16
}

// bind gives id the port of its local address, or a free one for port 0.
func (t portTable) bind(id *ID) error {
	const op = "bind_addr"
	port := id.local.Port()
	if port == 0 {
		return t.bindAny(id)
	}
	if port < lowPorts() && os.Geteuid() > 0 {
		return id.fail(op, syscall.EACCES, "ports below %d are for root", lowPorts())
	}
	if err := t.conflict(op, id, port, id.reuse); err != nil {
		return err
	}
	t.add(id, port)
	return nil
}

// bindAny gives id a port that nobody has, or failing that one whose owners have other addresses or other peers.
func (t portTable) bindAny(id *ID) error {
	low, high := ephemeral()
	return t.bindFrom(id, rand.IntN(int(high)-int(low)+1))
}

// bindAnother gives id the next port that is free in this process instead of the one that it has, for another process has that one.
func (t portTable) bindAnother(id *ID) error {
	low, _ := ephemeral()
	port := id.local.Port()
	t.release(id)
	return t.bindFrom(id, int(port-low)+1)
}

// bindFrom is bindAny that tries the ports from number first of the range on.
func (t portTable) bindFrom(id *ID, first int) error {
	low, high := ephemeral()
	n := int(high) - int(low) + 1
	for _, shared := range []bool{false, true} {
		for i := range n {
			port := low + uint16((first+i)%n)
			owners := t[portKey{id.ps, port}]
			if len(owners) == 0 || shared && (apart(id, owners) || t.conflict("bind_addr", id, port, id.reuse) == nil) {
				id.local = netip.AddrPortFrom(id.local.Addr(), port)
				t.add(id, port)
				id.unseen = true
				return nil
			}
		}
	}
	return id.fail("bind_addr", syscall.EADDRNOTAVAIL, "the ports %d to %d are all in use", low, high)
}

// apart tells whether id and all owners of a port are clients, of a peer that is not id's.
func apart(id *ID, owners []*ID) bool {
	return id.remote.IsValid() && !slices.ContainsFunc(owners, func(o *ID) bool { return !o.remote.IsValid() || o.remote == id.remote })
}

// conflict tells why id cannot have a port beside those who have it already.
func (t portTable) conflict(op string, id *ID, port uint16, reuse bool) error {
	addr := id.local.Addr()
	for _, other := range t[portKey{id.ps, port}] {
		a := other.local.Addr()
		switch {
		case other == id, reuse && other.reuse, id.afonly && other.afonly && a.Is4() != addr.Is4():
		case a.IsUnspecified() || addr.IsUnspecified():
			return id.fail(op, syscall.EADDRNOTAVAIL, "port %d is in use at %v", port, a)
		case a == addr:
			return id.fail(op, syscall.EADDRINUSE, "port %d is in use at that address", port)
		}
	}
	return nil
}

func (t portTable) add(id *ID, port uint16) {
	k := portKey{id.ps, port}
	t[k] = append(t[k], id)
	id.bound = k
}

// release gives id's port back.
func (t portTable) release(id *ID) {
	owners := t[id.bound]
	if i := slices.Index(owners, id); i >= 0 {
		owners = slices.Delete(owners, i, i+1)
	}
	if len(owners) == 0 {
		delete(t, id.bound)
	} else {
		t[id.bound] = owners
	}
	id.bound = portKey{}
}

// portRangeFile is where Linux has the range of ports that it chooses from.
const portRangeFile = "/proc/sys/net/ipv4/ip_local_port_range"

// ephemeral is the range of ports that the system chooses from.
var ephemeral = sync.OnceValues(func() (low, high uint16) { return portRange(portRangeFile) })

// portRange reads the first and the last port of a range; Linux's default if the file is missing or holds something else.
func portRange(file string) (low, high uint16) {
	text, _ := os.ReadFile(file)
	if n, _ := fmt.Sscan(string(text), &low, &high); n == 2 && 0 < low && low <= high {
		return low, high
	}
	return 32768, 60999
}

// lowPorts is the first port that everybody may have.
var lowPorts = sync.OnceValue(func() uint16 {
	low := uint16(1024)
	if text, err := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start"); err == nil {
		_, _ = fmt.Sscan(string(text), &low)
	}
	return low
})
