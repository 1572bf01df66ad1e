package sock

import (
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
)

// With SO_REUSEADDR, a socket that is connected to its client and a new one for the next client have one address. Each
// gets the messages of its own clients, by UDP and by its QP. This is how servers of DTLS and iperf3 -u work.
func TestSocketsOfOneAddress(t *testing.T) {
	loopback := netip.MustParseAddr("127.0.0.1")
	fabric := rdmatest.New(rdmatest.Config{RealTime: true})
	host := rdmacm.NewHost(must(fabric.NewDevice("a", loopback))(t))
	newSocket := func(at netip.AddrPort) *Datagram {
		d := NewDatagram(JoinHub(host), true, Options{}.WithDefaults())
		ok(t, d.SetUDPOption(solSocket, soReuseAddr, []byte{0, 0, 0, 0}))
		ok(t, d.SetUDPOption(solSocket, soReuseAddr, []byte{1, 0, 0, 1}))
		ok(t, d.Bind(at))
		return d
	}
	first := newSocket(netip.AddrPortFrom(loopback, 0))
	defer first.Close()
	at, servers := first.Local(), []*Datagram{first}
	var clients []*Datagram
	read := func(d *Datagram, want string, of netip.AddrPort) {
		t.Helper()
		ok(t, d.SetDeadline(time.Now().Add(20*time.Second), true, false))
		b := make([]byte, 10)
		if n, from, err := d.RecvFrom(b, 0, d.Reading()); string(b[:n]) != want || from != of || err != nil {
			t.Fatalf("%q from %v, %v; want %q from %v", b[:n], from, err, want, of)
		}
	}
	write := func(d *Datagram, s string) {
		t.Helper()
		_, err := d.Send([]byte(s), d.Writing())
		ok(t, err)
	}
	for range 3 {
		c := NewDatagram(JoinHub(host), true, Options{}.WithDefaults())
		defer c.Close()
		ok(t, c.Connect(at))
		write(c, "hello")
		s := servers[len(servers)-1]
		read(s, "hello", c.Local())
		ok(t, s.Connect(c.Local()))
		write(s, "welcome")
		read(c, "welcome", at)
		next := newSocket(at)
		defer next.Close()
		servers, clients = append(servers, next), append(clients, c)
	}
	for range 3 {
		for i, c := range clients {
			write(c, "question")
			read(servers[i], "question", c.Local())
			write(servers[i], "answer")
			read(c, "answer", at)
		}
	}
	group := netip.AddrPort{}
	for range 2 { // of a group that the system distributes clients to
		d := NewDatagram(JoinHub(host), true, Options{}.WithDefaults())
		defer d.Close()
		ok(t, d.SetUDPOption(solSocket, soReusePort, []byte{1, 0, 0, 1}))
		ok(t, d.Bind(netip.AddrPortFrom(loopback, group.Port())))
		group = d.Local()
	}
	other := NewDatagram(JoinHub(host), true, Options{}.WithDefaults())
	defer other.Close()
	if err := other.Bind(at); err == nil {
		t.Error("a socket without the option has the address too")
	}
}
