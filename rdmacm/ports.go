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

// portTable has the IDs that are bound to each port. It is guarded by Host.mu. What it reads of other IDs, their
// addresses and options, changes only under both Host.mu and ID.mu while they are in the table.
type portTable map[portKey][]*ID

type portKey struct {
	ps   PortSpace
	port uint16
}

// bind gives id the port of its local address, or a free one for port 0.
//
// +checklocks:id.mu
func (t portTable) bind(id *ID) error {
	const op = "bind_addr"
	port := id.local.Port()
	if port == 0 {
		return t.bindAny(id)
	}
	if port < lowPorts() && os.Geteuid() > 0 {
		return id.fail(op, syscall.EACCES, "port %d: must be %d or more, except for root", port, lowPorts())
	}
	if err := t.conflict(op, id, port, id.reuse); err != nil {
		return err
	}
	t.add(id, port)
	return nil
}

// bindAny gives id a port without owners, or else one whose owners have other addresses or other peers.
//
// +checklocks:id.mu
func (t portTable) bindAny(id *ID) error {
	low, high := ephemeral()
	return t.bindFrom(id, rand.IntN(int(high)-int(low)+1))
}

// bindAnother gives id the next port that is free in this process: another process has the present one.
//
// +checklocks:id.mu
func (t portTable) bindAnother(id *ID) error {
	low, _ := ephemeral()
	port := id.local.Port()
	t.release(id)
	return t.bindFrom(id, int(port-low)+1)
}

// bindFrom is bindAny, which begins at offset first of the range.
//
// +checklocks:id.mu
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
				id.portUnread = true
				return nil
			}
		}
	}
	return id.fail("bind_addr", syscall.EADDRNOTAVAIL, "the ports %d to %d are all in use", low, high)
}

// apart reports whether id and all owners of a port are clients, and none of them a client of id's peer.
//
// Host.mu is enough for what it reads of the owners.
//
// +checklocksignore
func apart(id *ID, owners []*ID) bool {
	for _, o := range owners {
		if !o.remote.IsValid() || o.remote == id.remote {
			return false
		}
	}
	return id.remote.IsValid()
}

// conflict is the error if id cannot have a port beside its owners.
//
// Host.mu is enough for what it reads of the owners.
//
// +checklocksignore
func (t portTable) conflict(op string, id *ID, port uint16, reuse bool) error {
	addr := id.zoned(id.local).Addr()
	for _, other := range t[portKey{id.ps, port}] {
		a := other.zoned(other.local).Addr()
		switch {
		case other == id, reuse && other.reuse, id.oneFamily() && other.oneFamily() && a.Is4() != addr.Is4():
		case a.IsUnspecified() || addr.IsUnspecified():
			return id.portTaken(op, syscall.EADDRNOTAVAIL, port, a)
		case a == addr:
			return id.portTaken(op, syscall.EADDRINUSE, port, a)
		}
	}
	return nil
}

// portTaken is the error for a port that another ID of this process has at an address.
//
// +checklocks:id.mu
func (id *ID) portTaken(op string, errno syscall.Errno, port uint16, at netip.Addr) error {
	return &Error{Op: op, Obj: id.obj(), Errno: errno,
		Detail: fmt.Sprintf("port %d is in use at %v by another ID of this process", port, at),
		Hint:   "close that ID, or choose another port; port 0 stands for any free one"}
}

// add makes id an owner of a port.
//
// +checklocks:id.mu
func (t portTable) add(id *ID, port uint16) {
	k := portKey{id.ps, port}
	t[k] = append(t[k], id)
	id.bound = k
}

// release removes id from the owners of its port.
//
// +checklocks:id.mu
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

// move gives id another port, which TCP has chosen, beside whatever owners it has; 0 for none.
//
// +checklocks:id.mu
func (t portTable) move(id *ID, port uint16) {
	if id.bound != (portKey{}) {
		t.release(id)
	}
	id.local = netip.AddrPortFrom(id.local.Addr(), port)
	if port != 0 {
		t.add(id, port)
	}
}

// portRangeFile has the range of Linux's ephemeral ports.
const portRangeFile = "/proc/sys/net/ipv4/ip_local_port_range"

// ephemeral is the range of the system's ephemeral ports.
var ephemeral = sync.OnceValues(func() (low, high uint16) { return portRange(portRangeFile) })

// portRange reads the first and the last port from a file; Linux's default if the file is missing or malformed.
func portRange(file string) (low, high uint16) {
	text, _ := os.ReadFile(file)
	if n, _ := fmt.Sscan(string(text), &low, &high); n == 2 && 0 < low && low <= high {
		return low, high
	}
	return 32768, 60999
}

// lowPorts is the first port that is not reserved for root.
var lowPorts = sync.OnceValue(func() uint16 {
	low := uint16(1024)
	if text, err := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start"); err == nil {
		_, _ = fmt.Sscan(string(text), &low)
	}
	return low
})
