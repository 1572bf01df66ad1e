package loopback

import (
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

const child = "LOOPBACK_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(child) != "" {
		os.Stdout.WriteString(Addr(7) + " " + Port())
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A process has one network and its ports, which the processes that it starts share, and which others cannot have
// meanwhile.
func TestAddr(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has all of 127.0.0.0/8")
	}
	own := Addr(7)
	if Addr(7) != own || !strings.HasPrefix(own, "127.4.") || !strings.HasSuffix(own, ".7") || Addr(8) == own {
		t.Errorf("%s, then %s and %s", own, Addr(7), Addr(8))
	}
	of := func(env ...string) (addr, port string) {
		t.Helper()
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(append(os.Environ(), child+"=1"), env...)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		addr, port, _ = strings.Cut(string(out), " ")
		return addr, port
	}
	mine := map[string]bool{}
	for range 2 * portsOfNet {
		port := Port()
		if n, err := strconv.Atoi(port); err != nil || n < firstPort || n >= firstPort+nets*portsOfNet {
			t.Fatalf("port %s: must be %d to %d", port, firstPort, firstPort+nets*portsOfNet-1)
		}
		mine[port] = true
	}
	if len(mine) > portsOfNet {
		t.Errorf("%d ports, want at most %d", len(mine), portsOfNet)
	}
	if got, port := of(); got != own || !mine[port] {
		t.Errorf("a process that this one started has %s and port %s, want %s and a port of this one", got, port, own)
	}
	if got, port := of(inherited + "="); got == own || net.ParseIP(got) == nil || mine[port] {
		t.Errorf("another test has %s and port %s, this one %s", got, port, own)
	}
	if _, err := net.Listen("tcp4", held.Addr().String()); err == nil {
		t.Error("the network is not reserved")
	}
}
