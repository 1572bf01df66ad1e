package rsocket

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/internal/lookup"
	"github.com/verbena-rdma/verbena/rdmacm"
)

// Dialer makes connections. The zero value is ready for use.
type Dialer struct {
	Options
	Host      *rdmacm.Host  // nil for the default one
	LocalAddr net.Addr      // where from; nil for what suits the peer
	Timeout   time.Duration // of making the connection; 0 for as long as the connection manager tries
	// KeepAlive is the time after which a silent peer is asked whether it is there; 0 stands for 15 s, less for never.
	KeepAlive time.Duration
}

// defaultKeepAlive is that of package net.
const defaultKeepAlive = 15 * time.Second

// Dial connects to an address: network is tcp, tcp4 or tcp6, and so are the addresses of the connection, since they look
// the same; ports are RDMA's own (rsocket, rconnect). The context-free twin of DialContext.
func Dial(network, address string) (net.Conn, error) {
	return new(Dialer).DialContext(background, network, address)
}

// DialContext connects to an address, as Dial does. When c is done before, the request is taken back.
func DialContext(c context.Context, network, address string) (net.Conn, error) {
	return new(Dialer).DialContext(c, network, address)
}

// Dial connects to an address.
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(background, network, address)
}

// DialContext connects to an address, as net.Dialer.DialContext does: it tries the addresses of a name one after the other. udp,
// udp4 and udp6 make a datagram socket that sends to the address (a *PacketConn). ECONNREFUSED: nobody listens there, or somebody who does not
// speak the protocol; ETIMEDOUT: no answer; ENOTSUP: a peer of another version.
func (d *Dialer) DialContext(c context.Context, network, address string) (net.Conn, error) {
	if d.Timeout > 0 {
		var cancel context.CancelFunc
		c, cancel = context.WithTimeout(c, d.Timeout)
		defer cancel()
	}
	addrs, err := resolve(c, network, address)
	if err != nil {
		return nil, opError("dial", network, d.LocalAddr, nil, err)
	}
	var first error
	for _, a := range addrs {
		conn, err := d.dialOne(c, network, a)
		if err == nil {
			return conn, nil
		}
		if first == nil {
			first = opError("dial", network, d.LocalAddr, net.TCPAddrFromAddrPort(a), ioError{err})
		}
		if c.Err() != nil {
			break
		}
	}
	return nil, first
}

func (d *Dialer) dialOne(c context.Context, network string, to netip.AddrPort) (net.Conn, error) {
	if strings.HasPrefix(network, "udp") {
		return d.dialPacket(network, to)
	}
	b, err := joinHub(hostOf(d.Host))
	if err != nil {
		return nil, err
	}
	st := newStream(b, d.withDefaults())
	id, err := b.host.CreateID(b.ch, rdmacm.PSTCP, nil)
	if err != nil {
		b.leave()
		return nil, err
	}
	if from := addrPort(d.LocalAddr); from.IsValid() {
		err = id.BindAddr(from)
	}
	if err != nil {
		_ = id.Close()
		b.leave()
		return nil, err
	}
	if err = st.connect(id, to); err == nil {
		err = st.awaitConnection(c)
	}
	if err != nil {
		st.close(0)
		return nil, err
	}
	st.startKeepalive(keepAlive(d.KeepAlive))
	return newConn(st, network), nil
}

func keepAlive(d time.Duration) time.Duration {
	if d == 0 {
		return defaultKeepAlive
	}
	return max(d, 0)
}

// resolve finds the addresses for a network and an address.
func resolve(c context.Context, network, address string) ([]netip.AddrPort, error) {
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
	port, err := net.DefaultResolver.LookupPort(c, network, service)
	if err != nil {
		return nil, err
	}
	ips := []netip.Addr{netip.IPv4Unspecified()}
	if host == "" && family == "6" {
		ips = []netip.Addr{netip.IPv6Unspecified()}
	} else if host != "" {
		if ips, err = lookup.Addrs(c, "ip"+family, host); err != nil {
			return nil, err
		}
	}
	var addrs []netip.AddrPort
	for _, ip := range ips {
		addrs = append(addrs, netip.AddrPortFrom(ip, uint16(port)))
	}
	return addrs, nil
}
