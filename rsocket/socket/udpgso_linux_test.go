package socket_test

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/rsocket/socket"
)

// The UDP socket behind a datagram socket has the messages of the protocol: options that split, join or hold back
// datagrams are not for it.
func TestOptionsOfUDPAreNotKnown(t *testing.T) {
	for _, name := range []int{unix.UDP_SEGMENT, unix.UDP_CORK, unix.UDP_GRO} {
		p := overUDP(t)
		a, b := p.socket(p.A, socket.SockDgram), p.socket(p.B, socket.SockDgram)
		p.OK(a.Bind(netip.AddrPortFrom(p.A.Addr, 0)))
		p.OK(b.Bind(netip.AddrPortFrom(p.B.Addr, 0)))
		if err := a.SetOptionInt(unix.SOL_UDP, name, 500); !errors.Is(err, syscall.ENOTSUP) {
			t.Errorf("option %d: %v, want ENOTSUP", name, err)
		}
		// The first message goes by UDP.
		must(a.SendTo(make([]byte, 1000), 0, must(b.SockName())(p)))(p)
		fds := []socket.PollFD{{Socket: b, Events: socket.PollIn}}
		if n, err := socket.Poll(fds, 2e9); n != 1 || err != nil {
			t.Errorf("option %d: the message does not arrive: %v", name, err)
		} else if n, err := b.Recv(make([]byte, 2000), 0); n != 1000 || err != nil {
			t.Errorf("option %d: %d bytes, %v; want 1000", name, n, err)
		}
		p.closeSockets(a, b)
		p.Close()
	}
}
