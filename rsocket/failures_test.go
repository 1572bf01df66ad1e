package rsocket_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/rsocket"
)

// foreign is an address that no host of the tests has.
var foreign = netip.MustParseAddrPort("203.0.113.1:7")

// Addresses that cannot be read are refused by each function, with the errors of package net.
func TestUnreadableAddresses(t *testing.T) {
	for what, call := range map[string]func(address string) error{
		"Dial tcp":     func(a string) error { _, err := rsocket.Dial("tcp", a); return err },
		"Dial udp":     func(a string) error { _, err := rsocket.Dial("udp", a); return err },
		"Listen":       func(a string) error { _, err := rsocket.Listen("tcp", a); return err },
		"ListenPacket": func(a string) error { _, err := rsocket.ListenPacket("udp", a); return err },
	} {
		var op *net.OpError
		var addr *net.AddrError
		if err := call("127.0.0.1"); !errors.As(err, &op) || !errors.As(err, &addr) {
			t.Errorf("%s without a port: %v", what, err)
		}
		var dns *net.DNSError
		if err := call("127.0.0.1:no-such-service"); !errors.As(err, &op) || !errors.As(err, &dns) {
			t.Errorf("%s to an unknown service: %v", what, err)
		}
	}
}

// Calls that fail have the first error, and leave nothing on the host.
func TestFailedListenersAndDialsLeaveNothing(t *testing.T) {
	notHere := syscall.EADDRNOTAVAIL // as package net has it, which is another number on Windows
	if _, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(foreign)); !errors.As(err, &notHere) {
		t.Skipf("this system binds sockets to %v: %v", foreign, err)
	}
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		lc := &rsocket.ListenConfig{Host: p.B.Host}
		l := must(lc.Listen(bg, "tcp", p.B.At(0)))(p)
		odd := &rsocket.ListenConfig{Host: p.B.Host, Options: rsocket.Options{PathMTU: 9}}
		from := func(local net.Addr) *rsocket.Dialer { return &rsocket.Dialer{Host: p.A.Host, LocalAddr: local} }
		for what, c := range map[string]struct {
			call func() error
			want syscall.Errno
		}{
			"listen at an address in use": {func() error {
				_, err := lc.Listen(bg, "tcp", l.Addr().String())
				return err
			}, syscall.EADDRINUSE},
			"listen at a foreign address": {func() error {
				_, err := lc.Listen(bg, "tcp", foreign.String())
				return err
			}, syscall.ENODEV},
			"listen with an unknown MTU": {func() error {
				_, err := odd.Listen(bg, "tcp", p.B.At(0))
				return err
			}, syscall.EINVAL},
			"datagrams at a foreign address": {func() error {
				_, err := lc.ListenPacket(bg, "udp", foreign.String())
				return err
			}, notHere},
			"dial from a foreign address": {func() error {
				_, err := from(net.TCPAddrFromAddrPort(foreign)).Dial("tcp", l.Addr().String())
				return err
			}, syscall.ENODEV},
			"datagrams from a foreign address": {func() error {
				_, err := from(net.UDPAddrFromAddrPort(foreign)).Dial("udp", l.Addr().String())
				return err
			}, notHere},
		} {
			if err := c.call(); !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", what, err, c.want)
			}
		}
		p.OK(l.Close())
	})
}

// Of the addresses of a name the next one is tried if one fails. If all fail, the error is that of the first.
func TestDialTriesEachAddress(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		dev := must(p.Fab.NewDevice("lo", netip.AddrFrom4([4]byte{127, 0, 0, 1})))(p)
		host := rdmacm.NewHost(dev)
		l := must((&rsocket.ListenConfig{Host: host}).Listen(bg, "tcp", "127.0.0.1:4242"))(p)
		d := &rsocket.Dialer{Host: host}
		c := must(d.Dial("tcp", "[::]:4242"))(p) // [::1], then 127.0.0.1
		if got := c.RemoteAddr().String(); got != "127.0.0.1:4242" {
			t.Errorf("connected to %v", got)
		}
		_, err := d.Dial("tcp", "[::]:4243")
		var op *net.OpError
		if !errors.As(err, &op) || op.Addr.String() != "[::1]:4243" {
			t.Errorf("no address answers: %v", err)
		}
		p.OK(c.Close())
		p.OK(l.Close())
		synctest.Wait()
		time.Sleep(time.Minute) // until the ends of the connection are gone
		p.OK(host.Close())
	})
}

// Errors of datagram sockets are those of package net.
func TestDatagramErrorsOfPackageNet(t *testing.T) {
	p := overUDP(t)
	defer p.Close()
	a, b := p.packets()
	defer b.Close()
	c := must(p.dialer(rsocket.Options{}).Dial("udp", b.LocalAddr().String()))(p)
	if got := c.RemoteAddr(); got == nil || got.String() != b.LocalAddr().String() {
		t.Errorf("the remote address of a connected socket: %v", got)
	}
	p.OK(c.Close())
	if got := a.(*rsocket.PacketConn).RemoteAddr(); got != nil {
		t.Errorf("the remote address of a socket without a peer: %v", got)
	}
	is := func(what string, err, want error, op string, timeout bool) {
		t.Helper()
		var oe *net.OpError
		if !errors.Is(err, want) || !errors.As(err, &oe) || oe.Op != op || oe.Net != "udp" || oe.Timeout() != timeout ||
			oe.Source.String() == "" {
			t.Errorf("%s: %v (%T), want %v", what, err, err, want)
			return
		}
		if want == net.ErrClosed && oe.Err != want {
			t.Errorf("%s: %T, want net.ErrClosed itself", what, oe.Err)
		}
	}
	calls := func(read, write error, timeout bool) {
		t.Helper()
		_, _, err := a.ReadFrom(make([]byte, 1))
		is("ReadFrom", err, read, "read", timeout)
		_, err = a.WriteTo([]byte("x"), b.LocalAddr())
		is("WriteTo", err, write, "write", timeout)
	}
	_, err := a.(*rsocket.PacketConn).Write([]byte("x"))
	is("Write without a peer", err, syscall.EDESTADDRREQ, "write", false)
	p.OK(a.SetDeadline(time.Unix(1, 0)))
	calls(os.ErrDeadlineExceeded, os.ErrDeadlineExceeded, true)
	p.OK(a.SetDeadline(time.Now().Add(20 * time.Second)))
	must(a.WriteTo([]byte("x"), a.LocalAddr()))(p)
	p.OK(a.SetWriteDeadline(time.Unix(1, 0))) // which reads do not have
	n, _, err := a.ReadFrom(make([]byte, 9))
	if n != 1 || err != nil {
		t.Errorf("after the write deadline: %d bytes, %v", n, err)
	}
	p.OK(a.SetDeadline(time.Unix(1, 0)))
	p.OK(a.Close()) // which the deadline does not hide
	calls(net.ErrClosed, net.ErrClosed, false)
	is("Close again", a.Close(), net.ErrClosed, "close", false)
	is("SetDeadline", a.SetDeadline(time.Time{}), net.ErrClosed, "set", false)
}

// Errors of a listener are those of package net.
func TestListenerErrorsOfPackageNet(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		l := p.listen(rsocket.Options{})
		p.OK(l.SetDeadline(time.Unix(1, 0)))
		_, err := l.Accept()
		var oe *net.OpError
		if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &oe) || !oe.Timeout() || oe.Op != "accept" {
			t.Errorf("accept after the deadline: %v", err)
		}
		p.OK(l.Close()) // which the deadline does not hide: a server that continues after time-outs would not end
		_, err = l.Accept()
		for op, err := range map[string]error{"accept": err, "close": l.Close()} {
			if !errors.As(err, &oe) || oe.Err != net.ErrClosed || oe.Op != op || oe.Addr != l.Addr() {
				t.Errorf("%s when closed: %v", op, err)
			}
		}
	})
}

// failing is a reader and a writer that has only an error.
type failing struct{ error }

func (f failing) Read([]byte) (int, error)  { return 0, f.error }
func (f failing) Write([]byte) (int, error) { return 0, f.error }

// A copy goes on until the end of the stream, whatever pieces the data comes in.
func TestCopyOfSeveralPieces(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		a, b := p.pair(rsocket.Options{}, rsocket.Options{})
		go func() {
			for _, piece := range []string{"one, ", "two, ", "three"} {
				must(a.Write([]byte(piece)))(p)
				time.Sleep(time.Second)
			}
			p.OK(a.CloseWrite())
		}()
		var got bytes.Buffer
		if n, err := b.WriteTo(&got); n != 15 || err != nil || got.String() != "one, two, three" {
			t.Errorf("%d bytes, %q, %v", n, got.String(), err)
		}
		p.OK(a.Close())
		p.OK(b.Close())
	})
}

// short is a writer that writes one byte, against the rules of io.Writer without an error.
type short struct{}

func (short) Write([]byte) (int, error) { return 1, nil }

// The errors of what a connection copies from and to are passed on: io.EOF and those of other connections as they are.
func TestErrorsOfCopies(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		a, b := p.pair(rsocket.Options{}, rsocket.Options{})
		other := &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}
		for _, want := range []error{io.EOF, other} {
			must(a.Write([]byte("x")))(p)
			if _, err := b.WriteTo(failing{want}); err != want {
				t.Errorf("WriteTo: %v (%T), want %v", err, err, want)
			}
		}
		if _, err := b.ReadFrom(failing{other}); err != other {
			t.Errorf("ReadFrom: %v, want %v", err, other)
		}
		must(a.Write([]byte("hello")))(p)
		if n, err := b.WriteTo(short{}); n != 1 || !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("WriteTo a writer that writes less: %d, %v", n, err)
		}
		if n, err := b.ReadFrom(failing{io.EOF}); n != 0 || err != nil {
			t.Errorf("ReadFrom at the end: %d, %v", n, err)
		}
		_, err := b.ReadFrom(failing{os.ErrPermission})
		var oe *net.OpError
		if !errors.Is(err, os.ErrPermission) || !errors.As(err, &oe) || oe.Op != "readfrom" {
			t.Errorf("ReadFrom: %v", err)
		}
		p.OK(a.Close())
		p.OK(b.Close())
	})
}

// Addresses of another type are refused as package net does.
func TestAddressesOfAnotherType(t *testing.T) {
	p := overUDP(t)
	defer p.Close()
	a, b := p.packets()
	defer a.Close()
	defer b.Close()
	plain := must(net.ListenPacket("udp", "127.0.0.1:0"))(p)
	defer plain.Close()
	to := b.LocalAddr().(*net.UDPAddr)
	for _, addr := range []net.Addr{
		(*net.TCPAddr)(to), &net.IPAddr{IP: to.IP}, &net.UnixAddr{Name: "x", Net: "unixgram"}, nil, (*net.UDPAddr)(nil),
	} {
		_, want := plain.WriteTo([]byte("x"), addr)
		n, err := a.WriteTo([]byte("x"), addr)
		var got, net *net.OpError
		if n != 0 || !errors.As(err, &got) || !errors.As(want, &net) || got.Op != net.Op || got.Addr != net.Addr {
			t.Errorf("WriteTo %T %v: %d, %v; package net: %v", addr, addr, n, err, want)
		}
		if !errors.Is(err, syscall.EINVAL) {
			t.Errorf("WriteTo %T %v: %v, want EINVAL", addr, addr, err)
		}
	}
	for network, local := range map[string]net.Addr{
		"udp": &net.TCPAddr{IP: to.IP}, "tcp": &net.UDPAddr{IP: to.IP}, "udp4": &net.UnixAddr{Name: "x", Net: "unixgram"},
	} {
		_, want := (&net.Dialer{LocalAddr: local}).Dial(network, to.String())
		_, err := (&rsocket.Dialer{Host: p.A.Host, LocalAddr: local}).Dial(network, to.String())
		var addr *net.AddrError
		if !errors.As(err, &addr) || err.Error() != want.Error() {
			t.Errorf("Dial %s from a %T: %v; package net: %v", network, local, err, want)
		}
	}
	_, err := a.WriteTo(make([]byte, rsocket.MaxDatagram4+1), to)
	var op *net.OpError
	if !errors.As(err, &op) || op.Addr != net.Addr(to) {
		t.Errorf("the error of a message that is too long has no destination: %v", err)
	}
}

// The error of a name that is not found is that of package net: operation, network, name and cause.
func TestDialOfAnUnknownName(t *testing.T) {
	gone, cancel := context.WithCancel(bg)
	cancel() // so that no server is asked
	d := &rsocket.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}}
	_, err := d.DialContext(gone, "tcp", "nobody.invalid:7471")
	var dns *net.DNSError
	if !errors.As(err, &dns) || err.Error() != "dial tcp: "+dns.Error() || dns.Name != "nobody.invalid" {
		t.Errorf("%v (%T)", err, err)
	}
}
