package rsocket_test

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
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

// packets are two datagram sockets over UDP.
func (p *places) packets() (a, b net.PacketConn) {
	p.Helper()
	a, err := (&rsocket.ListenConfig{Host: p.A.Host}).ListenPacket(bg, "udp", p.A.At(0))
	p.OK(err)
	b, err = (&rsocket.ListenConfig{Host: p.B.Host}).ListenPacket(bg, "udp", p.B.At(0))
	p.OK(err)
	return a, b
}

// Messages keep their boundaries and have their sender's address: the first one, sent by UDP, and those by the QP.
func TestR_IO_16_DatagramsKeepBoundaries(t *testing.T) {
	p := overUDP(t)
	defer p.Close()
	a, b := p.packets()
	defer a.Close()
	defer b.Close()
	buf := make([]byte, 4096)
	p.OK(b.SetDeadline(time.Now().Add(20 * time.Second)))
	p.OK(a.SetDeadline(time.Now().Add(20 * time.Second)))
	for i, size := range []int{5, 0, 1, 2040, 100, 2040} {
		msg := socktest.Text(size, uint64(i))
		must(a.WriteTo(msg, b.LocalAddr()))(p)
		n, from, err := b.ReadFrom(buf)
		p.OK(err)
		if !bytes.Equal(buf[:n], msg) || from.String() != a.LocalAddr().String() {
			t.Fatalf("message %d: %d bytes from %v", i, n, from)
		}
		must(b.WriteTo(msg, from))(p)
		n, from, err = a.ReadFrom(buf)
		p.OK(err)
		if !bytes.Equal(buf[:n], msg) || from.String() != b.LocalAddr().String() {
			t.Fatalf("answer %d: %d bytes from %v", i, n, from)
		}
	}
	// The part that does not fit is lost.
	must(a.WriteTo([]byte("12345"), b.LocalAddr()))(p)
	must(a.WriteTo([]byte("678"), b.LocalAddr()))(p)
	if n, _, err := b.ReadFrom(buf[:2]); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, _, err := b.ReadFrom(buf); string(buf[:n]) != "678" || err != nil {
		t.Errorf("%q, %v", buf[:n], err)
	}
}

func TestR_IO_17_DatagramTooLarge(t *testing.T) {
	p := overUDP(t)
	defer p.Close()
	a, b := p.packets()
	defer a.Close()
	defer b.Close()
	if n, err := a.WriteTo(make([]byte, rsocket.MaxDatagram4+1), b.LocalAddr()); n != 0 || !errors.Is(err,
		syscall.EMSGSIZE) {
		t.Errorf("%d, %v", n, err)
	}
}

// IPv6 has a longer header. One host is enough: its sockets have different ports.
func TestR_IO_17_R_IO_16_DatagramsByIPv6(t *testing.T) {
	fabric := mem.NewFabric(mem.Config{}) // another process may have the port of ::1
	dev, err := soft.New(softlink.On(soft.Config{Name: "six", Addrs: []netip.Addr{netip.IPv6Loopback()}},
		softlink.Links{Open: func(addrs []netip.Addr, ports int) (link.Link, error) {
			return fabric.Open(addrs, ports)
		}}))
	if err != nil {
		t.Fatal(err)
	}
	host := rdmacm.NewHost(dev.Device)
	p := &places{&socktest.Places{TB: t, A: socktest.Place{Host: host, Addr: netip.IPv6Loopback()}}}
	p.B = p.A
	defer p.Close()
	a, err := (&rsocket.ListenConfig{Host: host}).ListenPacket(bg, "udp", "[::1]:0")
	if err != nil {
		t.Skip("this host has no IPv6: ", err)
	}
	defer a.Close()
	b := must((&rsocket.ListenConfig{Host: host}).ListenPacket(bg, "udp", "[::1]:0"))(p)
	defer b.Close()
	p.OK(a.SetDeadline(time.Now().Add(20 * time.Second)))
	p.OK(b.SetDeadline(time.Now().Add(20 * time.Second)))
	buf := make([]byte, 4096)
	if rsocket.MaxDatagram6 != 2024 || rsocket.MaxDatagram4 != 2040 {
		t.Error("wrong values of MaxDatagram4 and MaxDatagram6")
	}
	for i := range 4 {
		msg := socktest.Text(2024, uint64(i))
		must(a.WriteTo(msg, b.LocalAddr()))(p)
		n, from, err := b.ReadFrom(buf)
		p.OK(err)
		if !bytes.Equal(buf[:n], msg) || from.String() != a.LocalAddr().String() {
			t.Fatalf("message %d: %d bytes from %v", i, n, from)
		}
		must(b.WriteTo(msg[:9], from))(p)
		if n, from, err = a.ReadFrom(buf); err != nil || !bytes.Equal(buf[:n], msg[:9]) ||
			from.String() != b.LocalAddr().String() {
			t.Fatalf("answer %d: %d bytes from %v, %v", i, n, from, err)
		}
		if n, err := a.WriteTo(make([]byte, 2025), b.LocalAddr()); n != 0 || !errors.Is(err, syscall.EMSGSIZE) {
			t.Errorf("%d, %v", n, err)
		}
	}
	if _, err := a.WriteTo([]byte{1}, &net.UDPAddr{Port: 7}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("to no address: %v", err)
	}
}

func TestDatagramDeadlineAndClose(t *testing.T) {
	p := overUDP(t)
	defer p.Close()
	a, b := p.packets()
	defer b.Close()
	p.OK(a.SetReadDeadline(time.Now().Add(10 * time.Millisecond)))
	if _, _, err := a.ReadFrom(nil); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("deadline: %v", err)
	}
	p.OK(a.SetReadDeadline(time.Time{}))
	done := make(chan error, 2)
	for range 2 {
		go func() {
			_, _, err := a.ReadFrom(make([]byte, 1))
			done <- err
		}()
	}
	time.Sleep(10 * time.Millisecond)
	p.OK(a.Close())
	for range 2 {
		if err := <-done; !errors.Is(err, net.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	}
}

// Messages reach a peer that has restarted with another QP.
func TestW_DS_09_PeerRestarts(t *testing.T) {
	p := overUDP(t)
	defer p.Close()
	a, b := p.packets()
	defer a.Close()
	at := b.LocalAddr()
	buf := make([]byte, 10)
	p.OK(a.SetDeadline(time.Now().Add(20 * time.Second)))
	for round := range 3 {
		for range 3 {
			must(b.WriteTo([]byte{byte(round)}, a.LocalAddr()))(p)
			n, from, err := a.ReadFrom(buf)
			if err != nil || n != 1 || buf[0] != byte(round) {
				t.Fatalf("round %d: %v, %v", round, buf[:n], err)
			}
			must(a.WriteTo([]byte{byte(round)}, from))(p)
			p.OK(b.SetDeadline(time.Now().Add(20 * time.Second)))
			if n, _, err := b.ReadFrom(buf); err != nil || n != 1 || buf[0] != byte(round) {
				t.Fatalf("round %d: %v, %v", round, buf[:n], err)
			}
		}
		p.OK(b.Close())
		var err error
		b, err = (&rsocket.ListenConfig{Host: p.B.Host}).ListenPacket(bg, "udp", at.String())
		p.OK(err)
	}
	p.OK(b.Close())
}

// Invalid messages to the UDP socket are dropped.
func TestW_DS_05_BadMessagesAreDropped(t *testing.T) {
	p := overUDP(t)
	defer p.Close()
	a, b := p.packets()
	defer a.Close()
	defer b.Close()
	raw, err := net.Dial("udp", b.LocalAddr().String())
	p.OK(err)
	defer raw.Close()
	head := []byte{0x55, 0x55, 0x55, 0x55, 4, 0, 16, 0, 0, 0, 0, 9, 127, 0, 0, 1}
	for i := range head[:7] {
		bad := bytes.Clone(head)
		bad[i] ^= 0x10
		must(raw.Write(append(bad, "bad"...)))(p)
	}
	for n := range head {
		must(raw.Write(head[:n]))(p)
	}
	must(a.WriteTo([]byte("good"), b.LocalAddr()))(p)
	p.OK(b.SetDeadline(time.Now().Add(20 * time.Second)))
	buf := make([]byte, 10)
	if n, _, err := b.ReadFrom(buf); err != nil || string(buf[:n]) != "good" {
		t.Errorf("%q, %v", buf[:n], err)
	}
}

func TestR_SOCK_17_DatagramConnect(t *testing.T) {
	p := overUDP(t)
	defer p.Close()
	a, b := p.packets()
	p.OK(a.Close())
	defer b.Close()
	c, err := p.dialer(rsocket.Options{}).Dial("udp", b.LocalAddr().String())
	p.OK(err)
	defer c.Close()
	p.OK(b.SetDeadline(time.Now().Add(20 * time.Second)))
	p.OK(c.SetDeadline(time.Now().Add(20 * time.Second)))
	buf := make([]byte, 10)
	for range 3 {
		must(c.Write([]byte("ping")))(p)
		n, from, err := b.ReadFrom(buf)
		p.OK(err)
		if string(buf[:n]) != "ping" {
			t.Errorf("got %q", buf[:n])
		}
		must(b.WriteTo([]byte("pong"), from))(p)
		if n, err := c.Read(buf); err != nil || string(buf[:n]) != "pong" {
			t.Errorf("got %q, %v", buf[:n], err)
		}
	}
}
