package sock

import (
	"context"
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
)

// ownAddr is the address of the device of hosted.
var ownAddr = netip.MustParseAddrPort("198.18.0.1:0")

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// must returns a function that returns v, or ends the test with err.
func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// hosted returns a host with one device, whose objects the test must close.
func hosted(t *testing.T) *rdmacm.Host {
	t.Helper()
	dev := must(rdmatest.New(rdmatest.Config{RealTime: true}).NewDevice("a", ownAddr.Addr()))(t)
	host := rdmacm.NewHost(dev)
	t.Cleanup(func() { ok(t, host.Close()) })
	return host
}

// ended reports whether a hub's channel is closed.
func (b *Hub) ended() bool {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := b.Channel.GetEvent(ctx)
	return err != nil && err != context.Canceled
}

// All sockets of a host share a hub, which ends with the last one.
func TestHubOfAHost(t *testing.T) {
	host := hosted(t)
	b := JoinHub(host)
	if again := JoinHub(host); again != b {
		t.Error("a host has two hubs")
	}
	b.Join()
	for left := 2; left >= 0; left-- {
		if b.ended() {
			t.Fatalf("the hub has ended with %d more users", left+1)
		}
		b.Leave()
	}
	if !b.ended() {
		t.Error("the hub has not ended")
	}
	next := JoinHub(host)
	if next == b || next.ended() {
		t.Error("a hub that has ended is used again")
	}
	next.Leave()
}

// The end of a hub whose host has another one meanwhile leaves that alone.
func TestEndOfAnOlderHub(t *testing.T) {
	host := hosted(t)
	old := JoinHub(host)
	hubs.mu.Lock()
	delete(hubs.of, host) // as after a failure of its channel
	hubs.mu.Unlock()
	next := JoinHub(host)
	if next == old {
		t.Fatal("the hub was not replaced")
	}
	old.Leave()
	if again := JoinHub(host); again != next || again.ended() {
		t.Error("the newer hub is forgotten")
	}
	next.Leave()
	next.Leave()
}

// The second Close of a datagram socket does nothing: it leaves the hub once.
func TestDatagramClosesOnce(t *testing.T) {
	host := hosted(t)
	b := JoinHub(host)
	d := NewDatagram(JoinHub(host), true, Options{}.WithDefaults())
	for range 3 {
		d.Close()
	}
	if b.ended() {
		t.Error("the socket has left the hub more than once")
	}
	b.Leave()
}
