package host

import (
	"encoding/binary"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/board"
)

// floodScreen drops the requests for a process that has ever had too many.
type floodScreen struct{ of *board.Board }

func (s floodScreen) Drop([]byte) bool { return s.of.Floods(board.Connect) > 0 }

// screened is a leader that screens requests, a member, and a request for a service of the member.
func screened(t *testing.T) (key Key, leader, g *testGroup, mad []byte) {
	t.Helper()
	key, leader = testLeader(t)
	leader.leader.mu.Lock()
	leader.cfg.Screen = func(b *board.Board) board.Screen { return floodScreen{b} }
	leader.leader.mu.Unlock()
	const service = 0x77
	mad = make([]byte, madMinimum)
	mad[MADClass] = ClassCM
	binary.BigEndian.PutUint16(mad[MADAttr:], AttrREQ)
	binary.BigEndian.PutUint64(mad[madReqSID:], service)
	g = testMember(t, key)
	if err := g.ClaimService(service); err != nil {
		t.Fatal(err)
	}
	return key, leader, g, mad
}

// TestScreenFollowsTheFirstSlot checks that the leader drops requests for a member by the board that this has, after it
// has released its first slot, and not by that of the next owner of the slot.
func TestScreenFollowsTheFirstSlot(t *testing.T) {
	key, leader, g, mad := screened(t)
	g.claim(t, 5)
	g.claim(t, 6)
	g.Release(5)
	other := testMember(t, key)
	other.claim(t, 5)
	other.Board().Flood(board.Connect)
	if foreign, drop := leader.Screen(mad); !foreign || drop {
		t.Errorf("another process has too many requests: %v, %v, want true, false", foreign, drop)
	}
	g.Board().Flood(board.Connect)
	if foreign, drop := leader.Screen(mad); !foreign || !drop {
		t.Errorf("the process has too many requests: %v, %v, want true, true", foreign, drop)
	}
	g.Release(6)
	if foreign, drop := leader.Screen(mad); !foreign || drop {
		t.Errorf("a process without a slot: %v, %v, want true, false", foreign, drop)
	}
}

// TestScreenAfterAFailedClaim checks that the leader does not drop requests for a member by the board of a slot whose
// claim has failed.
func TestScreenAfterAFailedClaim(t *testing.T) {
	key, leader, g, mad := screened(t)
	other := testMember(t, key)
	free, err := unix.Dup(0)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(free)
	t.Run("few", func(t *testing.T) {
		withoutDescriptors(t, free)
		if _, err := g.Claim(5); !errors.Is(err, unix.EMFILE) {
			t.Fatalf("%v, want EMFILE", err)
		}
	})
	other.claim(t, 5)
	g.claim(t, 6)
	other.Board().Flood(board.Connect)
	if foreign, drop := leader.Screen(mad); !foreign || drop {
		t.Errorf("another process has too many requests: %v, %v, want true, false", foreign, drop)
	}
	g.Board().Flood(board.Connect)
	if foreign, drop := leader.Screen(mad); !foreign || !drop {
		t.Errorf("the process has too many requests: %v, %v, want true, true", foreign, drop)
	}
}
