package rdmacm

import (
	"context"
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/internal/cm"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
	"github.com/verbena-rdma/verbena/rdmatest"
)

// A client that ends its request while Accept answers it is distinguished from errors of this side: Listener.Accept
// continues.
func TestAcceptOfAWithdrawnRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, addrs := context.Background(), []netip.Addr{netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("198.18.0.2")}
		f := rdmatest.New(rdmatest.Config{RealTime: true})
		var hosts [2]*Host
		for i, name := range []string{"a", "b"} {
			dev, err := f.NewDevice(name, addrs[i])
			if err != nil {
				t.Fatal(err)
			}
			hosts[i] = NewHost(dev)
		}
		l, err := Listen(ctx, ":0", &Options{Host: hosts[1]})
		if err != nil {
			t.Fatal(err)
		}
		c, err := hosts[0].CreateID(nil, PSTCP, nil)
		if err != nil {
			t.Fatal(err)
		}
		to := netip.AddrPortFrom(addrs[1], l.Addr().Port())
		for _, step := range []func() error{
			func() error { return c.ResolveAddr(ctx, netip.AddrPort{}, to, time.Second) },
			func() error { return c.ResolveRoute(ctx, time.Second) },
		} {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
		refused := make(chan error, 1)
		go func() { refused <- c.Connect(ctx, &ConnParam{QPNum: 5}) }()
		id, err := l.Request(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := id.dev.cm.reject(id.cmid, cmmsg.RejConsumer, nil); err != nil { // as if the peer's REJ had come
			t.Fatal(err)
		}
		id.mu.Lock()
		err = id.answered("accept", id.dev.cm.accept(id.cmid, &cm.AcceptParams{QPN: 5}))
		id.mu.Unlock()
		if !errors.Is(err, errNoRequest) || !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%v", err)
		}
		if err := <-refused; !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("connect: %v", err)
		}
		for _, x := range []interface{ Close() error }{id, c, l, hosts[0], hosts[1]} {
			if err := x.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}
