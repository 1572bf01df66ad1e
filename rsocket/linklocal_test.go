package rsocket_test

import (
	"bytes"
	"net"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/mem"
	"github.com/verbena-rdma/verbena/internal/softlink"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rsocket"
	"github.com/verbena-rdma/verbena/rsocket/internal/socktest"
)

// linkLocal is an IPv6 link-local address of this machine that a socket can be bound to, with its zone.
func linkLocal(t *testing.T) netip.Addr {
	ifs, _ := net.Interfaces()
	for i := range ifs {
		addrs, _ := ifs[i].Addrs()
		for _, a := range addrs {
			p, err := netip.ParsePrefix(a.String())
			if err != nil || !p.Addr().Is6() || !p.Addr().IsLinkLocalUnicast() {
				continue
			}
			at := p.Addr().WithZone(ifs[i].Name)
			if c, err := net.ListenUDP("udp6", net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, 0))); err == nil {
				_ = c.Close()
				return at
			}
		}
	}
	t.Skip("no interface of this machine has an IPv6 link-local address")
	return netip.Addr{}
}

// onLinkLocal returns places that are one host, whose only address is link-local.
func onLinkLocal(t *testing.T) *places {
	t.Helper()
	at := linkLocal(t)
	fabric := mem.NewFabric(mem.Config{})
	dev, err := soft.New(softlink.On(soft.Config{Name: "local", Addrs: []netip.Addr{at}},
		softlink.Links{Open: func(addrs []netip.Addr, ports int) (link.Link, error) {
			return fabric.Open(addrs, ports)
		}}))
	if err != nil {
		t.Fatal(err)
	}
	here := socktest.Place{Host: rdmacm.NewHost(dev.Device), Addr: at}
	return &places{&socktest.Places{TB: t, A: here, B: here}}
}

// A link-local address needs its zone. The header of a message does not contain it, so the receiver takes the zone of
// its QP.
func TestDatagramsByLinkLocalAddress(t *testing.T) {
	p := onLinkLocal(t)
	defer p.Close()
	b := must((&rsocket.ListenConfig{Host: p.B.Host}).ListenPacket(bg, "udp", p.B.At(0)))(p)
	defer b.Close()
	bound := must((&rsocket.ListenConfig{Host: p.A.Host}).ListenPacket(bg, "udp", p.A.At(0)))(p)
	defer bound.Close()
	wild := must((&rsocket.ListenConfig{Host: p.A.Host}).ListenPacket(bg, "udp6", ":0"))(p)
	defer wild.Close()
	dialed := must(p.dialer(rsocket.Options{}).Dial("udp", b.LocalAddr().String()))(p)
	defer dialed.Close()
	ifi := must(net.InterfaceByName(p.A.Addr.Zone()))(p)
	numbered, bare := *b.LocalAddr().(*net.UDPAddr), *b.LocalAddr().(*net.UDPAddr)
	numbered.Zone, bare.Zone = strconv.Itoa(ifi.Index), ""
	toNumber := must(p.dialer(rsocket.Options{}).Dial("udp", numbered.String()))(p)
	defer toNumber.Close()
	for name, a := range map[string]net.Conn{
		"bound":             toward{bound.(*rsocket.PacketConn), b.LocalAddr()},
		"bound, to no zone": toward{bound.(*rsocket.PacketConn), &bare},
		"on all addresses":  toward{wild.(*rsocket.PacketConn), b.LocalAddr()}, "connected": dialed,
		"connected to a number": toNumber,
	} {
		p.OK(a.SetDeadline(time.Now().Add(20 * time.Second)))
		p.OK(b.SetDeadline(time.Now().Add(20 * time.Second)))
		buf := make([]byte, 4096)
		for i := range 4 { // by UDP, then by the QPs
			msg := socktest.Text(1000, uint64(i))
			must(a.Write(msg))(p)
			n, from, err := b.ReadFrom(buf)
			p.OK(err)
			if u := from.(*net.UDPAddr); !bytes.Equal(buf[:n], msg) || u.AddrPort().Addr() != p.A.Addr ||
				u.Port != a.LocalAddr().(*net.UDPAddr).Port {
				t.Fatalf("%s: message %d: %d bytes from %v", name, i, n, from)
			}
			if i == 3 && !rsocket.KnowsQP(b, from) {
				t.Errorf("%s: messages are sent by UDP", name)
			}
			must(b.WriteTo(msg[:9], from))(p)
			if n, err := a.Read(buf); err != nil || !bytes.Equal(buf[:n], msg[:9]) {
				t.Fatalf("%s: answer %d: %d bytes, %v", name, i, n, err)
			}
		}
	}
}

// toward is a datagram socket that writes to one address.
type toward struct {
	*rsocket.PacketConn
	to net.Addr
}

func (t toward) Write(b []byte) (int, error) { return t.WriteTo(b, t.to) }

// The addresses of a stream contain the zone, so that they can be dialed.
func TestStreamsByLinkLocalAddress(t *testing.T) {
	p := onLinkLocal(t)
	defer p.Close()
	l := p.listen(rsocket.Options{})
	d := p.dialer(rsocket.Options{})
	for name, from := range map[string]net.Addr{"any": nil,
		"this": net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.A.Addr, 0))} {
		d.LocalAddr = from
		c := must(d.Dial("tcp", l.Addr().String()))(p)
		s := must(l.Accept())(p)
		must(c.Write([]byte("x")))(p)
		must(s.Read(make([]byte, 1)))(p)
		if c.LocalAddr().String() != s.RemoteAddr().String() || s.LocalAddr().String() != c.RemoteAddr().String() {
			t.Errorf("from %s: %v-%v and %v-%v", name, c.LocalAddr(), c.RemoteAddr(), s.RemoteAddr(), s.LocalAddr())
		}
		p.OK(c.Close())
		p.OK(s.Close())
	}
	p.OK(l.Close())
}
