package rsocket_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/nettest"

	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/rsocket"
)

// The standard library's test of connections passes.
func TestNetConn(t *testing.T) {
	for name, open := range map[string]func(testing.TB) *places{
		"memory": func(tb testing.TB) *places { return memory(tb, rdmatest.Faults{}) },
		"udp":    overUDP,
		"shm":    overShm,
	} {
		t.Run(name, func(t *testing.T) {
			p := open(t)
			nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
				a, b := p.pair(rsocket.Options{}, rsocket.Options{})
				return a, b, func() { a.Close(); b.Close() }, nil
			})
			if name == "shm" && p.counter("shm_tx_packets") == 0 {
				t.Error("no packet was sent through shared memory")
			}
			p.Close()
		})
	}
}

// counter is a counter of host a's device.
func (p *places) counter(name string) uint64 {
	for _, c := range p.Devs[0].Counters() {
		if c.Name == name {
			return c.Value
		}
	}
	p.Fatal("no counter", name)
	return 0
}

// Errors are those of package net.
func TestErrorsOfPackageNet(t *testing.T) {
	for network, call := range map[string]func(network string) error{
		"udp": func(n string) error { _, err := rsocket.Listen(n, "127.0.0.1:0"); return err },
		"tcp": func(n string) error { _, err := rsocket.ListenPacket(n, "127.0.0.1:0"); return err },
		"ip":  func(n string) error { _, err := rsocket.Dial(n, "127.0.0.1:1"); return err },
	} {
		var op *net.OpError
		var unknown net.UnknownNetworkError
		if err := call(network); !errors.As(err, &op) || !errors.As(err, &unknown) {
			t.Errorf("%s: %v", network, err)
		}
	}
	if _, err := rsocket.Listen("tcp", "203.0.113.1:7"); !strings.HasPrefix(err.Error(), "listen tcp 203.0.113.1:7: ") {
		t.Errorf("Listen at a foreign address: %v", err)
	}
	for network, local := range map[string]net.Addr{
		"udp": &net.UDPAddr{IP: net.IPv4(203, 0, 113, 1)}, "tcp": &net.TCPAddr{IP: net.IPv4(203, 0, 113, 1)},
	} {
		_, err := (&rsocket.Dialer{LocalAddr: local}).Dial(network, "127.0.0.1:1")
		var op *net.OpError
		if !errors.As(err, &op) || op.Addr == nil || op.Addr.Network() != network {
			t.Errorf("%s from a foreign address: %v, the address is a %T", network, err, op.Addr)
		}
	}
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		a, b := p.pair(rsocket.Options{}, rsocket.Options{})
		is := func(what string, err, want error, op string, timeout bool) {
			t.Helper()
			var oe *net.OpError
			if !errors.Is(err, want) || !errors.As(err, &oe) {
				t.Errorf("%s: %v (%T), want %v", what, err, err, want)
				return
			}
			if oe.Op != op || oe.Net != "tcp" || oe.Timeout() != timeout {
				t.Errorf("%s: operation %q of %q, timeout %v", what, oe.Op, oe.Net, oe.Timeout())
			}
			if oe.Addr == nil {
				t.Errorf("%s: no address", what)
			}
			if oe.Temporary() != timeout && want != net.ErrClosed {
				t.Errorf("%s: temporary: %v", what, oe.Temporary())
			}
		}
		past := time.Unix(1, 0)
		p.OK(a.SetDeadline(past))
		_, err := a.Read(make([]byte, 1))
		is("read after the deadline", err, os.ErrDeadlineExceeded, "read", true)
		_, err = a.Write(make([]byte, 1))
		is("write after the deadline", err, os.ErrDeadlineExceeded, "write", true)
		p.OK(a.SetDeadline(time.Time{}))
		p.OK(a.CloseWrite())
		_, err = a.Write([]byte("x"))
		is("write after CloseWrite", err, syscall.EPIPE, "write", false)
		p.OK(a.Close())
		synctest.Wait()
		_, err = b.Write([]byte("x"))
		is("write to one who has closed", err, syscall.ECONNRESET, "write", false)
		_, err = a.Read(make([]byte, 1))
		is("read when closed", err, net.ErrClosed, "read", false)
		_, err = a.Write(make([]byte, 1))
		is("write when closed", err, net.ErrClosed, "write", false)
		is("close when closed", a.Close(), net.ErrClosed, "close", false)
		is("deadline when closed", a.SetDeadline(past), net.ErrClosed, "set", false)
		is("SetLinger when closed", a.SetLinger(0), net.ErrClosed, "set", false)
		is("CloseWrite when closed", a.CloseWrite(), net.ErrClosed, "close", false)
		_, err = p.dialer(rsocket.Options{}).Dial("tcp", p.B.At(1))
		is("nobody listens", err, syscall.ECONNREFUSED, "dial", false)
		if text := err.Error(); strings.Count(text, "connect:") != 1 || !strings.Contains(text, "(ECONNREFUSED)") {
			t.Errorf("without a listener: %q", text)
		}
		ctx, cancel := context.WithCancel(bg)
		cancel()
		_, err = p.dialer(rsocket.Options{}).DialContext(ctx, "tcp", p.B.At(1))
		is("given up", err, context.Canceled, "dial", false)
		p.Fab.Cut(p.A.Addr, p.B.Addr)
		d := p.dialer(rsocket.Options{})
		d.Timeout = time.Second
		start := time.Now()
		_, err = d.Dial("tcp", p.B.At(1))
		is("no answer in time", err, context.DeadlineExceeded, "dial", true)
		if text := err.Error(); !strings.Contains(text, "has not answered yet") || !strings.Contains(text, "verbena doctor") {
			t.Errorf("no answer in time: %q", text)
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("a timeout of 1 s takes %v", took)
		}
		p.OK(b.Close())
	})
}

// After the write deadline IOWrite fails, even if the buffer has room.
func TestIOWriteDeadline(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		mem := make([]byte, 300000)
		c, s := p.pair(rsocket.Options{IOMaps: 1}, rsocket.Options{})
		must(s.IOMap(mem, 0))(p)
		must(s.Write([]byte("go")))(p)
		must(c.Read(make([]byte, 2)))(p)
		p.OK(c.SetWriteDeadline(time.Now().Add(-time.Second)))
		if n, err := c.IOWrite([]byte("late"), 0); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d, %v", n, err)
		}
		p.OK(c.SetWriteDeadline(time.Time{}))
		if n := must(c.IOWrite([]byte("now"), 0))(p); n != 3 {
			t.Error(n)
		}
		restore := p.LoseRequests()
		p.OK(c.SetWriteDeadline(time.Now().Add(time.Millisecond)))
		large := make([]byte, len(mem))
		if n, err := c.IOWrite(large, 0); n == 0 || n == len(large) || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("without room: %d, %v", n, err)
		}
		restore()
		p.OK(c.Close())
		p.OK(s.Close())
	})
}
