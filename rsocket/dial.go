package rsocket

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/lookup"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rsocket/internal/sock"
)

// Dialer makes connections. The zero value is ready for use.
type Dialer struct {
	Options
	Host      *rdmacm.Host  // nil for the default host
	LocalAddr net.Addr      // of the network's type or a *net.IPAddr; nil for the address of the route to the peer
	Timeout   time.Duration // of the connection; 0 for that of the connection manager
	// KeepAlive is the interval of checks of an idle peer; 0 stands for 15 s, a value below 0 turns them off.
	KeepAlive time.Duration
}

// defaultKeepAlive is the default of package net.
const defaultKeepAlive = 15 * time.Second

// Dial connects to an address (rsocket, rconnect): network is tcp, tcp4 or tcp6, udp, udp4 or udp6. The addresses of
// the connection are those of package net; the ports are RDMA's own. The errors are those of Dialer.DialContext.
func Dial(network, address string) (net.Conn, error) {
	return new(Dialer).DialContext(context.Background(), network, address)
}

// DialContext is Dial with a context. If ctx is done before the connection is made, the request is cancelled.
func DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return new(Dialer).DialContext(ctx, network, address)
}

// Dial connects to an address, as the function Dial.
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

// DialContext connects to an address, as net.Dialer.DialContext does: it tries the addresses of a name one after the
// other. udp, udp4 and udp6 make a datagram socket that sends to the address (a *PacketConn).
//
// The error is a *net.OpError: ECONNREFUSED if there is no listener, or it has another protocol; EHOSTUNREACH if no
// host of the link has the address, which takes 3 s; ETIMEDOUT without an answer, which takes 74 s; ENOTSUP if the peer
// has another version; ENODEV without a suitable device, or if it is removed meanwhile; ctx's error if ctx is done;
// those of rdmacm.ID.BindAddr for LocalAddr, and *net.AddrError if it has the wrong type; *net.DNSError or
// net.UnknownNetworkError.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if d.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.Timeout)
		defer cancel()
	}
	addrs, err := resolve(ctx, network, address)
	if err == nil {
		err = suits(network, d.LocalAddr)
	}
	if err != nil {
		return nil, opError("dial", network, nil, nil, err)
	}
	var first error
	for _, a := range thisHost(network, addrs) {
		conn, err := d.dialOne(ctx, network, a)
		if err == nil {
			return conn, nil
		}
		if first == nil {
			first = opError("dial", network, d.LocalAddr, netAddr(network, a), ioError{err})
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, first
}

func (d *Dialer) dialOne(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error) {
	if strings.HasPrefix(network, "udp") {
		return d.dialPacket(network, to)
	}
	b := sock.JoinHub(sock.HostOf(d.Host))
	st := sock.NewStream(b, d.withDefaults())
	id, err := b.Host.CreateID(b.Channel, rdmacm.PSTCP, nil)
	if err != nil {
		b.Leave()
		return nil, err
	}
	if from := addrPort(d.LocalAddr); from.IsValid() {
		err = id.BindAddr(from)
	}
	if err != nil {
		_ = id.Close()
		b.Leave()
		return nil, err
	}
	if err = st.Connect(id, to); err == nil {
		err = st.AwaitConnection(ctx)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = &Error{Op: "connect", Errno: syscall.ETIMEDOUT, Detail: "the peer has not answered yet", Err: err,
			Hint: "verbena doctor " + to.Addr().String() + " looks for the cause"}
	}
	if err != nil {
		st.Close(0)
		return nil, err
	}
	st.SetKeepalive(keepAlive(d.KeepAlive))
	return newConn(st, network), nil
}

func keepAlive(d time.Duration) time.Duration {
	if d == 0 {
		return defaultKeepAlive
	}
	return max(d, 0)
}

// suits returns an error, that of package net, unless a local address is one for a network.
func suits(network string, local net.Addr) error {
	ok := local == nil
	switch local.(type) {
	case *net.IPAddr:
		ok = true
	case *net.TCPAddr:
		ok = strings.HasPrefix(network, "tcp")
	case *net.UDPAddr:
		ok = strings.HasPrefix(network, "udp")
	}
	if !ok {
		return &net.AddrError{Err: "mismatched local address type", Addr: local.String()}
	}
	return nil
}

// netAddr returns an address as package net has it for a network.
func netAddr(network string, a netip.AddrPort) net.Addr {
	if strings.HasPrefix(network, "udp") {
		return net.UDPAddrFromAddrPort(a)
	}
	return net.TCPAddrFromAddrPort(a)
}

// thisHost replaces unspecified addresses, which stand for this host, by those of its loopback interface, as package
// net does: ":80", and the address of a listener that listens on all.
func thisHost(network string, addrs []netip.AddrPort) (list []netip.AddrPort) {
	for _, a := range addrs {
		switch {
		case !a.Addr().IsUnspecified():
			list = append(list, a)
			continue
		case a.Addr().Is6():
			list = append(list, netip.AddrPortFrom(netip.IPv6Loopback(), a.Port()))
		}
		if !strings.HasSuffix(network, "6") {
			list = append(list, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), a.Port()))
		}
	}
	return list
}

// anyPort returns the address that a socket listens at: the empty one stands for ":0", as for package net.
func anyPort(address string) string {
	if address == "" {
		return ":0"
	}
	return address
}

// resolve returns the addresses for a network and an address.
func resolve(ctx context.Context, network, address string) ([]netip.AddrPort, error) {
	proto, family := network, ""
	if strings.HasSuffix(network, "4") || strings.HasSuffix(network, "6") {
		proto, family = network[:len(network)-1], network[len(network)-1:]
	}
	if proto != "tcp" && proto != "udp" {
		return nil, net.UnknownNetworkError(network)
	}
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := net.DefaultResolver.LookupPort(ctx, network, service)
	if err != nil {
		return nil, err
	}
	ips := []netip.Addr{netip.IPv4Unspecified()}
	if host == "" && family == "6" {
		ips = []netip.Addr{netip.IPv6Unspecified()}
	} else if host != "" {
		if ips, err = lookup.Addrs(ctx, "ip"+family, host); err != nil {
			return nil, err
		}
	}
	var addrs []netip.AddrPort
	for _, ip := range ips {
		addrs = append(addrs, netip.AddrPortFrom(ip, uint16(port)))
	}
	return addrs, nil
}
