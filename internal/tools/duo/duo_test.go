package duo

import (
	"errors"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Command {
		if err := Serve(&second{}); err != nil {
			os.Exit(1)
		}
		return
	}
	if os.Getenv("GORACE") == "" {
		os.Setenv("GORACE", "atexit_sleep_ms=0") // otherwise each child process sleeps 1 s when it ends
	}
	os.Exit(m.Run())
}

type second struct{}

func (*second) Env(name string, value *string) error {
	*value = os.Getenv(name)
	return nil
}

func (*second) Fail(string, *string) error { return errors.New("as asked") }

func (*second) Exit(int, *int) error {
	os.Exit(7)
	return nil
}

func (*second) TCP(ip netip.Addr, to *netip.AddrPort) (err error) {
	*to, err = ServeTCP(ip)
	return err
}

func start(t *testing.T) *Process {
	t.Helper()
	p, err := Start("DUO_TEST=yes")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return p
}

func TestCall(t *testing.T) {
	p := start(t)
	var got string
	if err := p.Call("Env", "DUO_TEST", &got); err != nil || got != "yes" {
		t.Errorf("%q, %v", got, err)
	}
	if err := p.Call("Fail", "", &got); err == nil || err.Error() != "second process: Fail: as asked" {
		t.Errorf("%v", err)
	}
	var n int
	if err := p.Call("Exit", 0, &n); err == nil || !strings.Contains(err.Error(), "exit status 7") {
		t.Errorf("%v", err)
	}
}

// A host without a loopback address gets the command that makes one.
func TestNoLoopback(t *testing.T) {
	defer func(f func() bool) { hasLoopback = f }(hasLoopback)
	hasLoopback = func() bool { return false }
	if _, _, err := Addresses(); err == nil || !strings.Contains(err.Error(), "ip link set dev lo up") {
		t.Errorf("%v", err)
	}
}

func TestStopEndsTheProcess(t *testing.T) {
	p := start(t)
	p.Stop()
	if p.err != nil {
		t.Errorf("the second process ended with %v", p.err)
	}
	p.Stop() // a second Stop is harmless
}

func TestTCP(t *testing.T) {
	p := start(t)
	var to netip.AddrPort
	if err := p.Call("TCP", netip.MustParseAddr("127.0.0.1"), &to); err != nil {
		t.Fatal(err)
	}
	echo, err := DialTCP(to, 8, true)
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	for range 10 {
		if err := echo.RoundTrip(); err != nil {
			t.Error(err)
		}
	}
	sink, err := DialTCP(to, 1<<20, false)
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	for range 2 {
		if err := sink.Stream(3); err != nil {
			t.Error(err)
		}
	}
	if err := sink.RoundTrip(); err == nil {
		t.Error("a sink echoes")
	}
	if err := echo.Stream(1); err == nil {
		t.Error("an echo connection streams")
	}
}

func TestAddresses(t *testing.T) {
	a, b, err := Addresses()
	if err != nil {
		t.Skipf("port 4791 is not available: %v", err)
	}
	if !a.IsLoopback() || !b.IsLoopback() || a == b && runtime.GOOS != "linux" {
		t.Errorf("%s, %s", a, b)
	}
	t.Setenv("VERBENA_UDP", "plain") // where processes cannot share an address
	if a, b, err = Addresses(); err == nil && a == b {
		t.Errorf("one address for both: %s", a)
	}
}
