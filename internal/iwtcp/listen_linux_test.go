package iwtcp

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/iwarp"
)

// loopbackAny is a free port of the loopback interface.
var loopbackAny = netip.MustParseAddrPort("127.0.0.1:0")

func listener(t *testing.T) (*Listener, netip.AddrPort, chan *Request) {
	t.Helper()
	asked := make(chan *Request, 1)
	l, err := Listen(loopbackAny, false, func(r *Request) { asked <- r })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l, plain(l.l.Addr()), asked
}

// from connects from an address of the loopback interface.
func from(t *testing.T, source string, to netip.AddrPort) *net.TCPConn {
	t.Helper()
	c, err := net.DialTCP("tcp", &net.TCPAddr{IP: net.ParseIP(source)}, net.TCPAddrFromAddrPort(to))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// ended waits until the other side has closed a connection.
func ended(t *testing.T, c *net.TCPConn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	var to net.Error
	if _, err := io.Copy(io.Discard, c); errors.As(err, &to) && to.Timeout() {
		t.Fatal("the connection stays open")
	}
}

// A source that opens connections without a request cannot keep others out.
func TestSilentConnectionsOfASource(t *testing.T) {
	l, at, asked := listener(t)
	for range maxSource {
		from(t, "127.0.0.2", at)
	}
	ended(t, from(t, "127.0.0.2", at)) // one too many, or those before it have timed out
	l.mu.Lock()
	n := len(l.open)
	l.mu.Unlock()
	if n > maxSource {
		t.Errorf("%d connections wait for a request", n)
	}
	c := from(t, "127.0.0.3", at)
	_, out := iwarp.Initiate(0, iwarp.Options{Private: []byte("hello")})
	if _, err := c.Write(out); err != nil {
		t.Fatal(err)
	}
	r := <-asked
	if string(r.Private()) != "hello" {
		t.Errorf("the request has %q", r.Private())
	}
	r.Close()
}

// What is not a request of MPA ends the connection, whatever its split, and leaves no place taken.
func TestBadRequests(t *testing.T) {
	l, at, _ := listener(t)
	_, good := iwarp.Initiate(0, iwarp.Options{})
	markers := append([]byte(nil), good...)
	markers[16] |= 0x80
	key := append([]byte(nil), good...)
	key[15] ^= 1
	long := append([]byte(nil), good...)
	long[18], long[19] = 0xff, 0xff
	for name, b := range map[string][]byte{"HTTP": []byte("GET / HTTP/1.1\r\nHost: example\r\n\r\n"), "markers": markers,
		"key": key, "length": long} {
		c := from(t, "127.0.0.1", at)
		for i := range b {
			if _, err := c.Write(b[i : i+1]); err != nil {
				break // the other side has seen enough
			}
		}
		t.Log(name)
		ended(t, c)
	}
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		n, m := len(l.open), len(l.from)
		l.mu.Unlock()
		if n+m == 0 {
			return
		}
		if time.Since(start) > time.Minute {
			t.Fatalf("%d connections, %d sources are left", n, m)
		}
	}
}
