package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/lookup"
	"github.com/verbena-rdma/verbena/internal/tools/nearest"
	"github.com/verbena-rdma/verbena/rdmacm"
)

// rocePort is the UDP port of RoCEv2.
const rocePort = 4791

// peer looks at the way to a peer: name, route, source address, port, connection manager.
func (r *report) peer(ctx context.Context, name string) {
	what := "peer " + name
	addrs, err := lookup.Addrs(ctx, "ip", name)
	if err != nil {
		r.add(bad, what, err.Error(), "is the name right? try its address")
		return
	}
	for _, a := range addrs {
		r.address(ctx, what, a)
	}
}

func (r *report) address(ctx context.Context, what string, peer netip.Addr) {
	if len(peer.String()) > 0 && what != "peer "+peer.String() {
		what += " (" + peer.String() + ")"
	}
	if !r.route(what, peer) || !r.datagram(what, peer) {
		return
	}
	r.connect(ctx, what, peer)
}

// route asks the system for the way, and whether a device lies on it.
func (r *report) route(what string, peer netip.Addr) bool {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(peer, rocePort)))
	if err != nil {
		r.add(bad, what, "there is no route: "+err.Error(), "ip route get "+peer.String())
		return false
	}
	defer c.Close()
	source := c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
	dev, err := nearest.Open(peer)
	if err != nil {
		r.add(bad, what, err.Error(), "the way starts at "+source.String()+": is that address of a device? verbena ibv_devinfo -v")
		return false
	}
	defer dev.Close()
	choice, err := dev.SelectGID(peer)
	if err != nil {
		r.add(bad, what, err.Error(), "verbena ibv_devinfo -v")
		return false
	}
	port, err := dev.QueryPort(1)
	if err != nil {
		r.add(bad, what, err.Error(), "verbena ibv_devinfo -v")
		return false
	}
	r.way(what, peer, way{source, choice.GID.Addr(), dev.Device().Name(), choice.Index, pathMTU(c), port.ActiveMTU.Bytes()})
	return true
}

// way is how packets would go to a peer.
type way struct {
	source, from netip.Addr // what the system would send from, and what the device does
	device       string
	gid          int
	mtu, pathMTU int // bytes; an mtu of 0 is not known
}

// way judges the way to a peer.
func (r *report) way(what string, peer netip.Addr, w way) {
	found := fmt.Sprintf("the way starts at %v; device %s, GID index %d", w.source, w.device, w.gid)
	if w.mtu > 0 {
		found += fmt.Sprintf(", MTU of the route %d", w.mtu)
	}
	const headers = 40 + 8 + 12 + 16 + 4 // IPv6, UDP, BTH, RETH, ICRC: the most of a packet with much payload
	switch {
	case w.mtu > 0 && w.pathMTU+headers > w.mtu:
		r.add(bad, what, fmt.Sprintf("%s: too small for the device's path MTU of %d and headers", found, w.pathMTU),
			"connect with a smaller path MTU (tools: -m 1024), or make the route's MTU larger: ip route get "+peer.String())
	case w.from != w.source.WithZone(""):
		r.add(note, what, fmt.Sprintf("%s, which sends from %v: routers and firewalls may drop that", found, w.from),
			"is there a device of "+w.source.String()+"? verbena ibv_devinfo -v; if not: VERBENA_DEVICES; ip route get "+peer.String()+" from "+w.from.String())
	default:
		r.add(good, what, found, "")
	}
}

// datagram sends a datagram that is no packet of RoCE, which every device drops. If nobody has the port, the peer's system says so.
func (r *report) datagram(what string, peer netip.Addr) bool {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(peer, rocePort)))
	if err != nil {
		r.add(bad, what, err.Error(), "ip route get "+peer.String())
		return false
	}
	defer c.Close()
	for range 2 { // an error of the first is told to the second
		_, err = c.Write([]byte("verbena doctor"))
		if err != nil {
			break
		}
		_ = c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		if _, err = c.Read(make([]byte, 1)); err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
			err = nil
		}
		if err != nil {
			break
		}
	}
	return r.reached(what, peer, err)
}

// reached judges what came back for a datagram.
func (r *report) reached(what string, peer netip.Addr, err error) bool {
	switch {
	case err == nil:
		return true
	case errors.Is(err, syscall.ECONNREFUSED):
		r.add(bad, what, "it is up, but nobody there has UDP port 4791, or a firewall refuses it",
			"at the peer: is a program with a device running, or rdma link show? nft list ruleset; to open it: firewall-cmd --add-port=4791/udp, or ufw allow 4791/udp")
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		r.add(bad, what, "this host's firewall forbids it: "+err.Error(), "nft list ruleset; to open it: firewall-cmd --add-port=4791/udp, or ufw allow 4791/udp")
	default:
		r.add(bad, what, err.Error(), "ip route get "+peer.String()+"; ping "+peer.String())
	}
	return false
}

// connect asks the peer's connection manager for a service that nobody offers. A refusal is the best answer there is: packets have
// gone there and back, and their checksums were right.
func (r *report) connect(ctx context.Context, what string, peer netip.Addr) {
	start := time.Now()
	id, err := rdmacm.Dial(ctx, net.JoinHostPort(peer.String(), "1"), nil)
	if err == nil {
		_ = id.Close()
	}
	r.answered(what, peer, err, time.Since(start))
}

// answered judges the answer of a connection manager.
func (r *report) answered(what string, peer netip.Addr, err error, took time.Duration) {
	took = took.Round(10 * time.Microsecond)
	switch {
	case err == nil:
		r.add(good, what, fmt.Sprintf("a connection was made, in %v", took), "")
	case errors.Is(err, syscall.ECONNREFUSED):
		r.add(good, what, fmt.Sprintf("its connection manager answers, in %v; nobody listens on the port that was asked for, as expected", took), "")
	default:
		r.add(bad, what, fmt.Sprintf("no answer to a request of connection management within %v (%v)", took.Round(time.Millisecond), err),
			"is the host up? ping "+peer.String()+"; a firewall that drops UDP port 4791, here or there or between (nft list ruleset); a peer whose device is another's address; "+
				"or a kernel without rdma_cm: modprobe rdma_cm at the peer. To see packets: VERBENA_PCAP=FILE, or tcpdump -n udp port 4791 at both ends")
	}
}
