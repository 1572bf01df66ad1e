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
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/rsocket"
)

// A web server behind two proxies, with RDMA between them.
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
	near := &Proxy{Dial: func() (net.Conn, error) { return d.Dial("tcp", rdma.Addr().String()) }, Log: quiet, Failed: quiet}
	go (&Proxy{Dial: far.dial, Log: quiet, Failed: quiet}).Serve(rdma)
	go near.Serve(tcp)

	body := bytes.Repeat([]byte("verbena "), 100000)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			resp, err := client.Post(fmt.Sprintf("http://%s/%d", tcp.Addr(), i), "text/plain", bytes.NewReader(body))
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

	// A service that dies takes the client's connection with it, in whatever state that is.
	dying, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer dying.Close()
	far.setDial(func() (net.Conn, error) { return net.Dial("tcp", dying.Addr().String()) })
	for _, halfClosed := range []bool{false, true} {
		c, err := net.Dial("tcp", tcp.Addr().String())
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

	// A target that is not there: the client's connection ends.
	_ = rdma.Close()
	c, err := net.Dial("tcp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("%d, %v", n, err)
	}
}

// target is where a proxy connects to, which changes.
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
		"tcp:localhost:80": "false localhost:80 true", "rdma::7500": "true :7500 true", "rdma:[::1]:7": "true [::1]:7 true", "udp:x:1": "false x:1 false", "x": "false  false",
	} {
		rdma, addr, ok := address(s)
		if got := fmt.Sprint(rdma, " ", addr, " ", ok); got != want {
			t.Errorf("%s: %s", s, got)
		}
	}
}

// A client whose service cannot be reached is hung up on, and whoever runs the proxy learns why, also without -v.
func TestTargetMissing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	l.Close()
	if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	said := make(chan string, 1)
	p := &Proxy{
		Dial: dialer("tcp:"+nobody, time.Minute, rsocket.Options{}), Log: func(string, ...any) {},
		Failed: func(format string, args ...any) { said <- fmt.Sprintf(format, args...) },
	}
	go p.Serve(l)
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if b, err := io.ReadAll(c); len(b) > 0 || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if s := <-said; !strings.Contains(s, c.LocalAddr().String()) || !strings.Contains(s, "connection refused") {
		t.Errorf("%q", s)
	}
}

func TestMisused(t *testing.T) {
	for line, want := range map[string]string{
		"":                                      "the address to listen at and the target are needed",
		"tcp:127.0.0.1:0":                       "the address to listen at and the target are needed",
		"127.0.0.1:0 tcp:127.0.0.1:1":           `"127.0.0.1:0" is neither tcp:HOST:PORT nor rdma:HOST:PORT`,
		"tcp:127.0.0.1:0 udp:127.0.0.1:1":       `"udp:127.0.0.1:1" is no target`,
		"--timeout 0 tcp:a:1 rdma:b:1":          "timeout 0s: more than 0 is needed",
		"--timeout 5 tcp:a:1 rdma:b:1":          "5",
		"--buffer 0 tcp:a:1 rdma:b:1":           "buffer 0: 1 byte or more",
		"--colour tcp:a:1 rdma:b:1":             "unknown option --colour",
		"tcp:127.0.0.1:99999 rdma:127.0.0.1:1":  "invalid port",
		"tcp:203.0.113.77:1 rdma:127.0.0.1:100": "cannot assign requested address",
	} {
		var o, e bytes.Buffer
		if status := run(&tool.Env{Argv0: "verbena rproxy", Stdout: &o, Stderr: &e}, strings.Fields(line)); status != 1 || !strings.Contains(e.String(), want) {
			t.Errorf("%q: %d %q, want %q", line, status, e.String(), want)
		}
	}
}
