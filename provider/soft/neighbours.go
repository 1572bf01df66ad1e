package soft

import (
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/verbena-rdma/verbena/internal/host"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/shm"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// withNeighbours lets a link go through shared memory to other processes of this host, where that is possible and
// VERBENA_SHM=0 does not forbid it.
func withNeighbours(l link.Link, addrs []netip.Addr) link.Link {
	n, ok := l.(link.Numbered)
	if !ok || !shm.Enabled() {
		return l
	}
	d := &neighbours{}
	for i := range l.Ports() {
		first, _, ok := n.QPNs(i)
		if !ok {
			return l
		}
		d.lanes = append(d.lanes, host.LaneOf(first))
	}
	s, err := shm.Wrap(l, d)
	if err != nil {
		return l // an old kernel, or a sandbox: everything still works, more slowly
	}
	if s.SetAddrs(addrs) != nil {
		return l
	}
	return s
}

const minQPN = 16 // of those that are not well-known

// neighbours is a shm.Directory: it names processes by an address and a lane that they have (see package host). Its sockets are
// abstract ones, so that it spans a network namespace, as the addresses do.
type neighbours struct {
	shm.Sockets
	lanes []int
}

// Owner names the process that has a QP. Who gets what is sent to QP 1 is not known here (see package host).
func (d *neighbours) Owner(addr netip.Addr, qpn uint32) string {
	if qpn < minQPN {
		return ""
	}
	return neighbour(addr, host.LaneOf(qpn))
}

func neighbour(addr netip.Addr, lane int) string {
	return fmt.Sprintf("@verbena-shm1/%d/%d/%v/%d", os.Geteuid(), wire.Port, addr, lane)
}

// Follow listens at addresses; see shm.Follower.
func (d *neighbours) Follow(addrs []netip.Addr, accept func(*net.UnixConn)) {
	var names []string
	for _, a := range addrs {
		for _, lane := range d.lanes {
			names = append(names, neighbour(a, lane))
		}
	}
	d.Listen(names, accept)
}
