package soft_test

import (
	"bufio"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/softlink"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

// childRole is the environment variable that selects the role of a test binary started by a test.
const childRole = "VERBENA_TEST_CHILD"

// child returns a command that runs one test of this binary in a role.
func child(test, role string) *exec.Cmd {
	c := exec.Command(os.Args[0], "-test.run=^"+test+"$", "-test.v")
	c.Env = append(os.Environ(), childRole+"="+role)
	return c
}

// TestV_AE_08_ProcessEndsWithUnacknowledgedEvents: a process that ends with an event that it has read and not
// acknowledged frees all resources, its address included.
func TestV_AE_08_ProcessEndsWithUnacknowledgedEvents(t *testing.T) {
	if role := os.Getenv(childRole); role != "" {
		e := newEnd(t, get(soft.New(softlink.On(soft.Config{Addrs: []netip.Addr{netip.MustParseAddr(role)}, Shards: 1},
			softlink.Links{Open: testUDP})))(t))
		srq := get(e.pd.CreateSRQ(&verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: 1, MaxSGE: 1}}))(t)
		e.qp(verbs.QPTypeUD, nil) // binds the port
		must(t, srq.Modify(&verbs.SRQAttr{SRQLimit: 1}, verbs.SRQAttrLimit))
		ev := get(e.ctx.TryGetAsyncEvent())(t)
		fmt.Println("got", ev.Type)
		os.Exit(0)
	}
	addr := loopback(70)
	for range 2 {
		out, err := child(t.Name(), addr.String()).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "got SRQ limit reached") {
			t.Fatalf("%v\n%s", err, out)
		}
	}
}

// TestV_FORK_03_V_FORK_05_V_FORK_10_ChildrenGetNoDescriptors: every descriptor of an open device is closed in an
// executed program, which must not use inherited devices.
func TestV_FORK_03_V_FORK_05_V_FORK_10_ChildrenGetNoDescriptors(t *testing.T) {
	if os.Getenv(childRole) != "" {
		for _, link := range descriptorLinks(t) {
			fmt.Println("has", link)
		}
		return
	}
	e := newSleeper(t, newEnds(t, &networks[1], 1, nil)[0])
	e.qp(verbs.QPTypeRC, nil)
	get(e.ch.FD())(t)
	get(e.ctx.AsyncFD())(t)
	before := descriptorLinks(t)
	if !slices.ContainsFunc(before, isOurs) {
		t.Fatalf("the descriptors of the device are not listed: %q", before)
	}
	out, err := child(t.Name(), "list").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for s := bufio.NewScanner(strings.NewReader(string(out))); s.Scan(); {
		if link, ok := strings.CutPrefix(s.Text(), "has "); ok && isOurs(link) && slices.Contains(before, link) {
			t.Errorf("the child has %s", link)
		}
	}
}

// isOurs reports whether a descriptor may belong to a device. Names of epoll and event descriptors are not unique,
// those of sockets are.
func isOurs(link string) bool { return strings.HasPrefix(link, "socket:") }

// descriptorLinks returns the link target of each descriptor of this process.
func descriptorLinks(t *testing.T) (links []string) {
	dir := "/proc/self/fd"
	list, err := os.ReadDir(dir)
	must(t, err)
	for _, d := range list {
		if link, err := os.Readlink(filepath.Join(dir, d.Name())); err == nil {
			links = append(links, link)
		}
	}
	return links
}

// TestX_XRCD_01_DomainOfAnotherProcess: the domain of a file belongs to one process until it ends; another process
// gets an error that says so.
func TestX_XRCD_01_DomainOfAnotherProcess(t *testing.T) {
	open := func(path string, flags int) (*end, *verbs.XRCD, error) {
		e := newEnd(t, get(soft.New(softlink.On(soft.Config{Name: "vrb_xrcd", Addrs: []netip.Addr{loopback(0)}, Shards: 1},
			softlink.Links{Open: testUDP})))(t))
		f := get(os.OpenFile(path, os.O_RDWR, 0))(t)
		defer func() { must(t, f.Close()) }()
		d, err := e.ctx.OpenXRCD(&verbs.XRCDInitAttr{File: f, OFlags: flags})
		return e, d, err
	}
	if path, ok := strings.CutPrefix(os.Getenv(childRole), "file:"); ok {
		// The test's process and this one have the same device, except for its address.
		for _, flags := range []int{os.O_CREATE, 0, os.O_CREATE | os.O_EXCL} {
			_, d, err := open(path, flags)
			fmt.Println("flags", flags, "error", err)
			if d != nil {
				must(t, d.Close())
			}
		}
		return
	}
	path := filepath.Join(t.TempDir(), "xrcd")
	must(t, os.WriteFile(path, nil, 0o600))
	_, d, err := open(path, os.O_CREATE)
	must(t, err)
	run := func() string {
		out, err := child(t.Name(), "file:"+path).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	out := run()
	if strings.Count(out, "another process") != 3 || strings.Count(out, "EOPNOTSUPP") != 2 || strings.Count(out,
		"EINVAL") != 1 {
		t.Errorf("%s", out)
	}
	must(t, d.Close())
	if out := run(); strings.Count(out, "<nil>") != 2 || !strings.Contains(out, "EAGAIN") {
		t.Errorf("after the domain was closed:\n%s", out)
	}
}
