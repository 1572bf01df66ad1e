package rsocket_test

import (
	"bytes"
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/rs"
	"github.com/verbena-rdma/verbena/rsocket"
	"github.com/verbena-rdma/verbena/rsocket/internal/socktest"
)

// acquainted returns two datagram sockets that know each other's QP.
func acquainted(t *testing.T) (p *places, a, b net.PacketConn) {
	t.Helper()
	p = overUDP(t)
	t.Cleanup(p.Close)
	a, b = p.packets()
	t.Cleanup(func() {
		_ = b.Close()
		_ = a.Close()
	})
	p.OK(a.SetDeadline(time.Now().Add(20 * time.Second)))
	p.OK(b.SetDeadline(time.Now().Add(20 * time.Second)))
	buf := make([]byte, 100)
	must(a.WriteTo([]byte("hello"), b.LocalAddr()))(p)
	must2(b.ReadFrom(buf))(p)
	must(b.WriteTo([]byte("hello"), a.LocalAddr()))(p)
	must2(a.ReadFrom(buf))(p)
	return p, a, b
}

// A write fails after the write deadline, with and without room. The read deadline has no effect on it.
func TestDatagramWriteDeadline(t *testing.T) {
	p, a, b := acquainted(t)
	p.OK(a.SetDeadline(time.Time{}))
	write := func() error {
		_, err := a.WriteTo([]byte("x"), b.LocalAddr())
		return err
	}
	p.OK(a.SetReadDeadline(time.Unix(1, 0)))
	p.OK(write())
	p.OK(a.SetWriteDeadline(time.Unix(1, 0)))
	if err := write(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("with room, after the deadline: %v", err)
	}
	p.OK(a.SetWriteDeadline(time.Time{}))
	release := a.(*rsocket.PacketConn).TakeSendSlots()
	p.OK(a.SetWriteDeadline(time.Now().Add(20 * time.Millisecond)))
	if err := write(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("without room: %v", err)
	}
	p.OK(a.SetWriteDeadline(time.Now().Add(20 * time.Second)))
	p.OK(release())
	p.OK(write())
}

// Messages that are longer than a packet of the QP arrive too, by UDP, and those after them by the QP.
func TestW_DS_10_MessagesLongerThanThePathMTU(t *testing.T) {
	p := overEthernet(t)
	defer p.Close()
	a, b := p.packets()
	defer a.Close()
	defer b.Close()
	p.OK(a.SetDeadline(time.Now().Add(20 * time.Second)))
	p.OK(b.SetDeadline(time.Now().Add(20 * time.Second)))
	buf := make([]byte, 4096)
	for i, size := range []int{5, 5, 1016, 1017, rsocket.MaxDatagram4, 1016, 5} {
		for _, way := range [][2]net.PacketConn{{a, b}, {b, a}} {
			msg := socktest.Text(size, uint64(i))
			must(way[0].WriteTo(msg, way[1].LocalAddr()))(p)
			n, from, err := way[1].ReadFrom(buf)
			if err != nil || !bytes.Equal(buf[:n], msg) || from.String() != way[0].LocalAddr().String() {
				t.Fatalf("message %d of %d bytes: %d bytes from %v, %v", i, size, n, from, err)
			}
		}
	}
	if !rsocket.KnowsQP(a, b.LocalAddr()) || !rsocket.KnowsQP(b, a.LocalAddr()) {
		t.Error("all messages went by UDP")
	}
}

// A connected socket receives only from its peer, and answers no one else. Messages of others use none of the room for
// the peer's messages.
func TestR_SOCK_17_ConnectedSocketReceivesFromItsPeerOnly(t *testing.T) {
	p := overUDP(t)
	defer p.Close()
	stranger, b := p.packets()
	defer stranger.Close()
	defer b.Close()
	c := must(p.dialer(rsocket.Options{RQSize: 4}).Dial("udp", b.LocalAddr().String()))(p)
	defer c.Close()
	r := p.rawPackets()
	defer r.close(p)
	end := time.Now().Add(20 * time.Second)
	p.OK(c.SetDeadline(end))
	p.OK(b.SetDeadline(end))
	hears := func(what string) {
		t.Helper()
		buf := make([]byte, 100)
		for got := 0; got == 0; { // whoever sends while there is no room loses messages
			if time.Now().After(end) {
				t.Fatalf("%s: no message of the peer arrives", what)
			}
			must(b.WriteTo([]byte(what), c.LocalAddr()))(p)
			p.OK(c.SetReadDeadline(time.Now().Add(50 * time.Millisecond)))
			for {
				n, err := c.Read(buf)
				if err != nil {
					break
				}
				if got++; strings.HasPrefix(string(buf[:n]), "stranger") {
					t.Errorf("%s: heard %q", what, buf[:n])
				}
			}
		}
	}
	for range 10 {
		r.toUDP(p, c.LocalAddr(), rs.OpData, "stranger, by UDP")
	}
	hears("by UDP")
	if rsocket.KnowsQP(c.(*rsocket.PacketConn), r.udp.LocalAddr()) {
		t.Error("the QP of a stranger is remembered")
	}
	p.OK(r.udp.SetReadDeadline(time.Now().Add(20 * time.Millisecond)))
	if _, from, err := r.udp.ReadFromUDPAddrPort(make([]byte, 100)); err == nil {
		t.Errorf("%v has answered a stranger", from)
	}
	p.OK(rsocket.Meet(stranger, c))
	for !rsocket.KnowsQP(b, c.LocalAddr()) {
		hears("still by UDP")
	}
	for range 20 {
		must(stranger.WriteTo([]byte("stranger, by its QP"), c.LocalAddr()))(p)
	}
	hears("by the QP")
}

// The receive buffer and RQSize also limit the messages that arrive by UDP.
func TestR_IO_18_NoRoomForMessagesByUDP(t *testing.T) {
	p := overUDP(t)
	defer p.Close()
	r := p.rawPackets()
	defer r.close(p)
	for want, o := range map[int]rsocket.Options{4: {RecvBuf: 4*rs.DatagramMax + 1}, 3: {RQSize: 3}, 1: {RecvBuf: 100}} {
		b := must((&rsocket.ListenConfig{Host: p.B.Host, Options: o}).ListenPacket(bg, "udp", p.B.At(0)))(p)
		buf := make([]byte, 10)
		for range 2 { // what was received makes room
			for i := range want + 3 {
				r.toUDP(p, b.LocalAddr(), rs.OpData, strconv.Itoa(i))
				r.fromUDP(p) // the answer: it has been looked at
			}
			p.OK(b.SetDeadline(time.Now().Add(20 * time.Second)))
			for i := range want {
				if n, _, err := b.ReadFrom(buf); err != nil || string(buf[:n]) != strconv.Itoa(i) {
					t.Errorf("%+v: message %d: %q, %v", o, i, buf[:n], err)
				}
			}
			p.OK(b.SetDeadline(time.Now().Add(10 * time.Millisecond)))
			if n, _, err := b.ReadFrom(buf); err == nil {
				t.Errorf("%+v: %q arrived too", o, buf[:n])
			}
		}
		p.OK(b.Close())
	}
}

// Two messages, or two free slots, wake two waiting goroutines, though a wake-up is one token.
func TestDatagramWakesEveryWaiter(t *testing.T) {
	p, a, b := acquainted(t)
	done := make(chan error, 2)
	both := func(what string, wait func() error, now func()) {
		t.Helper()
		for range 2 {
			go func() { done <- wait() }()
		}
		time.Sleep(50 * time.Millisecond) // until both sleep, else the test shows nothing
		now()
		for range 2 {
			if err := <-done; err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	both("read", func() error {
		_, _, err := b.ReadFrom(make([]byte, 1))
		return err
	}, func() { b.(*rsocket.PacketConn).DeliverTwo(a.LocalAddr(), "x", "y") })
	release := a.(*rsocket.PacketConn).TakeSendSlots()
	both("write", func() error {
		_, err := a.WriteTo([]byte("x"), b.LocalAddr())
		return err
	}, func() { p.OK(release()) })
}
