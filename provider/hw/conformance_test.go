//go:build linux && (amd64 || arm64)

package hw_test

import (
	"errors"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/conformance"
	_ "github.com/verbena-rdma/verbena/provider/hw"
	"github.com/verbena-rdma/verbena/verbs"
)

// testDevice is the environment variable that names the device for the tests that need one: rxe0.
const testDevice = "VERBENA_TEST_DEVICE"

// TestConformance runs the statements on a device of this machine. All ends of a case are contexts of the one device.
// Cases that need raw packets, loss or the software device's counters are left out.
func TestConformance(t *testing.T) {
	name := os.Getenv(testDevice)
	if name == "" {
		t.Skip(testDevice + " names no device")
	}
	conformance.Run(t, conformance.Setup{
		Name: name, MaxQueue: maxQueue, Adapter: true,
		New: func(tb testing.TB) conformance.Network { return &network{tb: tb, device: name} },
	})
}

// maxQueue is the size of the largest queues: rdma_rxe has up to 2^20 entries, more than the memory of a small guest.
const maxQueue = 1 << 16

// network is the loopback of one device.
type network struct {
	tb     testing.TB
	device string
}

func (n *network) Open() *verbs.Context {
	n.tb.Helper()
	vctx, err := verbs.Open(n.device)
	if err != nil {
		n.tb.Fatal(err)
	}
	n.tb.Cleanup(func() {
		if err := vctx.Close(); err != nil && !errors.Is(err, verbs.ErrClosed) {
			n.tb.Error(err)
		}
	})
	return vctx
}

// Addr returns the device's first IPv4 address.
func (n *network) Addr(vctx *verbs.Context) netip.Addr {
	table, err := vctx.QueryGIDTable()
	if err != nil {
		n.tb.Fatal(err)
	}
	for _, e := range table {
		if a := e.GID.Addr(); a.Is4() {
			return a
		}
	}
	n.tb.Fatal("the device has no IPv4 address")
	return netip.Addr{}
}

func (n *network) Group() netip.Addr { return netip.MustParseAddr("239.77.1.9") }

func (n *network) Host() conformance.Host {
	n.tb.Skip("needs raw packets")
	return nil
}

func (n *network) Forger(*verbs.Context) conformance.Host {
	n.tb.Skip("needs raw packets")
	return nil
}

// late is the maximum time-out of Await: the device is on this machine.
const late = 3 * time.Second

func (n *network) Await(done func() bool, limit time.Duration) bool {
	limit = min(limit, late)
	for start := time.Now(); !done(); time.Sleep(100 * time.Microsecond) {
		if time.Since(start) > limit {
			return done()
		}
	}
	return true
}

func (n *network) Pause(d time.Duration) { time.Sleep(max(d, 20*time.Millisecond)) }

func (n *network) Counter(*verbs.Context, string) uint64 {
	n.tb.Skip("needs counters")
	return 0
}

func (n *network) Lose(float64) { n.tb.Skip("needs loss") }
