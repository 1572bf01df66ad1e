package socket_test

import (
	"net/netip"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/rsocket/socket"
)

// A connected datagram socket that is connected to no address has no peer any more, receives from all, and keeps its
// own address, also if others may have that too.
func TestDatagramSocketsAreDisconnected(t *testing.T) {
	for _, shared := range []int{0, 1} {
		p := overUDP(t)
		a, b, c := p.socket(p.A, socket.SockDgram), p.socket(p.B, socket.SockDgram), p.socket(p.B, socket.SockDgram)
		p.OK(a.Connect(netip.AddrPort{})) // it has no peer
		p.OK(a.SetOptionInt(socket.SolSocket, socket.SoReuseAddr, shared))
		for _, s := range []*socket.Socket{b, c} {
			p.OK(s.Bind(netip.AddrPortFrom(p.B.Addr, 0)))
		}
		p.OK(a.Bind(netip.AddrPortFrom(p.A.Addr, 0)))
		at := must(a.SockName())(p)
		p.OK(a.Connect(must(b.SockName())(p)))
		must(a.Send([]byte("to b"), 0))(p)
		p.OK(a.Connect(netip.AddrPort{}))
		_, err := a.PeerName()
		p.errno("the peer's name", err, syscall.ENOTCONN)
		_, err = a.Send([]byte("x"), 0)
		p.errno("a message to nobody", err, syscall.EDESTADDRREQ)
		for _, s := range []*socket.Socket{b, c} {
			must(s.SendTo([]byte("to a"), 0, at))(p)
			fds := []socket.PollFD{{Socket: a, Events: socket.PollIn}}
			if n, err := socket.Poll(fds, 10e9); n != 1 || err != nil {
				t.Fatalf("shared %d: the message does not arrive: %v", shared, err)
			}
			buf := make([]byte, 10)
			n, from, err := a.RecvFrom(buf, 0)
			if string(buf[:n]) != "to a" || from != must(s.SockName())(p) || err != nil {
				t.Errorf("%q from %v, %v", buf[:n], from, err)
			}
		}
		if now := must(a.SockName())(p); now != at {
			t.Errorf("the address is %v, want %v", now, at)
		}
		p.closeSockets(a, b, c)
		p.Close()
	}
}
