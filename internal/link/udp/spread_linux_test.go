package udp

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// TestSourcePortsAreSpread checks that paths with source ports get them, up to a bound beyond which they share the
// open ones. The packets of each path stay in order on several sockets, and their ICRCs are right.
func TestSourcePortsAreSpread(t *testing.T) {
	port := testPort(t)
	l := batchedLink(t, Config{Addrs: []netip.Addr{lo4}, Port: port, Ports: 1})
	l.loopback = false // a loopback interface does not spread
	sink, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(lo4b, port)))
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	if err := sink.SetReadBuffer(1 << 20); err != nil {
		t.Fatal(err)
	}
	const flows, rounds = 50, 4
	paths := []*link.Path{{Src: lo4, Dst: lo4b}}
	for i := range flows {
		paths = append(paths, &link.Path{Src: lo4, Dst: lo4b, Source: uint16(0xC100 + 7*i)})
	}
	before, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	p := l.Ports()[0]
	of := map[uint32]uint16{} // source port of each flow
	seen := map[uint32]uint32{}
	for range rounds {
		tx := link.NewTxBatch(2*len(paths), 1<<16)
		for k := range 2 {
			for i, path := range paths {
				fill(tx.Alloc(path, 0, 64), uint32(i), uint32(k))
			}
		}
		p.Send(tx)
		for range 2 * len(paths) {
			buf := make([]byte, 2048)
			if err := sink.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
				t.Fatal(err)
			}
			n, from, err := sink.ReadFromUDPAddrPort(buf)
			if err != nil {
				t.Fatal(err)
			}
			flow, seq := wire.BTH(buf).DestQPN(), wire.BTH(buf).PSN()
			if seq != seen[flow] {
				t.Fatalf("flow %d: packet %d came before %d", flow, seq, seen[flow])
			}
			seen[flow] = 1 - seq
			if was, ok := of[flow]; ok && was != from.Port() {
				t.Errorf("flow %d came from port %d and then from %d", flow, was, from.Port())
			}
			of[flow] = from.Port()
			icrc := wire.NewFlow(lo4, lo4b, from.Port(), port).ICRC(buf[:n-wire.ICRCLen], 0)
			if binary.LittleEndian.Uint32(buf[n-wire.ICRCLen:]) != icrc {
				t.Fatalf("flow %d: wrong ICRC", flow)
			}
		}
	}
	ports := map[uint16]bool{}
	exact := 0
	for flow, from := range of {
		ports[from] = true
		if flow > 0 && from == paths[flow].Source {
			exact++
		}
	}
	if len(ports) != 1+spread || exact < 1 || of[0] < firstSourcePort {
		t.Errorf("%d source ports, %d as wanted", len(ports), exact)
	}
	after, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	if len(after) > len(before)+spread {
		t.Errorf("%d descriptors, %d before", len(after), len(before))
	}
}

// withoutDescriptors runs a function while the process can open no descriptor.
func withoutDescriptors(t *testing.T, f func()) {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	f()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
}

// TestSourcePortsWithoutSockets checks that the open sockets are used while the process has no descriptor for another
// one, and that paths get their source ports again some time after it has.
func TestSourcePortsWithoutSockets(t *testing.T) {
	l := batchedLink(t, Config{Addrs: []netip.Addr{lo4}, Port: testPort(t), Ports: 1})
	l.loopback = false // a loopback interface does not spread
	p := l.ports[0]
	path := &link.Path{Src: lo4, Dst: lo4b, Source: p.tx[0].port ^ 1}
	var s *txSocket
	withoutDescriptors(t, func() { s = p.socketFor(path) })
	if s != p.tx[0] {
		t.Errorf("%+v without descriptors", s)
	}
	if s := p.socketFor(path); s != p.tx[0] {
		t.Errorf("%+v at once after that", s)
	}
	for end := time.Now().Add(10 * time.Second); p.socketFor(path) == p.tx[0]; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no source port of its own")
		}
	}
	if s := p.socketFor(&link.Path{Src: lo4b, Dst: lo4}); s != nil {
		t.Errorf("%+v for an address that is not ours", s)
	}
}

// TestAttemptsForSourcePortsAreBounded checks the pauses between attempts that fail.
func TestAttemptsForSourcePortsAreBounded(t *testing.T) {
	var a another
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		if !a.due() {
			t.Fatalf("attempt %d is not due", i)
		}
		before := time.Now()
		a.tried(unix.EMFILE)
		if a.pause != want*time.Second || a.at.Before(before.Add(a.pause)) {
			t.Errorf("the next attempt after failure %d is at least %v later, want %d s", i, a.pause, want)
		}
		if a.at = before.Add(time.Hour); a.due() {
			t.Fatalf("attempt %d is due before its time", i+1)
		}
		a.at = before
	}
	if a.tried(nil); !a.due() {
		t.Error("a success does not end the pauses")
	}
	if a.tried(unix.EMFILE); a.pause != againAfter {
		t.Errorf("a pause of %v after a success", a.pause)
	}
}
