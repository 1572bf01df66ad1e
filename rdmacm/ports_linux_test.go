package rdmacm

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/refuse"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

// A listener on port 0 gets a port that no process which shares the device has; a port that the program has chosen or
// read stays.
func TestC_BIND_04_PortsOfOtherProcesses(t *testing.T) {
	old := ephemeral
	ephemeral = func() (low, high uint16) { return 40000, 40003 }
	defer func() { ephemeral = old }()
	pid := os.Getpid()
	addr := netip.AddrFrom4([4]byte{127, byte(pid>>8)&0x3f | 0x80, byte(pid), 60})
	var hosts [2]*Host // as two processes are to each other
	for i := range hosts {
		dev, err := soft.New(soft.Config{Name: "p", Addrs: []netip.Addr{addr}})
		if err != nil {
			t.Fatal(err)
		}
		hosts[i] = NewHost(dev.Device)
	}
	ctx := context.Background()
	var ends []interface{ Close() error }
	for i := range 4 { // 3 of the one, 1 of the other
		l, err := Listen(ctx, netip.AddrPortFrom(addr, 0).String(), &Options{Host: hosts[i/3]})
		if err != nil {
			t.Fatalf("port %d of 4: %v", i+1, err)
		}
		ends = append(ends, l)
	}
	if _, err := Listen(ctx, netip.AddrPortFrom(addr, 0).String(), &Options{Host: hosts[1]}); !errors.Is(err,
		syscall.EADDRINUSE) {
		t.Errorf("a fifth: %v", err)
	}
	if err := ends[3].Close(); err != nil {
		t.Fatal(err)
	}
	asked := map[string]func(id *ID, port uint16) error{
		"for": func(id *ID, port uint16) error { return id.BindAddr(netip.AddrPortFrom(addr, port)) },
		"about": func(id *ID, port uint16) error {
			ephemeral = func() (low, high uint16) { return port, port }
			defer func() { ephemeral = func() (low, high uint16) { return 40000, 40003 } }()
			err := id.BindAddr(netip.AddrPortFrom(addr, 0))
			if got := id.LocalAddr().Port(); got != port {
				t.Errorf("port %d of a range of %d", got, port)
			}
			return err
		},
	}
	for what, bind := range asked {
		id, err := hosts[1].CreateID(nil, PSTCP, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := bind(id, ends[0].(*Listener).Addr().Port()); err != nil {
			t.Fatal(err)
		}
		if err := id.Listen(0); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("a port asked %s: %v", what, err)
		}
		if err := id.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, x := range []interface{ Close() error }{ends[0], ends[1], ends[2], hosts[0], hosts[1]} {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A listener at all addresses needs its devices' descriptors: a device without is no reason to listen only elsewhere.
func TestListenWithoutDescriptors(t *testing.T) {
	pid := os.Getpid()
	devs := make([]*verbs.Device, 2)
	addrs := make([]netip.Addr, 2)
	for i := range devs {
		addrs[i] = netip.AddrFrom4([4]byte{127, byte(pid>>8)&0x3f | 0x80, byte(pid), byte(61 + i)})
		dev, err := soft.New(soft.Config{Name: "p" + addrs[i].String(), Addrs: addrs[i : i+1]})
		if err != nil {
			t.Fatal(err)
		}
		devs[i] = dev.Device
	}
	h := NewHost(devs...)
	ctx := t.Context()
	first, err := Listen(ctx, netip.AddrPortFrom(addrs[0], 0).String(), &Options{Host: h})
	if err != nil {
		t.Fatal(err)
	}
	var l *Listener
	if e := refuse.Descriptors(func() { l, err = Listen(ctx, ":0", &Options{Host: h}) }); e != nil {
		t.Fatal(e)
	}
	if !errors.Is(err, syscall.EMFILE) {
		t.Errorf("%v", err)
		if err == nil {
			_ = l.Close()
		}
	}
	if err := errors.Join(first.Close(), h.Close()); err != nil {
		t.Error(err)
	}
}

// A port that the program has read, and that TCP shall have, is one that no other program's socket has.
func TestC_BIND_04_PortsOfTCP(t *testing.T) {
	t.Setenv("VERBENA_TRANSPORT", "iwarp")
	devices, err := verbs.Devices()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(devices, func(d *verbs.Device) bool { return d.Name() == "vrw_lo" })
	if i < 0 {
		t.Skip("the loopback interface has no iWARP device")
	}
	taken, free := twoPorts(t)
	old := ephemeral
	ephemeral = func() (low, high uint16) { return min(taken, free), max(taken, free) }
	defer func() { ephemeral = old }()
	h := NewHost(devices[i])
	for range 10 {
		for _, at := range []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv4Unspecified()} {
			id, err := h.CreateID(nil, PSTCP, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := id.BindAddr(netip.AddrPortFrom(at, 0)); err != nil {
				t.Fatal(err)
			}
			if port := id.SrcPort(); port != free || id.SrcPort() != port {
				t.Errorf("at %v: port %d, want %d, since a socket has %d", at, port, free, taken)
			}
			if err := id.Listen(1); err != nil {
				t.Error(err)
			}
			if err := id.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// twoPorts returns two adjacent ports: a socket of TCP has one, none the other.
func twoPorts(t *testing.T) (taken, free uint16) {
	t.Helper()
	for range 100 {
		l, err := net.ListenTCP("tcp4", &net.TCPAddr{})
		if err != nil {
			t.Fatal(err)
		}
		taken = l.Addr().(*net.TCPAddr).AddrPort().Port()
		if next, err := net.ListenTCP("tcp4", &net.TCPAddr{Port: int(taken) + 1}); err == nil {
			_ = next.Close()
			t.Cleanup(func() { _ = l.Close() })
			return taken, taken + 1
		}
		_ = l.Close()
	}
	t.Skip("no two adjacent ports are free")
	return 0, 0
}

// VERBENA_TRANSPORT selects the devices of a listener on the wildcard address, also of those that appear later.
func TestC_LIS_04_WildcardByTransport(t *testing.T) {
	t.Setenv("VERBENA_DEVICES", "lo")
	t.Setenv("VERBENA_TRANSPORT", "iwarp")
	devices, err := verbs.Devices()
	if err != nil || len(devices) != 2 {
		t.Fatalf("%v, %v", devices, err)
	}
	for _, transport := range []string{"iwarp", "roce"} {
		t.Setenv("VERBENA_TRANSPORT", transport)
		h := NewHost(devices...)
		id, err := h.CreateID(nil, PSTCP, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(id.BindAddr(netip.MustParseAddrPort("0.0.0.0:0")), id.Listen(1)); err != nil {
			t.Fatal(err)
		}
		h.extend()
		id.mu.Lock()
		on := slices.Clone(id.listeners)
		id.mu.Unlock()
		if len(on) != 1 || on[0].dev.iwarp != (transport == "iwarp") {
			t.Errorf("%s: it listens on %d devices, want the one of that transport", transport, len(on))
		}
		if err := errors.Join(id.Close(), h.Close()); err != nil {
			t.Error(err)
		}
	}
}
