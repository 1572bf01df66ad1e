package udp

import (
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
)

// TestPathsTakeTurns checks that each packet of a batch leaves with the addresses of its path and arrives whole, also
// after the sockets of an address were opened again.
func TestPathsTakeTurns(t *testing.T) { kinds(t, testPathsTakeTurns) }

func testPathsTakeTurns(t *testing.T) {
	needSeparate(t)
	addrs := []netip.Addr{lo4, lo4b}
	l := open(t, Config{Addrs: addrs, Port: testPort(t)})
	var paths []*link.Path
	for _, src := range addrs {
		for _, dst := range addrs {
			paths = append(paths, &link.Path{Src: src, Dst: dst})
		}
	}
	for round := range 20 {
		tx := link.NewTxBatch(64, 1<<13)
		for i := range 3 * len(paths) {
			fill(tx.Alloc(paths[i%len(paths)], 1, 40), 0, uint32(i))
		}
		l.Ports()[0].Send(tx)
		for _, got := range receive(t, l.Ports()[0], 3*len(paths)) {
			if want := paths[int(got.Data[11])%len(paths)]; got.Src != want.Src || got.Dst != want.Dst {
				t.Fatalf("round %d: packet %d came from %v for %v, want %v and %v", round, got.Data[11], got.Src, got.Dst,
					want.Src, want.Dst)
			}
		}
		for _, keep := range []int{1, 2} { // another source port each time
			if err := l.SetAddrs(addrs[:keep]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if c := l.Ports()[0].Counters(); c.RxICRCErrors+c.RxMalformed+c.TxDropped != 0 {
		t.Errorf("counters %+v, want no errors", c)
	}
}
