// Package socktest has the hosts on which the tests of rsocket and of rsocket/socket run. It imports rdmacm,
// rdmatest, provider/soft, internal/link, internal/link/shm, internal/link/udp, internal/softlink and
// internal/wire.
package socktest

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/shm"
	"github.com/verbena-rdma/verbena/internal/link/udp"
	"github.com/verbena-rdma/verbena/internal/softlink"
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
)

// Hosts are two hosts with one device each that reach each other.
type Hosts struct {
	Host [2]*rdmacm.Host
	Addr [2]netip.Addr
	Devs [2]*soft.Device  // on loopback addresses
	Fab  *rdmatest.Fabric // in memory
}

// InMemory makes two hosts on a network in memory.
func InMemory(tb testing.TB, faults rdmatest.Faults) *Hosts {
	tb.Helper()
	h := &Hosts{Fab: rdmatest.New(rdmatest.Config{RealTime: true, Faults: faults, Seed: 1})}
	for i, name := range []string{"a", "b"} {
		h.Addr[i] = netip.AddrFrom4([4]byte{198, 18, 0, byte(i + 1)})
		dev, err := h.Fab.NewDevice(name, h.Addr[i])
		if err != nil {
			tb.Fatal(err)
		}
		h.Host[i] = rdmacm.NewHost(dev)
	}
	return h
}

// OverUDP makes two hosts on loopback addresses that no other process with these tests has.
func OverUDP(tb testing.TB) *Hosts { return overLoopback(tb, openUDP) }

// OverShm makes the same with shared memory between the hosts.
func OverShm(tb testing.TB) *Hosts {
	return overLoopback(tb, func(addrs []netip.Addr, ports int) (link.Link, error) {
		l, err := openUDP(addrs, ports)
		if err != nil {
			return nil, err
		}
		return shm.Near(l, addrs, wire.Port), nil
	})
}

func openUDP(addrs []netip.Addr, ports int) (link.Link, error) {
	return udp.Open(udp.Config{Addrs: addrs, Ports: ports})
}

func overLoopback(tb testing.TB, open func(addrs []netip.Addr, ports int) (link.Link, error)) *Hosts {
	tb.Helper()
	if runtime.GOOS != "linux" {
		tb.Skip("other systems have one loopback address")
	}
	h := &Hosts{}
	pid := os.Getpid()
	for i := range h.Host {
		h.Addr[i] = netip.AddrFrom4([4]byte{127, byte(pid>>8)&0x3f | 0x40, byte(pid), byte(i + 41)})
		dev, err := soft.New(softlink.On(soft.Config{Name: fmt.Sprintf("r%d", i), Addrs: []netip.Addr{h.Addr[i]}},
			softlink.Links{Open: open}))
		if err != nil {
			tb.Fatal(err)
		}
		h.Devs[i] = dev
		h.Host[i] = rdmacm.NewHost(dev.Device)
	}
	return h
}

// Close closes hosts, on which nothing must be left: connections may take a moment to end.
func Close(hosts ...*rdmacm.Host) error {
	for _, host := range hosts {
		var err error
		for range 100 {
			if err = host.Close(); err == nil {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// InBubble runs a test in virtual time, on a network in memory. At the end nothing may be left on the hosts.
func InBubble(t *testing.T, faults rdmatest.Faults, f func(t *testing.T, h *Hosts)) {
	synctest.Test(t, func(t *testing.T) {
		// A bubble whose goroutines wait for each other is never idle: the devices have timers that always run.
		stuck := time.AfterFunc(24*time.Hour, func() { panic("the test is stuck: a day has passed") })
		defer stuck.Stop()
		h := InMemory(t, faults)
		f(t, h)
		if err := Close(h.Host[:]...); err != nil {
			t.Fatal(err)
		}
	})
}

// LoseRequests makes the network in memory lose the requests of the first host, but not its answers, until restore
// is called.
func (h *Hosts) LoseRequests() (restore func()) {
	h.Fab.SetFaults(rdmatest.Faults{Script: func(pkt rdmatest.Packet) (rdmatest.Verdict, bool) {
		return rdmatest.Verdict{Drop: true}, pkt.Src == h.Addr[0] && pkt.Opcode() != uint8(wire.Ack)
	}})
	return func() { h.Fab.SetFaults(rdmatest.Faults{}) }
}

// Text returns n bytes no part of which is repeated.
func Text(n int, seed uint64) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = r.Read(b)
	return b
}
