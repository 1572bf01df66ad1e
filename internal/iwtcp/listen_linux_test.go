package iwtcp

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/fdset"
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

// accepted returns both ends of a connection of TCP. The caller closes own.
func accepted(t *testing.T) (peer, own *net.TCPConn) {
	t.Helper()
	l, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(loopbackAny))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	peer = from(t, "127.0.0.1", plain(l.Addr()))
	if own, err = l.AcceptTCP(); err != nil {
		t.Fatal(err)
	}
	return peer, own
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

// askFrom sends a request from a source, and returns what came of it.
func askFrom(t *testing.T, source string, at netip.AddrPort, asked chan *Request) *Request {
	t.Helper()
	c := from(t, source, at)
	_, out := iwarp.Initiate(0, iwarp.Options{Private: []byte("hello")})
	if _, err := c.Write(out); err != nil {
		t.Fatal(err)
	}
	r := <-asked
	if _, remote := r.Addrs(); remote != plain(c.LocalAddr()) || string(r.Private()) != "hello" {
		t.Errorf("the request of %v has %q", remote, r.Private())
	}
	return r
}

// number is how many connections wait, of all sources or of one.
func (w *waiting) number(source string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if source == "" {
		return w.all.Len()
	}
	return w.from[netip.MustParseAddr(source)]
}

// limit sets the limits.
func (w *waiting) limit(most, share int, patience time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.most, w.share, w.patience = most, share, patience
}

// reach waits until as many connections wait.
func (w *waiting) reach(t *testing.T, source string, want int) {
	t.Helper()
	for start := time.Now(); w.number(source) != want; time.Sleep(time.Millisecond) {
		if time.Since(start) > time.Minute {
			t.Fatalf("%d connections wait, want %d", w.number(source), want)
		}
	}
}

// A host may begin many connections at once: all their requests are taken, however late they come.
func TestBurstOfASource(t *testing.T) {
	const n = 500
	asked := make(chan *Request, n)
	l, err := Listen(loopbackAny, false, func(r *Request) { asked <- r })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	if l.waiting.share < n {
		t.Skipf("the process may have only %d descriptors", fdset.Limit())
	}
	var clients []*net.TCPConn
	for range n {
		clients = append(clients, from(t, "127.0.0.1", plain(l.l.Addr())))
	}
	l.waiting.reach(t, "", n)
	_, out := iwarp.Initiate(0, iwarp.Options{})
	for _, c := range clients {
		if _, err := c.Write(out); err != nil {
			t.Fatal(err)
		}
	}
	for range n {
		r := <-asked
		t.Cleanup(r.Close)
	}
}

// A source that opens connections without a request cannot keep others out: it has a part of the places, and a new
// connection of it ends unless an older one has waited for long.
func TestSilentConnectionsOfASource(t *testing.T) {
	l, at, asked := listener(t)
	l.waiting.limit(8, 4, time.Hour)
	var first *net.TCPConn
	for i := range 4 {
		c := from(t, "127.0.0.2", at)
		if l.waiting.reach(t, "", i+1); i == 0 {
			first = c
		}
	}
	ended(t, from(t, "127.0.0.2", at))
	askFrom(t, "127.0.0.3", at, asked).Close()
	l.waiting.limit(8, 4, 0)
	askFrom(t, "127.0.0.2", at, asked).Close()
	ended(t, first)
	l.waiting.reach(t, "", 3)
}

// A request that comes at once needs no place: another user of the host of an honest initiator may have taken all those
// of its source.
func TestRequestWithoutAPlace(t *testing.T) {
	l, at, asked := listener(t)
	l.waiting.limit(8, 4, time.Hour)
	for i := range 4 {
		from(t, "127.0.0.2", at)
		l.waiting.reach(t, "", i+1)
	}
	_, out := iwarp.Initiate(0, iwarp.Options{})
	for range 100 { // a busy machine may take longer than briefWait
		if _, err := from(t, "127.0.0.2", at).Write(out); err != nil {
			continue
		}
		select {
		case r := <-asked:
			r.Close()
			ended(t, from(t, "127.0.0.2", at)) // a silent one
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
	t.Error("no request is taken")
}

// Sources that take all places lose them to a source that has fewer, at once.
func TestSilentConnectionsOfManySources(t *testing.T) {
	l, at, asked := listener(t)
	l.waiting.limit(8, 4, time.Hour)
	for i := range 4 {
		from(t, "127.0.0.2", at)
		l.waiting.reach(t, "127.0.0.2", i+1)
		from(t, "127.0.0.3", at)
		l.waiting.reach(t, "127.0.0.3", i+1)
	}
	for i := range 3 { // the others have 4 and 4, 3 and 4, 3 and 3
		from(t, "127.0.0.4", at)
		l.waiting.reach(t, "127.0.0.4", min(i+1, 2))
		l.waiting.reach(t, "", 8)
	}
	ended(t, from(t, "127.0.0.4", at)) // the sources are equal
	askFrom(t, "127.0.0.5", at, asked).Close()
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
	l.waiting.reach(t, "", 0)
	if n := len(l.waiting.from); n > 0 {
		t.Errorf("%d sources are left", n)
	}
}
