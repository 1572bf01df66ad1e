package host

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A newcomer that finds the port taken and nobody leading waits for those who have lanes to choose a leader, however busy the machine is. If nobody
// has a lane, the port is a stranger's.
func TestJoinWhileALeaderIsChosen(t *testing.T) {
	t.Setenv(envRun, t.TempDir())
	key := Key{Port: uint16(20000 + rand.IntN(10000)), Addr: netip.MustParseAddr("127.0.0.1")}
	taken := func() ([]int, error) { return nil, unix.EADDRINUSE }
	if _, err := Join(key, taken); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("beside a stranger: %v, want EADDRINUSE", err)
	}
	n, err := key.names()
	if err != nil {
		t.Fatal(err)
	}
	box, err := n.open(laneName(Lanes-1), func(Mail) {})
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	begin := time.Now()
	g, err := Join(key, func() ([]int, error) {
		if time.Since(begin) > 2*foreign {
			return nil, nil
		}
		return taken()
	})
	if err != nil {
		t.Fatalf("while a process with a lane is about to lead: %v", err)
	}
	g.Close()
}
