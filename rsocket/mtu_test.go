package rsocket_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/mem"
	"github.com/verbena-rdma/verbena/internal/softlink"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/rsocket"
	"github.com/verbena-rdma/verbena/verbs"
)

// A listener with a fixed path MTU rejects clients with a larger fixed one. Other clients use the listener's.
func TestPathMTU(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		l := p.listen(rsocket.Options{PathMTU: verbs.MTU512})
		_, err := p.dialer(rsocket.Options{PathMTU: verbs.MTU2048}).Dial("tcp", l.Addr().String())
		if !errors.Is(err, syscall.ECONNREFUSED) ||
			!strings.Contains(err.Error(), "path MTU 2048: must be at most the peer's 512") {
			t.Errorf("%v", err)
		}
		for _, m := range []verbs.MTU{0, verbs.MTU512, verbs.MTU256} {
			c, s := p.pairOf(l, rsocket.Options{PathMTU: m})
			p.OK(c.Close())
			p.OK(s.Close())
		}
		p.OK(l.Close())
	})
}

// Hosts with different MTUs serve HTTP to each other, whichever of them connects.
func TestHTTPWithUnequalMTUs(t *testing.T) {
	for _, mtus := range [][2]int{{9000, 1500}, {1500, 9000}} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			clock := func() int64 { return int64(time.Since(start)) }
			fabric := mem.NewFabric(mem.Config{MTU: 1500 - 48})
			var hosts [2]*rdmacm.Host
			for i, mtu := range mtus {
				dev, err := soft.New(softlink.On(soft.Config{Name: []string{"a", "b"}[i], Clock: clock,
					Addrs: []netip.Addr{netip.AddrFrom4([4]byte{198, 18, 0, byte(i + 1)})}}, softlink.Links{
					MTU:  mtu - 48,
					Open: func(addrs []netip.Addr, ports int) (link.Link, error) { return fabric.Open(addrs, ports) },
				}))
				if err != nil {
					t.Fatal(err)
				}
				hosts[i] = rdmacm.NewHost(dev.Device)
			}
			page := bytes.Repeat([]byte("0123456789"), 30000)
			l, err := (&rsocket.ListenConfig{Host: hosts[1]}).Listen(bg, "tcp", "198.18.0.2:0")
			if err != nil {
				t.Fatal(err)
			}
			server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_,
					_ = w.Write(page)
			})}
			served := make(chan error)
			go func() { served <- server.Serve(l) }()
			transport := &http.Transport{DialContext: (&rsocket.Dialer{Host: hosts[0]}).DialContext}
			answer, err := (&http.Client{Transport: transport}).Post("http://"+l.Addr().String(), "text/plain",
				bytes.NewReader(page))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(answer.Body); err != nil || !bytes.Equal(got, page) {
				t.Errorf("MTUs %v: %d bytes, %v", mtus, len(got), err)
			}
			transport.CloseIdleConnections()
			_ = server.Close()
			<-served
			time.Sleep(time.Minute) // both close their connections in the background
			for _, h := range hosts {
				if err := h.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
