package loopback

import (
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

const child = "LOOPBACK_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(child) != "" {
		os.Stdout.WriteString(Addr(7))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A process has one network, which the processes that it starts share, and which others cannot have meanwhile.
func TestAddr(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has all of 127.0.0.0/8")
	}
	own := Addr(7)
	if Addr(7) != own || !strings.HasPrefix(own, "127.4.") || !strings.HasSuffix(own, ".7") || Addr(8) == own {
		t.Errorf("%s, then %s and %s", own, Addr(7), Addr(8))
	}
	of := func(env ...string) string {
		t.Helper()
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(append(os.Environ(), child+"=1"), env...)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	if got := of(); got != own {
		t.Errorf("a process that this one started has %s, want %s", got, own)
	}
	if got := of(inherited + "="); got == own || net.ParseIP(got) == nil {
		t.Errorf("another test has %s, this one %s", got, own)
	}
	if _, err := net.Listen("tcp4", held.Addr().String()); err == nil {
		t.Error("the network is not reserved")
	}
}
