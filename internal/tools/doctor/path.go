package doctor

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/verbs"
)

// pathTimeout bounds the search for the MTU.
const pathTimeout = 10 * time.Second

// ethernetIP is the usual MTU of an Ethernet interface in bytes.
const ethernetIP = 1500

// leastIP is a length in bytes that every link carries.
const leastIP = 576

// path checks that packets as long as the device's path MTU needs pass in both directions, by asking for their echo.
// send is echo. It reports whether it has found no limit.
func (r *report) path(what string, w *way, peer netip.Addr,
	send func(ctx context.Context, src, dst netip.Addr, size int) (answered, can bool)) bool {
	ctx, cancel := context.WithTimeout(context.Background(), pathTimeout)
	defer cancel()
	need := w.pathMTU + wire.RoCEv2Headers
	if w.mtu > 0 && w.mtu < need || need <= leastIP {
		return true // reported already
	}
	switch answered, can := send(ctx, w.source, peer, leastIP); {
	case !can:
		r.add(note, what, "the MTU along the path is not checked: this process may not send ICMP echo requests",
			"run as root, or: sysctl -w net.ipv4.ping_group_range='0 2147483647'")
		return true
	case !answered:
		r.add(note, what, "the MTU along the path is not checked: no answer to an ICMP echo request", "")
		return true
	}
	if answered, _ := send(ctx, w.source, peer, need); answered {
		r.add(good, what,
			fmt.Sprintf("pings of %d bytes pass in both directions, as path MTU %d needs", need, w.pathMTU), "")
		return true
	}
	works, fails := leastIP, need
	for _, size := range []int{ethernetIP, ethernetIP + 1} { // the most frequent case
		if answered, _ := send(ctx, w.source, peer, size); answered && size < fails {
			works = size
		} else {
			fails = min(fails, size)
			break
		}
	}
	for fails-works > 1 && ctx.Err() == nil {
		middle := (works + fails) / 2
		if answered, _ := send(ctx, w.source, peer, middle); answered {
			works = middle
		} else {
			fails = middle
		}
	}
	r.add(bad, what, fmt.Sprintf("pings of %d bytes pass in both directions, longer ones do not, and path MTU %d of "+
		"%s needs %d: the MTU of the peer's interface or of a link on the way is %d", works, w.pathMTU, w.device, need,
		works),
		fmt.Sprintf("connect with path MTU %v (tools: -m %v; Options.PathMTU of rdmacm and rsocket), or make the MTUs equal:"+
			" ip link set dev INTERFACE mtu SIZE; tracepath -n %v shows where they differ", fitting(works), fitting(works),
			peer))
	return false
}

// fitting is the largest path MTU for an IP MTU; 256 also where that does not fit.
func fitting(ip int) verbs.MTU {
	return verbs.MTUOf(wire.FittingMTU(verbs.MTU4096.Bytes(), ip))
}

// zone is the index of the interface that a link-local address names; 0 without one.
func zone(a netip.Addr) uint32 {
	if ifi, err := net.InterfaceByName(a.Zone()); a.Zone() != "" && err == nil {
		return uint32(ifi.Index)
	}
	return 0
}
