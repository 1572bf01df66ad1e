package rdmacm

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/rdmatest"
)

func TestC_BIND_04_PortRange(t *testing.T) {
	file := filepath.Join(t.TempDir(), "range")
	if low, high := portRange(file); low != 32768 || high != 60999 {
		t.Errorf("without a file it is %d to %d", low, high)
	}
	for text, want := range map[string][2]uint16{
		// as they are
		"32768\t60999\n": {32768, 60999}, "1024 65535": {1024, 65535}, "40000\t40000\n": {40000, 40000}, "1 2": {1, 2},
		"": {32768, 60999}, "5000": {32768, 60999}, "0 9": {32768, 60999}, "9000 8999": {32768, 60999}, "1 65536": {32768,
			60999}, "a b": {32768, 60999},
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if low, high := portRange(file); [2]uint16{low, high} != want {
			t.Errorf("%q is %d to %d, want %v", text, low, high, want)
		}
	}
	if _, err := os.Stat(portRangeFile); err != nil && runtime.GOOS == "linux" {
		t.Error(err)
	}
}

// An ephemeral port is any one of the range, its ends included, and no other.
func TestC_BIND_04_PortIsOfTheRange(t *testing.T) {
	old := ephemeral
	defer func() { ephemeral = old }()
	h := memoryHost(t)
	for _, r := range [][2]uint16{{40000, 40002}, {65533, 65535}, {1, 3}, {5, 5}} {
		ephemeral = func() (low, high uint16) { return r[0], r[1] }
		var ids []*ID
		for port := int(r[0]); port <= int(r[1]); port++ {
			id, err := h.CreateID(nil, PSTCP, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := id.BindAddr(netip.AddrPortFrom(fuzzHere, 0)); err != nil {
				t.Fatalf("%v: %v", r, err)
			}
			if got := id.SrcPort(); got < r[0] || got > r[1] {
				t.Errorf("port %d is not of %v", got, r)
			}
			ids = append(ids, id)
		}
		more, err := h.CreateID(nil, PSTCP, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := more.BindAddr(netip.AddrPortFrom(fuzzHere, 0)); !errors.Is(err, syscall.EADDRNOTAVAIL) {
			t.Errorf("%v: one more than there are: %v", r, err)
		}
		for _, id := range append(ids, more) {
			if err := id.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// When all ports are in use, clients of different peers share them, as in Linux: a connection is known by both ends.
// Clients of one peer and listeners do not.
func TestC_BIND_04_PortsRunOut(t *testing.T) {
	old := ephemeral
	ephemeral = func() (low, high uint16) { return 40000, 40003 }
	defer func() { ephemeral = old }()
	h := memoryHost(t)
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
		{PSTCP, "198.18.0.2:7471", syscall.EADDRNOTAVAIL}, {PSTCP, "198.18.0.2:7472", nil}, {PSTCP, "198.18.0.3:7471", nil},
		{PSUDP, "198.18.0.2:7471", nil},
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

// Another port than one that another process has is the next of the range, and behind the last one the first.
func TestNextPortOfTheRange(t *testing.T) {
	old := ephemeral
	ephemeral = func() (low, high uint16) { return 40000, 40003 }
	defer func() { ephemeral = old }()
	h := memoryHost(t)
	id, err := h.CreateID(nil, PSTCP, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := id.BindAddr(netip.AddrPortFrom(fuzzHere, 0)); err != nil {
		t.Fatal(err)
	}
	id.mu.Lock()
	h.mu.Lock()
	for range 5 {
		before := id.local.Port()
		want := before + 1
		if before == 40003 {
			want = 40000
		}
		if err := h.ports.bindAnother(id); err != nil || id.local.Port() != want || id.bound.port != want {
			t.Errorf("port %d follows %d, want %d; %v", id.local.Port(), before, want, err)
		}
	}
	h.mu.Unlock()
	id.mu.Unlock()
	if err := id.Close(); err != nil {
		t.Error(err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// An ID that waits for the port that TCP chooses has none in the table, and each port has a place there.
func TestMoveToAPortOfTCP(t *testing.T) {
	table := portTable{}
	id := &ID{ps: PSTCP, binding: binding{local: netip.AddrPortFrom(fuzzHere, 0)}}
	id.mu.Lock()
	defer id.mu.Unlock()
	for _, port := range []uint16{0, 1, 0, 65535, 7} {
		table.move(id, port)
		want := map[bool]int{true: 1}[port != 0]
		if got := len(table[portKey{PSTCP, port}]); got != want || len(table) != want || id.local.Port() != port {
			t.Errorf("port %d: %d owners, want %d; %d ports; the ID is at %v", port, got, want, len(table), id.local)
		}
	}
}

// A port of RoCE stays when the program reads it, although a TCP socket has the same.
func TestPortThatTCPHas(t *testing.T) {
	loopback := netip.MustParseAddr("127.0.0.1")
	tcp, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(netip.AddrPortFrom(loopback, 0)))
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	port := tcp.Addr().(*net.TCPAddr).AddrPort().Port()
	old := ephemeral
	defer func() { ephemeral = old }()
	ephemeral = func() (low, high uint16) { return port, port }
	dev, err := rdmatest.New(rdmatest.Config{RealTime: true}).NewDevice("a", loopback)
	if err != nil {
		t.Fatal(err)
	}
	h := NewHost(dev)
	id, err := h.CreateID(nil, PSTCP, nil)
	if err == nil {
		err = id.BindAddr(netip.AddrPortFrom(loopback, 0))
	}
	if err != nil {
		t.Fatal(err)
	}
	ephemeral = func() (low, high uint16) { return port - 3, port } // a search would find another one
	if got := id.SrcPort(); got != port {
		t.Errorf("the port is %d, and was %d", got, port)
	}
	if err := errors.Join(id.Close(), h.Close()); err != nil {
		t.Error(err)
	}
}

// An ID gives up the port of the table for that of TCP.
func TestPortOfTheTableIsGivenUp(t *testing.T) {
	h := memoryHost(t)
	id := boundID(t, h)
	id.mu.Lock()
	old := id.local.Port()
	for _, port := range []uint16{0, old, 7} {
		id.movePort(port)
		owners := map[bool]int{true: 1}[port == old]
		if got := len(h.ports[portKey{PSTCP, old}]); id.local.Port() != port || got != owners {
			t.Errorf("port %d of the ID, want %d; %d owners of %d", id.local.Port(), port, got, old)
		}
	}
	id.mu.Unlock()
	if err := errors.Join(id.Close(), h.Close()); err != nil {
		t.Error(err)
	}
}

// A client gets a port of its own while there is a free one, though it could share the port of another peer's client.
func TestFreePortBeforeASharedOne(t *testing.T) {
	old := ephemeral
	ephemeral = func() (low, high uint16) { return 40000, 40001 }
	defer func() { ephemeral = old }()
	h := NewHost()
	first, second := &ID{host: h, ps: PSTCP}, &ID{host: h, ps: PSTCP}
	for i, id := range []*ID{first, second} {
		id.mu.Lock()
		id.local = netip.MustParseAddrPort("198.18.0.1:0")
		id.remote = netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, 1, byte(i)}), 7)
		if err := h.ports.bindFrom(id, 0); err != nil {
			t.Fatal(err)
		}
		id.mu.Unlock()
	}
	if first.local.Port() != 40000 || second.local.Port() != 40001 {
		t.Errorf("ports %d and %d, want 40000 and 40001", first.local.Port(), second.local.Port())
	}
}
