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
