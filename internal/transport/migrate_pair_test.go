package transport

import (
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
)

// TestPairMigrating is TestPair with two paths, either of which may fail while both ends are armed, and with programs
// that migrate at any time. No request fails, and no byte is lost.
func TestPairMigrating(t *testing.T) {
	seeds := uint64(100)
	if testing.Short() || slow {
		seeds = 30
	}
	var moves [2]int
	for seed := range seeds {
		if *pairSeed != 0 {
			seed = *pairSeed - 1
		}
		p := newPair(t, seed+1)
		p.migrating = true
		for i, e := range p.ends {
			alt := Attr{Alt: link.Path{Src: altAddr(i), Dst: altAddr(1 - i)}, AltPKey: 0xFFFF, AltTimeout: 9, State: RTS}
			if err := e.qp.Modify(0, &alt, MaskAltPath); err != nil {
				t.Fatal(err)
			}
			e.todo = 200
		}
		if p.run(); t.Failed() {
			t.Fatalf("reproduce with: go test ./internal/transport -run TestPairMigrating -pairseed %d", seed+1)
		}
		moves[0], moves[1] = moves[0]+p.moves[0], moves[1]+p.moves[1]
		if *pairSeed != 0 {
			return
		}
	}
	if moves[0] < int(seeds) || moves[1] < int(seeds) {
		t.Errorf("only %v migrations", moves)
	}
}

func altAddr(i int) netip.Addr { return netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}) }

func isAlt(p *link.Path) bool { return p.Src.As4()[0] == 198 }

// steer changes the paths of an end.
func (e *pairEnd) steer() {
	p, mine, theirs := e.p, &e.qp.attr, &e.peer.qp.attr
	same := isAlt(&mine.Path) == isAlt(&theirs.Path)
	if p.cut != nil {
		if same && isAlt(&mine.Path) != *p.cut {
			p.cut = nil // neither end uses it
		}
		return
	}
	a := Attr{State: RTS}
	switch n := p.rnd.IntN(60); {
	case n < 10 && mine.Mig == Migrated:
		a.Mig = Rearm
	case n == 10 && mine.Mig == Armed:
		a.Mig = Migrated
	case n < 20 && n > 11 && same && mine.Mig == Armed && theirs.Mig == Armed:
		which := isAlt(&mine.Path)
		p.cut = &which
		return
	default:
		return
	}
	if err := e.qp.Modify(p.now, &a, MaskMigState); err != nil {
		p.t.Error(err)
	}
}
