// Package socktest has the hosts on which the tests of rsocket and of rsocket/socket run. It imports rdmacm,
// rdmatest, provider/soft, internal/driver, internal/link, internal/link/shm, internal/link/udp, internal/softlink and
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

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/shm"
	"github.com/verbena-rdma/verbena/internal/link/udp"
	"github.com/verbena-rdma/verbena/internal/softlink"
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
)

// Place is a host and the address of its device.
type Place struct {
	Host *rdmacm.Host
	Addr netip.Addr
}

// At returns the address with a port, as text.
func (p Place) At(port int) string { return netip.AddrPortFrom(p.Addr, uint16(port)).String() }

// Places are two hosts with one device each that reach each other, and the test that runs on them.
type Places struct {
	testing.TB
	A, B Place
	Devs [2]*soft.Device  // on loopback addresses
	Fab  *rdmatest.Fabric // in memory
}

// InMemory makes two hosts on a network in memory.
func InMemory(tb testing.TB, faults rdmatest.Faults) *Places {
	tb.Helper()
	p := &Places{TB: tb, Fab: rdmatest.New(rdmatest.Config{RealTime: true, Faults: faults, Seed: 1})}
	for i, at := range []*Place{&p.A, &p.B} {
		at.Addr = netip.AddrFrom4([4]byte{198, 18, 0, byte(i + 1)})
		dev, err := p.Fab.NewDevice([]string{"a", "b"}[i], at.Addr)
		p.OK(err)
		at.Host = rdmacm.NewHost(dev)
	}
	return p
}

// OverUDP makes two hosts on loopback addresses that no other process with these tests has.
func OverUDP(tb testing.TB) *Places { return overLoopback(tb, 0, openUDP) }

// OverEthernet makes the same with ports whose path MTU is 1024 bytes, that of Ethernet with 1500 bytes.
func OverEthernet(tb testing.TB) *Places { return overLoopback(tb, 1500-48, openUDP) }

// OverShm makes the same with shared memory between the hosts.
func OverShm(tb testing.TB) *Places {
	return overLoopback(tb, 0, func(addrs []netip.Addr, ports int) (link.Link, error) {
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

func overLoopback(tb testing.TB, mtu int, open func(addrs []netip.Addr, ports int) (link.Link, error)) *Places {
	tb.Helper()
	if runtime.GOOS != "linux" {
		tb.Skip("other systems have one loopback address")
	}
	p := &Places{TB: tb}
	pid := os.Getpid()
	for i, at := range []*Place{&p.A, &p.B} {
		at.Addr = netip.AddrFrom4([4]byte{127, byte(pid>>8)&0x3f | 0x40, byte(pid), byte(i + 41)})
		dev, err := soft.New(softlink.On(soft.Config{Name: fmt.Sprintf("r%d", i), Addrs: []netip.Addr{at.Addr}},
			softlink.Links{Open: open, MTU: mtu}))
		p.OK(err)
		p.Devs[i] = dev
		at.Host = rdmacm.NewHost(dev.Device)
	}
	return p
}

// OverTCP makes two hosts with an iWARP device of the loopback interface.
func OverTCP(tb testing.TB) *Places {
	tb.Helper()
	if runtime.GOOS != "linux" {
		tb.Skip("iWARP devices are for Linux")
	}
	at := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	tb.Setenv("VERBENA_DEVICES", "tcp="+at.String())
	devices, err := driver.Streams()
	p := &Places{TB: tb}
	p.OK(err)
	dev := driver.NewDevice(devices[0])
	p.A, p.B = Place{rdmacm.NewHost(dev), at}, Place{rdmacm.NewHost(dev), at}
	return p
}

// OK ends the test if err is not nil.
func (p *Places) OK(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// Close closes both hosts. It fails the test if objects are left on them after two seconds; connections may take a
// moment to end.
func (p *Places) Close() {
	p.Helper()
	p.OK(closeHost(p.A.Host))
	p.OK(closeHost(p.B.Host))
}

func closeHost(host *rdmacm.Host) (err error) {
	for range 100 {
		if err = host.Close(); err == nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

// InBubble runs a test in virtual time, on a network in memory. At the end no object may be left on the hosts.
func InBubble(t *testing.T, faults rdmatest.Faults, f func(p *Places)) {
	synctest.Test(t, func(t *testing.T) {
		// A bubble whose goroutines wait for each other is never idle: the devices have timers that always run.
		stuck := time.AfterFunc(24*time.Hour, func() { panic("the test is stuck: a day has passed") })
		defer stuck.Stop()
		p := InMemory(t, faults)
		f(p)
		p.Close()
	})
}

// LoseRequests makes the network in memory lose the requests of the first host, but not its answers, until restore
// is called.
func (p *Places) LoseRequests() (restore func()) {
	p.Fab.SetFaults(rdmatest.Faults{Script: func(pkt rdmatest.Packet) (rdmatest.Verdict, bool) {
		return rdmatest.Verdict{Drop: true}, pkt.Src == p.A.Addr && pkt.Opcode() != uint8(wire.Ack)
	}})
	return func() { p.Fab.SetFaults(rdmatest.Faults{}) }
}

// Text returns n bytes no part of which is repeated.
func Text(n int, seed uint64) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = r.Read(b)
	return b
}
