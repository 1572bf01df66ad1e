package rdmacm

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// A local path is kept for a moment only, and not after the end of its device.
func TestWaysAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := rdmatest.New(rdmatest.Config{RealTime: true})
		var h [2]*Host
		for i := range h {
			dev, err := f.NewDevice(string(rune('a'+i)), netip.AddrFrom4([4]byte{198, 18, 0, byte(i + 1)}))
			if err != nil {
				t.Fatal(err)
			}
			h[i] = NewHost(dev)
		}
		peer := netip.AddrFrom4([4]byte{198, 18, 0, 2})
		key := pathKey{peer, PSTCP, os.Getenv(driver.EnvTransport)}
		find := func() *device {
			t.Helper()
			h[0].mu.Lock()
			defer h[0].mu.Unlock()
			d, _, err := h[0].toward(PSTCP, peer)
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		d := find()
		until := h[0].paths[key].until
		time.Sleep(pathAge / 2)
		if find(); !h[0].paths[key].until.Equal(until) {
			t.Error("the way was looked for again at once")
		}
		time.Sleep(pathAge)
		if find(); h[0].paths[key].until.Equal(until) {
			t.Error("the way was remembered for too long")
		}
		d.gone = true
		h[0].mu.Lock()
		if _, _, err := h[0].toward(PSTCP, peer); err == nil {
			t.Error("the way leads to a device that has gone")
		}
		h[0].mu.Unlock()
		d.gone = false
		for _, h := range h {
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// Many connections do not list the devices of the host each: that takes many system calls.
func TestManyIDsListTheDevicesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := rdmatest.New(rdmatest.Config{RealTime: true})
		addr := netip.AddrFrom4([4]byte{198, 18, 0, 1})
		dev, err := f.NewDevice("a", addr)
		if err != nil {
			t.Fatal(err)
		}
		h := NewHost(dev)
		defer h.Close()
		lists, list := 0, h.list
		h.list = func() ([]*verbs.Device, error) { lists++; return list() }
		resolve := func() {
			id, err := h.CreateID(nil, PSTCP, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer id.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := id.ResolveAddr(ctx, netip.AddrPort{}, netip.AddrPortFrom(addr, 7471), 0); err != nil {
				t.Fatal(err)
			}
		}
		resolve()
		first := lists
		for range 20 {
			resolve()
		}
		if lists != first {
			t.Errorf("20 more IDs listed the devices %d times", lists-first)
		}
		time.Sleep(pathAge)
		if resolve(); lists == first {
			t.Error("a new device would not be found")
		}
	})
}

// Many listeners on all devices do not list the devices of the host each when it looks for new ones.
func TestManyListenersListTheDevicesOnce(t *testing.T) {
	f := rdmatest.New(rdmatest.Config{RealTime: true})
	dev, err := f.NewDevice("a", netip.AddrFrom4([4]byte{198, 18, 0, 1}))
	if err != nil {
		t.Fatal(err)
	}
	h := NewHost(dev)
	for i := range 20 {
		id, err := h.CreateID(nil, []PortSpace{PSTCP, PSUDP}[i%2], nil)
		if err != nil {
			t.Fatal(err)
		}
		defer id.Close()
		if err := errors.Join(id.BindAddr(netip.MustParseAddrPort("0.0.0.0:0")), id.Listen(1)); err != nil {
			t.Fatal(err)
		}
	}
	lists, list := 0, h.list
	h.list = func() ([]*verbs.Device, error) { lists++; return list() }
	if !h.extend() || lists != 2 {
		t.Errorf("20 listeners of two port spaces listed the devices %d times", lists)
	}
}

// The first device that can reach the peer is chosen, not the first one.
func TestDeviceThatCanReachThePeer(t *testing.T) {
	fab := rdmatest.New(rdmatest.Config{RealTime: true})
	addrs := []netip.Addr{fuzzHere, netip.MustParseAddr("fd00:5eed::1")}
	var list []*verbs.Device
	for i, a := range addrs {
		dev, err := fab.NewDevice(string(rune('a'+i)), a)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, dev)
	}
	h := NewHost(list...)
	for i, peer := range []string{"198.18.0.77", "fd00:5eed::77"} {
		h.mu.Lock()
		d, local, err := h.toward(PSTCP, netip.MustParseAddr(peer))
		h.mu.Unlock()
		if err != nil || d.vdev != list[i] || local != addrs[i] {
			t.Errorf("%s: %v, %v, want %v", peer, local, err, addrs[i])
		}
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// At most maxPaths local paths are kept.
func TestLocalPathsAreBounded(t *testing.T) {
	h := memoryHost(t)
	h.mu.Lock()
	h.paths = map[pathKey]localPath{}
	for i := range maxPaths - 1 {
		h.paths[pathKey{peer: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})}] = localPath{}
	}
	for i, want := range []int{maxPaths, 1, 2} {
		_, _, err := h.toward(PSTCP, netip.AddrFrom4([4]byte{198, 18, 0, byte(2 + i)}))
		if err != nil || len(h.paths) != want {
			t.Errorf("%d paths, want %d; %v", len(h.paths), want, err)
		}
	}
	h.mu.Unlock()
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}
