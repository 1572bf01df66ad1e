package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/lookup"
	"github.com/verbena-rdma/verbena/internal/tools/nearest"
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// rocePort is the UDP port of RoCEv2.
const rocePort = 4791

// peer checks a peer: name, route, source address, port, connection manager.
func (r *report) peer(ctx context.Context, name string) {
	what := "peer " + name
	addrs, err := lookup.Addrs(ctx, "ip", name)
	if err != nil {
		r.add(bad, what, err.Error(), "correct the name, or use the peer's address")
		return
	}
	for _, a := range addrs {
		r.address(ctx, what, a)
	}
}

func (r *report) address(ctx context.Context, what string, peer netip.Addr) {
	if what != "peer "+peer.String() {
		what += " (" + peer.String() + ")"
	}
	source, ok := r.source(what, peer)
	if !ok {
		return
	}
	if os.Getenv(driver.EnvTransport) == driver.IWARP {
		if r.streamRoute(what, source, peer) {
			r.stream(ctx, what, peer)
		}
		return
	}
	w, ok := r.route(what, source, peer)
	// This host's own device receives while doctor runs, so a closed port means nothing.
	own := w.from.WithZone("") == peer.WithZone("")
	if !ok || !own && !r.datagram(ctx, what, w.source, peer) {
		return
	}
	err := r.connect(ctx, what, peer)
	if own {
		r.add(note, what, "this host itself has the address, so nothing about a network was checked",
			"verbena doctor ADDRESS-OF-ANOTHER-HOST")
		return
	}
	if silent(err) {
		r.self(w.from)
	}
	if r.path(what, &w, peer, echo) { // else long packets get no answer either, and no firewall is the cause
		r.long(what, &w, peer, lookup.Unreachable)
	}
}

// source returns the source address of the system's route to the peer.
func (r *report) source(what string, peer netip.Addr) (source netip.Addr, ok bool) {
	if lookup.NeedsZone(peer) {
		r.add(bad, what, "a link-local address must have a zone, the name of the interface to the peer",
			"verbena doctor "+peer.String()+"%eth0; ip -br addr lists the interfaces")
		return source, false
	}
	if why := notOneHost(peer); why != "" {
		r.add(bad, what, why, "verbena doctor ADDRESS-OF-ONE-HOST")
		return source, false
	}
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(peer, rocePort)))
	if err != nil {
		r.add(bad, what, "no route: "+err.Error(), "ip route get "+peer.String())
		return source, false
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), true
}

// noDevice adds that no device has the source address of the route.
func (r *report) noDevice(what string, source netip.Addr, err error) {
	r.add(bad, what, err.Error(), "the route's source address is "+source.String()+
		": verbena ibv_devinfo -v shows whether a device has it")
}

// route looks for the RoCE device on the system's route to the peer.
func (r *report) route(what string, source, peer netip.Addr) (w way, ok bool) {
	dev, err := nearest.Open(peer, 0)
	if err != nil {
		r.noDevice(what, source, err)
		return w, false
	}
	defer dev.Close()
	number, choice, err := nearest.Port(dev, 0, peer, source.WithZone(""))
	if err != nil {
		r.add(bad, what, err.Error(), "verbena ibv_devinfo -v")
		return w, false
	}
	port, err := dev.QueryPort(number)
	if err != nil {
		r.add(bad, what, err.Error(), "verbena ibv_devinfo -v")
		return w, false
	}
	w = way{source, choice.GID.Addr(), dev.Device().Name(), choice.Index, lookup.RouteMTU(source, peer),
		port.ActiveMTU.Bytes()}
	r.way(what, peer, w)
	return w, true
}

// way is the route of packets to a peer.
type way struct {
	source, from netip.Addr // source addresses: the system's and the device's
	device       string
	gid          int
	mtu, pathMTU int // bytes; mtu 0: unknown
}

// way judges the route to a peer.
func (r *report) way(what string, peer netip.Addr, w way) {
	found := fmt.Sprintf("source address %v, device %s, GID index %d", w.source, w.device, w.gid)
	if w.mtu > 0 {
		found += fmt.Sprintf(", MTU of the route %d", w.mtu)
	}
	switch {
	case w.mtu > 0 && w.pathMTU+wire.RoCEv2Headers > w.mtu:
		remedy := "make the route's MTU larger: ip route get " + peer.String()
		if m := fitting(w.mtu).Bytes(); m+wire.RoCEv2Headers <= w.mtu {
			remedy = fmt.Sprintf("connect with a smaller path MTU (tools: -m %d), or %s", m, remedy)
		}
		r.add(bad, what, fmt.Sprintf("%s: too small for the device's path MTU of %d and headers", found, w.pathMTU), remedy)
	case w.from != w.source.WithZone(""):
		r.add(note, what, fmt.Sprintf("%s, but the device sends from %v: routers and firewalls may drop such packets",
			found, w.from),
			"verbena ibv_devinfo -v shows whether a device has "+w.source.String()+
				"; if none has: VERBENA_DEVICES; ip route get "+peer.String()+" from "+w.from.String())
	default:
		r.add(good, what, found, "")
	}
}

// datagram sends a RoCE packet that every device drops because it is for no QP. If the port is closed, the peer's
// system replies with an error.
func (r *report) datagram(ctx context.Context, what string, source, peer netip.Addr) bool {
	ctx, cancel := context.WithTimeout(ctx, datagramWait)
	defer cancel()
	return r.reached(what, peer, lookup.Unreachable(ctx, source, netip.AddrPortFrom(peer, rocePort), wire.Harmless))
}

// datagramWait is how long the system has to say that a datagram does not arrive. Address resolution takes three
// seconds to fail: connect reports that.
const datagramWait = 300 * time.Millisecond

// reached judges the result of sending a datagram.
func (r *report) reached(what string, peer netip.Addr, err error) bool {
	switch {
	case err == nil:
		return true
	case errors.Is(err, syscall.ECONNREFUSED):
		r.add(bad, what, "the host is up, but UDP port 4791 is closed there, or a firewall rejects it",
			"at the peer: start a program with a device, or check rdma link show and nft list ruleset; "+
				"to open the port: firewall-cmd --add-port=4791/udp, or ufw allow 4791/udp")
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		r.add(bad, what, "this host's firewall rejects it: "+err.Error(),
			"nft list ruleset; to open it: firewall-cmd --add-port=4791/udp, or ufw allow 4791/udp")
	default:
		r.add(bad, what, err.Error(), "ip route get "+peer.String()+"; ping "+peer.String())
	}
	return false
}

// connect requests a service that no program offers from the peer's connection manager. A refusal is the
// expected answer: it shows that packets with correct checksums pass in both directions.
func (r *report) connect(ctx context.Context, what string, peer netip.Addr) error {
	took, err := dial(ctx, peer)
	r.answered(what, peer, err, took)
	return err
}

// dial connects to a port that no program uses, and returns how long that took.
func dial(ctx context.Context, peer netip.Addr) (took time.Duration, err error) {
	start := time.Now()
	id, err := rdmacm.Dial(ctx, net.JoinHostPort(peer.String(), "1"), nil)
	if err == nil {
		_ = id.Close()
	}
	return time.Since(start), err
}

// streamRoute looks for the iWARP device on the system's route to the peer: the one that rdma_cm binds connections to.
// The system chooses source address and size of TCP's packets.
func (r *report) streamRoute(what string, source, peer netip.Addr) bool {
	id, err := rdmacm.CreateID(nil, rdmacm.PSTCP, nil)
	if err == nil {
		defer id.Close()
		err = id.BindAddr(netip.AddrPortFrom(source, 0))
	}
	if err != nil {
		r.noDevice(what, source, err)
		return false
	}
	found := fmt.Sprintf("source address %v, iWARP device %s", source, id.Verbs().Device().Name())
	if mtu := lookup.RouteMTU(source, peer); mtu > 0 {
		found += fmt.Sprintf(", MTU of the route %d", mtu)
	}
	r.add(good, what, found, "")
	return true
}

// stream is connect over iWARP, whose connections are TCP connections to the port of a program. There is no port that
// all programs use, so a refusal is the expected answer.
func (r *report) stream(ctx context.Context, what string, peer netip.Addr) {
	took, err := dial(ctx, peer)
	took = took.Round(10 * time.Microsecond)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		r.add(good, what, fmt.Sprintf("iWARP: the host refuses TCP port 1 after %v, as expected. A program's own port "+
			"must be open too: verbena rping -s there, verbena rping -c -a %v here", took, peer), "")
	case err != nil && !errors.Is(err, syscall.EHOSTUNREACH) && !errors.Is(err, syscall.ENETUNREACH) &&
		!noNeighbour(err):
		r.add(bad, what, fmt.Sprintf("iWARP: no answer to a TCP connection to port 1 within %v (%v)", took, err),
			"check that the host is up: ping "+peer.String()+"; that no firewall drops the TCP ports of the programs: "+
				"nft list ruleset")
	default:
		r.answered(what, peer, err, took)
	}
}

// self checks that packets to the port of this host's own address arrive, after a peer has not answered.
func (r *report) self(own netip.Addr) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err := dial(ctx, own)
	r.judgeSelf(own, err)
}

// judgeSelf judges the answer to a request to this host's own address. The port is open there while doctor runs.
func (r *report) judgeSelf(own netip.Addr, err error) {
	found := ""
	switch {
	case portClosed(err):
		found = "a firewall of this host rejects UDP port 4791, its own requests to the address included"
	case silent(err):
		found = "this host's own requests to it get no answer either: a firewall of this host drops UDP port 4791"
	default:
		return
	}
	r.add(bad, "address "+own.String(), found, rulesAdvice(os.Geteuid() == 0))
}

// rulesAdvice tells how to find a rule of this host that doctor has not named.
func rulesAdvice(root bool) string {
	if root {
		return "nft list ruleset and iptables-legacy-save list the rules"
	}
	return "as root, verbena doctor names the rule if nft, or iptables-legacy-save, is installed; nft list ruleset"
}

// portClosed reports whether a request failed since an ICMP message says that the UDP port is closed. The errno is that
// of a refusal by the peer's connection manager, which has no cause with an errno.
func portClosed(err error) bool {
	var e *rdmacm.Error
	return errors.As(err, &e) && errors.Is(e.Err, syscall.ECONNREFUSED)
}

// silent reports whether a request was sent and nothing answered it.
func silent(err error) bool {
	return err != nil && !errors.Is(err, syscall.ECONNREFUSED) && !deviceFailed(err)
}

// deviceFailed reports whether a connection failed since this host's device could not open its port: nothing was sent.
func deviceFailed(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if e, ok := err.(*verbs.Error); ok && e.Op == "create_gsi" { //nolint:errorlint // one link of the chain
			return true
		}
	}
	return false
}

// noNeighbour reports whether a connection failed since the link address of the way is not known.
func noNeighbour(err error) bool {
	var e *rdmacm.Error
	return errors.As(err, &e) && (e.Op == "resolve_addr" || e.Op == "resolve_route") && errors.Is(err, syscall.ETIMEDOUT)
}

// answered judges the answer of a connection manager.
func (r *report) answered(what string, peer netip.Addr, err error, took time.Duration) {
	took = took.Round(10 * time.Microsecond)
	switch {
	case err == nil:
		r.add(good, what, fmt.Sprintf("a connection was established in %v", took), "")
	case portClosed(err): // datagram has missed it: a host sends few ICMP messages a second
		r.reached(what, peer, err)
	case errors.Is(err, syscall.ECONNREFUSED):
		r.add(good, what,
			fmt.Sprintf("its connection manager answers in %v; no program listens on the requested port, as expected",
				took), "")
	case deviceFailed(err):
		r.add(bad, what, "not asked, since this host's device failed: "+err.Error(), portAdvice(err))
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), noNeighbour(err):
		r.add(bad, what, "no host answers at this address: "+err.Error(),
			"is the address right, and in a network (a VLAN) that this host is in? ip addr at both ends; ip neigh; ping "+
				peer.String())
	default:
		r.add(bad, what, fmt.Sprintf("no answer to a connection request within %v (%v)",
			took.Round(time.Millisecond), err),
			"check that the host is up: ping "+peer.String()+
				"; that no firewall drops UDP port 4791 (nft list ruleset), that the peer's device has this address, "+
				"that no program that uses it is stopped (ps there shows T), "+
				"and that the peer's kernel, if it uses one, has rdma_cm (modprobe rdma_cm). "+
				"To see packets: VERBENA_PCAP=FILE, or tcpdump -n udp port 4791 at both ends")
	}
}
