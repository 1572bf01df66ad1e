package rdmacm_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// udpHost is a host with a device at a loopback address that no other process which runs these tests has.
func udpHost(tb testing.TB, i int) (*rdmacm.Host, netip.Addr) {
	tb.Helper()
	if runtime.GOOS != "linux" {
		tb.Skip("other systems have one loopback address")
	}
	pid := os.Getpid()
	addr := netip.AddrFrom4([4]byte{127, byte(pid>>8)&0x3f | 0x80, byte(pid), byte(i + 31)})
	dev, err := soft.New(soft.Config{Name: fmt.Sprintf("u%d", i), Addrs: []netip.Addr{addr}})
	if err != nil {
		tb.Fatal(err)
	}
	return rdmacm.NewHost(dev.Device), addr
}

// Everything over UDP sockets: many clients dial one listener at the same time, and exchange messages.
func TestUDPLoopback(t *testing.T) {
	loopback(t) // what the runtime opens once
	before := descriptors(t)
	loopback(t)
	after := descriptors(t)
	for begin := time.Now(); after > before && time.Since(begin) < 20*time.Second; time.Sleep(time.Millisecond) {
		after = descriptors(t) // the last of them may be on their way out
	}
	if after > before {
		t.Errorf("%d descriptors are open, %d were before", after, before)
	}
}

// descriptors counts the open ones of this process.
func descriptors(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(list)
}

func loopback(t *testing.T) {
	a, _ := udpHost(t, 0)
	b, addr := udpHost(t, 1)
	w := &world{T: t}
	ctx, cancel := context.WithTimeout(bg, time.Minute)
	defer cancel()
	l, err := rdmacm.Listen(ctx, ":0", &rdmacm.Options{Host: b})
	w.ok(err)
	const n = 16
	var ends sync.WaitGroup
	for range n {
		ends.Go(func() {
			id, err := l.Accept(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			buf := make([]byte, 8)
			mr, err := id.RegMsgs(buf)
			if err == nil {
				err = id.PostRecv(1, buf, mr)
			}
			if err == nil {
				var wc verbs.WC
				if wc, err = id.GetRecvComp(ctx); err == nil && (wc.Status != verbs.WCSuccess ||
					string(buf[:wc.ByteLen]) != "hello") {
					err = fmt.Errorf("%+v %q", wc, buf)
				}
			}
			if err != nil {
				t.Error(err)
			}
			_ = mr.Close()
			if err := id.Disconnect(ctx); err != nil {
				t.Error(err)
			}
			_ = id.Close()
		})
		ends.Go(func() {
			id, err := rdmacm.Dial(ctx, at(addr, l.Addr().Port()).String(), &rdmacm.Options{Host: a})
			if err != nil {
				t.Error(err)
				return
			}
			if err = id.PostSend(2, []byte("hello"), nil, verbs.SendInline|verbs.SendSignaled); err == nil {
				_, err = id.GetSendComp(ctx)
			}
			if err != nil {
				t.Error(err)
			}
			if err := id.Disconnect(ctx); err != nil {
				t.Error(err)
			}
			_ = id.Close()
		})
	}
	ends.Wait()
	w.ok(l.Close())
	w.ok(a.Close())
	w.ok(b.Close())
}
