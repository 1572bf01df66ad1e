package rdmacm

import (
	"context"
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/rdmatest"
)

// When all ports are in use, clients of different peers share them, as in Linux: a connection is known by both ends. Clients of one peer
// and listeners do not.
func TestC_BIND_04_PortsRunOut(t *testing.T) {
	old := ephemeral
	ephemeral = func() (low, high uint16) { return 40000, 40003 }
	defer func() { ephemeral = old }()
	dev, err := rdmatest.New(rdmatest.Config{RealTime: true}).NewDevice("a", fuzzHere)
	if err != nil {
		t.Fatal(err)
	}
	h := NewHost(dev)
	var ids []*ID
	resolve := func(ps PortSpace, dst string) error {
		id, err := h.CreateID(nil, ps, nil)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
		return id.ResolveAddr(context.Background(), netip.AddrPort{}, netip.MustParseAddrPort(dst), time.Second)
	}
	used := map[uint16]bool{}
	for range 4 {
		if err := resolve(PSTCP, "198.18.0.2:7471"); err != nil {
			t.Fatal(err)
		}
		used[ids[len(ids)-1].SrcPort()] = true
	}
	if len(used) != 4 {
		t.Errorf("ports %v were given while there were free ones", used)
	}
	for _, c := range []struct {
		ps   PortSpace
		dst  string
		want error
	}{
		{PSTCP, "198.18.0.2:7471", syscall.EADDRNOTAVAIL}, {PSTCP, "198.18.0.2:7472", nil}, {PSTCP, "198.18.0.3:7471", nil}, {PSUDP, "198.18.0.2:7471", nil},
	} {
		if err := resolve(c.ps, c.dst); !errors.Is(err, c.want) {
			t.Errorf("%v to %s: %v, want %v", c.ps, c.dst, err, c.want)
		}
	}
	l, err := h.CreateID(nil, PSTCP, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Listen(0); !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("a listener at a client's port: %v", err)
	}
	for _, id := range append(ids, l) {
		if err := id.Close(); err != nil {
			t.Error(err)
		}
	}
	if left := h.Left(); left != "" {
		t.Error(left)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}
