package rproxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/loopback"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/rsocket"
)

// A web server behind two proxies with RDMA between them.
func TestTCPOverRDMA(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %d ", r.URL.Path, len(body))
		_, _ = w.Write(body)
	}))
	defer web.Close()
	f := rdmatest.New(rdmatest.Config{RealTime: true})
	defer f.Close()
	var hosts [2]*rdmacm.Host
	for i, name := range []string{"a", "b"} {
		dev, err := f.NewDevice(name, netip.AddrFrom4([4]byte{198, 18, 0, byte(i + 1)}))
		if err != nil {
			t.Fatal(err)
		}
		hosts[i] = rdmacm.NewHost(dev)
	}
	quiet := func(string, ...any) {}
	rdma, err := (&rsocket.ListenConfig{Host: hosts[1]}).Listen(t.Context(), "tcp", "198.18.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer rdma.Close()
	d := &rsocket.Dialer{Host: hosts[0]}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	far := &target{}
	far.setDial(func() (net.Conn, error) { return net.Dial("tcp", web.Listener.Addr().String()) })
	near := &Proxy{Dial: func() (net.Conn, error) { return d.Dial("tcp", rdma.Addr().String()) }, Log: quiet,
		Failed: quiet}
	go (&Proxy{Dial: far.dial, Log: quiet, Failed: quiet}).Serve(rdma)
	go near.Serve(tcp)

	postAll(t, tcp.Addr().String())
	serviceDies(t, tcp.Addr().String(), far)

	// An unreachable target ends the client's connection.
	_ = rdma.Close()
	c, err := net.Dial("tcp", tcp.Addr().String())
	if err == nil { // else the reset came before the client had looked
		defer c.Close()
		_, err = c.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
}

// postAll posts a body to the web server behind addr from several clients and checks its echo.
func postAll(t *testing.T, addr string) {
	t.Helper()
	body := bytes.Repeat([]byte("verbena "), 100000)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			resp, err := client.Post(fmt.Sprintf("http://%s/%d", addr, i), "text/plain", bytes.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			got, err := io.ReadAll(resp.Body)
			want := fmt.Sprintf("/%d %d ", i, len(body))
			if err != nil || !strings.HasPrefix(string(got), want) || !bytes.Equal(got[len(want):], body) {
				t.Errorf("%d bytes came back, %v", len(got), err)
			}
		})
	}
	all.Wait()
}

// serviceDies checks that a service that resets its connection ends the client's connection in every state.
func serviceDies(t *testing.T, addr string, far *target) {
	t.Helper()
	dying, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer dying.Close()
	far.setDial(func() (net.Conn, error) { return net.Dial("tcp", dying.Addr().String()) })
	for _, halfClosed := range []bool{false, true} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		service, err := dying.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if halfClosed {
			if err := c.(*net.TCPConn).CloseWrite(); err != nil {
				t.Error(err)
			}
			if _, err := io.ReadAll(service); err != nil {
				t.Error(err)
			}
		}
		_ = service.(*net.TCPConn).SetLinger(0)
		_ = service.Close()
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("half-closed %v: %d, %v", halfClosed, n, err)
		}
		_ = c.Close()
	}
}

// target is the variable destination of a proxy.
type target struct {
	mu sync.Mutex
	to func() (net.Conn, error)
}

func (d *target) setDial(to func() (net.Conn, error)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.to = to
}

func (d *target) dial() (net.Conn, error) {
	d.mu.Lock()
	to := d.to
	d.mu.Unlock()
	return to()
}

func TestAddresses(t *testing.T) {
	for s, want := range map[string]string{
		"tcp:localhost:80": "false localhost:80 true", "rdma::7500": "true :7500 true", "rdma:[::1]:7": "true [::1]:7 true",
		"udp:x:1": "false  false", "x": "false  false", "rdma:::1:7": "false  false",
	} {
		rdma, addr, err := address("target", s, 1)
		if got := fmt.Sprint(rdma, " ", addr, " ", err == nil); got != want {
			t.Errorf("%s: %s", s, got)
		}
	}
}

// If the service is unreachable, the client's connection is reset and the proxy reports the cause, even without -v.
func TestTargetMissing(t *testing.T) {
	unused := "127.0.0.1:" + loopback.Port()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dial, err := dialer("tcp:"+unused, time.Minute, rsocket.Options{})
	if err != nil {
		t.Fatal(err)
	}
	said := make(chan string, 1)
	p := &Proxy{
		Dial: dial, Log: func(string, ...any) {},
		Failed: func(format string, args ...any) { said <- fmt.Sprintf(format, args...) },
	}
	go p.Serve(l)
	c, err := net.Dial("tcp", l.Addr().String())
	if err == nil { // else the reset came before the client had looked
		defer c.Close()
		var b []byte
		if b, err = io.ReadAll(c); len(b) > 0 {
			t.Errorf("%q", b)
		}
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
	if s := <-said; !strings.HasPrefix(s, "127.0.0.1:") || !strings.Contains(s, "connection refused") {
		t.Errorf("%q", s)
	}
}

// broken is a target that sends a part of its data. Then reading and writing fail.
type broken struct {
	net.Conn
	data          io.Reader
	reads, writes error
}

func (b *broken) Read(p []byte) (int, error) {
	n, err := b.data.Read(p)
	if err == io.EOF && b.reads != nil {
		err = b.reads
	}
	return n, err
}

func (b *broken) Write([]byte) (int, error) { return 0, b.writes }

func (b *broken) CloseWrite() error { return nil }

func (b *broken) Close() error { return nil }

// A client whose target fails in the middle is told that it does not have all, and the log tells why. A client that
// has all keeps it when the target does not take what the client sends.
func TestTargetFailsInTheMiddle(t *testing.T) {
	for _, c := range []struct{ reads, writes, ends error }{
		{reads: syscall.ETIMEDOUT, ends: syscall.ECONNRESET},
		{writes: syscall.ETIMEDOUT},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		said := make(chan string, 2)
		go (&Proxy{
			Dial: func() (net.Conn, error) {
				return &broken{Conn: conn, data: strings.NewReader("a part"), reads: c.reads, writes: c.writes}, nil
			},
			Log:    func(format string, args ...any) { said <- fmt.Sprintf(format, args...) },
			Failed: func(string, ...any) {},
		}).Serve(l)
		<-said // connected
		if c.writes != nil {
			if b, err := io.ReadAll(conn); string(b) != "a part" || err != nil {
				t.Errorf("%q, %v", b, err)
			}
			if _, err := conn.Write([]byte("more")); err != nil {
				t.Error(err)
			}
		}
		if last := <-said; !strings.Contains(last, " 0 bytes there, 6 back; failed: ") ||
			!strings.HasSuffix(last, syscall.ETIMEDOUT.Error()) {
			t.Errorf("%q", last)
		}
		if _, err := io.ReadAll(conn); !errors.Is(err, c.ends) {
			t.Errorf("the client's connection ends with %v, want %v", err, c.ends)
		}
		_ = conn.Close()
		_ = l.Close()
	}
}

// starved is a listener in a process without descriptors, for a while.
type starved struct {
	net.Listener
	times int
}

func (s *starved) Accept() (net.Conn, error) {
	if s.times--; s.times >= 0 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return s.Listener.Accept()
}

// A proxy without descriptors for more connections goes on when there are some again.
func TestProxyOutlivesEMFILE(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	said := make(chan string, 10)
	dialed := errors.New("dialed")
	p := &Proxy{
		Dial: func() (net.Conn, error) { return nil, dialed }, Log: func(string, ...any) {},
		Failed: func(format string, args ...any) { said <- fmt.Sprintf(format, args...) },
	}
	ended := make(chan error, 1)
	go func() { ended <- p.Serve(&starved{l, 3}) }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if s := <-said; !strings.Contains(s, "too many open files") {
		t.Errorf("%q", s)
	}
	if s := <-said; !strings.Contains(s, dialed.Error()) {
		t.Errorf("%q", s)
	}
	l.Close()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

func TestMisused(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for line, want := range map[string]string{
		"":                                "must be given the address to listen on and the target",
		"tcp:127.0.0.1:0":                 "must be given the address to listen on and the target",
		"127.0.0.1:0 tcp:127.0.0.1:1":     `"127.0.0.1:0": must be tcp:HOST:PORT or rdma:HOST:PORT`,
		"tcp:127.0.0.1:0 udp:127.0.0.1:1": `target "udp:127.0.0.1:1": must be tcp:`,
		"tcp:127.0.0.1:0 rdma:b":          `target "rdma:b": must be tcp:HOST:PORT or`,
		"tcp:127.0.0.1 rdma:b:1":          `address "tcp:127.0.0.1": must be tcp:HOST:PORT or`,
		"tcp:" + taken.Addr().String() + " rdma:127.0.0.1:1": "choose another port",
		"tcp:127.0.0.1:0 tcp:b:":                             `port "": must be 1 to 65535`,
		"tcp:127.0.0.1:0 rdma:b:99999":                       `port "99999": must be 1 to 65535`,
		"--timeout 0 tcp:a:1 rdma:b:1":                       "timeout 0s: must be more than 0",
		"--timeout 5 tcp:a:1 rdma:b:1":                       "5",
		"--buffer 0 tcp:a:1 rdma:b:1":                        "buffer 0: must be at least 1 byte",
		"--colour tcp:a:1 rdma:b:1":                          "unknown option --colour",
		"tcp:127.0.0.1:99999 rdma:127.0.0.1:1":               `port "99999": must be 0 to 65535`,
		"tcp:203.0.113.77:1 rdma:127.0.0.1:100":              "cannot assign requested address",
	} {
		var o, e bytes.Buffer
		if status := run(&tool.Env{Argv0: "verbena rproxy", Stdout: &o, Stderr: &e}, strings.Fields(line)); status != 1 ||
			!strings.Contains(e.String(), want) {
			t.Errorf("%q: %d %q, want %q", line, status, e.String(), want)
		}
	}
}
