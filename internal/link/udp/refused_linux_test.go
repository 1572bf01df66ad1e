package udp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/refuse"
)

// refusedEnv holds the errno and the numbers of the refused calls for a process of TestRefusedCalls.
const refusedEnv = "UDP_TEST_REFUSED"

// sharedEnv makes TestRefusedOpen share the address.
const sharedEnv = refusedEnv + "_SHARED"

// TestRefusedCalls checks that a link works while the system refuses calls that have substitutes.
func TestRefusedCalls(t *testing.T) {
	const works = "^Test(Loopback|Train|Shards|SendNowhere|TooLong|SharedMADs|SegmentationRefused)$"
	for name, calls := range map[string][]uintptr{
		"recvmmsg": {unix.SYS_RECVMMSG}, "sendmmsg": {unix.SYS_SENDMMSG},
		"both":    {unix.SYS_RECVMMSG, unix.SYS_SENDMMSG},
		"lending": {unix.SYS_VMSPLICE, unix.SYS_SPLICE, unix.SYS_TEE},
	} {
		for _, errno := range []unix.Errno{unix.EPERM, unix.ENOSYS} {
			t.Run(fmt.Sprintf("%s %v", name, errno), func(t *testing.T) {
				if out, err := without(t, errno, calls, works); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	}
}

// TestRefusedCallsAreNamed checks that the error of Open names a refused call without a substitute, also if the address
// is shared.
func TestRefusedCallsAreNamed(t *testing.T) {
	needBatched(t)
	for _, c := range []struct {
		want   string
		shared string // value of sharedEnv
		calls  []uintptr
	}{
		{"recvmmsg (operation not permitted) and recvmsg", "", []uintptr{unix.SYS_RECVMMSG, unix.SYS_RECVMSG}},
		{"sendmmsg (operation not permitted) and sendmsg", "", []uintptr{unix.SYS_SENDMMSG, unix.SYS_SENDMSG}},
		{"netlinkrib: operation not permitted", "", []uintptr{unix.SYS_SOCKET}},
		{"setsockopt IP_RECVTOS to 1", "", []uintptr{unix.SYS_SETSOCKOPT}},
		{"setsockopt: operation not permitted", "1", []uintptr{unix.SYS_SETSOCKOPT}},
		{"memfd_create: operation not permitted", "1", []uintptr{unix.SYS_MEMFD_CREATE}},
		{"socketpair: operation not permitted", "1", []uintptr{unix.SYS_SOCKETPAIR}},
	} {
		t.Setenv(sharedEnv, c.shared)
		out, err := without(t, unix.EPERM, c.calls, "^TestRefusedOpen$")
		if err != nil || !strings.Contains(out, c.want) {
			t.Errorf("%s: %v\n%s", c.want, err, out)
		}
	}
}

// TestRefusedOpen is the part of TestRefusedCallsAreNamed that runs without the calls.
func TestRefusedOpen(t *testing.T) {
	if os.Getenv(refusedEnv) == "" {
		t.Skip("a part of TestRefusedCallsAreNamed")
	}
	l, err := Open(Config{
		Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, Port: 17914, Interface: "lo",
		Shared: os.Getenv(sharedEnv) != "",
	})
	if err == nil {
		l.Close()
		t.Fatal("Open succeeded")
	}
	if !errors.Is(err, unix.EPERM) {
		t.Errorf("not EPERM: %v", err)
	}
	fmt.Println(err)
}

// without runs tests of this binary in a process to which the calls are refused.
func without(t *testing.T, errno unix.Errno, calls []uintptr, tests string) (out string, err error) {
	t.Helper()
	list := []string{strconv.Itoa(int(errno))}
	for _, c := range calls {
		list = append(list, strconv.FormatUint(uint64(c), 10))
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestRefusedChild$", "-test.v")
	cmd.Env = append(os.Environ(), refusedEnv+"="+strings.Join(list, ","), refusedEnv+"_TESTS="+tests)
	b, err := cmd.CombinedOutput()
	if strings.Contains(string(b), "seccomp: ") {
		t.Skipf("%s", b)
	}
	return string(b), err
}

// TestRefusedChild executes the process without the calls.
func TestRefusedChild(t *testing.T) {
	list := strings.Split(os.Getenv(refusedEnv), ",")
	tests := os.Getenv(refusedEnv + "_TESTS")
	if tests == "" {
		t.Skip("a part of TestRefusedCalls")
	}
	var numbers []uintptr
	for _, s := range list {
		n, err := strconv.ParseUint(s, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, uintptr(n))
	}
	env := append(os.Environ(), refusedEnv+"_TESTS=")
	args := []string{os.Args[0], "-test.run=" + tests, "-test.v"}
	err := refuse.Exec(unix.Errno(numbers[0]), numbers[1:], os.Args[0], args, env)
	t.Fatal(err)
}
