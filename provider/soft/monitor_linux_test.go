package soft

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/verbs"
)

const inNamespace = "VERBENA_TEST_IN_NAMESPACE"

// The kernel tells of changes. In a network namespace of its own the test has a loopback interface that is down and
// without addresses, and takes it up and down.
func TestV_AE_22_KernelTellsOfChanges(t *testing.T) {
	if os.Getenv(inNamespace) == "" {
		runInNamespace(t)
		return
	}
	d := newDevice(spec{name: "vrb_lo", iface: "lo"})
	var up portEvents
	ctx, err := d.Open(&up)
	if err != nil {
		t.Fatal(err)
	}
	defer ctx.Close()
	if attr, _ := ctx.QueryPort(1); attr.State != verbs.PortDown {
		t.Fatalf("the port is %v from the start", attr.State)
	}
	setUp(t, true)
	expect(t, &up, verbs.EventPortActive, verbs.EventGIDChange)
	table, _ := ctx.GIDTable(1)
	if !slices.ContainsFunc(table, func(e verbs.GIDEntry) bool { return e.GID.Addr().String() == "127.0.0.1" && e.NetDev == "lo" }) {
		t.Errorf("GID table %+v", table)
	}
	setUp(t, false)
	expect(t, &up, verbs.EventPortErr)
}

// expect waits until each of the events has come.
func expect(t *testing.T, up *portEvents, want ...verbs.EventType) {
	t.Helper()
	var got []verbs.EventType
	for start := time.Now(); time.Since(start) < 10*time.Second; time.Sleep(time.Millisecond) {
		got = append(got, up.take()...)
		missing := slices.ContainsFunc(want, func(e verbs.EventType) bool { return !slices.Contains(got, e) })
		if !missing {
			return
		}
	}
	t.Fatalf("events %v, want %v", got, want)
}

func setUp(t *testing.T, up bool) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	if up {
		ifr.SetUint16(unix.IFF_UP)
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr); err != nil {
		t.Fatal(err)
	}
}

// runInNamespace runs the same test in a process with a network namespace of its own.
func runInNamespace(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Skipf("this system does not let users have network namespaces: %v", err)
	}
	if err != nil || !strings.Contains(string(out), "PASS") {
		t.Errorf("%v\n%s", err, out)
	}
}
