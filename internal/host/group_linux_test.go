package host

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ownKey names an address that other processes which run these tests do not use.
func ownKey() Key {
	pid := os.Getpid()
	return Key{Port: uint16(20000 + rand.IntN(10000)), Addr: netip.AddrFrom4([4]byte{127, byte(pid>>8)&0x3f | 0x40, byte(pid), 9})}
}

// A newcomer that finds the port taken and nobody leading waits for those who have lanes to choose a leader, however busy the machine is. If nobody
// has a lane, the port is a stranger's.
func TestJoinWhileALeaderIsChosen(t *testing.T) {
	t.Setenv(envRun, t.TempDir())
	key := ownKey()
	taken := func() ([]int, error) { return nil, unix.EADDRINUSE }
	stranger, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(key.Addr, key.Port)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Join(key, taken); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("beside a stranger: %v, want EADDRINUSE", err)
	}
	stranger.Close()
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
		if time.Since(begin) > 2*foreignLooks*foreignPause {
			return nil, nil
		}
		return taken()
	})
	if err != nil {
		t.Fatalf("while a process with a lane is about to lead: %v", err)
	}
	g.Close()
}

// A group's processes may be just joining or just ending: its sockets are there, and nobody who leads or has a lane. They are not strangers, and
// neither are sockets that are gone when one looks.
func TestJoinWhileTheLastOneEnds(t *testing.T) {
	t.Setenv(envRun, t.TempDir())
	key := ownKey()
	for _, sockets := range []int{Lanes + 1, 2, 0} {
		l := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
			return errors.Join(c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) }), err)
		}}
		for range sockets {
			c, err := l.ListenPacket(t.Context(), "udp", netip.AddrPortFrom(key.Addr, key.Port).String())
			if err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(2*foreignLooks*foreignPause, func() { c.Close() })
		}
		begin := time.Now()
		g, err := Join(key, func() ([]int, error) {
			if time.Since(begin) > 3*foreignLooks*foreignPause {
				return nil, nil
			}
			return nil, unix.EADDRINUSE
		})
		if err != nil {
			t.Fatalf("beside %d sockets of a group: %v", sockets, err)
		}
		g.Close()
	}
}
