package soft_test

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/fdset"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

// TestDescriptorsOfDevices opens devices that share addresses and connects QPs through each link. Each socket, pipe and
// memfd that this process has got by that is in the list for children, and the program's own are not.
func TestDescriptorsOfDevices(t *testing.T) {
	own := get(unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0))(t)
	defer unix.Close(own)
	before := openFiles(t)
	var ends [2]*end
	for i := range ends {
		dev := get(soft.New(soft.Config{Name: fmt.Sprintf("vrb_fds%d", i), Addrs: []netip.Addr{loopback(200 + i)},
			Shards: 2}))(t)
		ends[i] = newEnd(t, dev)
	}
	qa, qb := connect(ends[0], ends[1], verbs.QPTypeRC, nil)
	must(t, qb.PostRecv(recv(ends[1], 1, 2000)))
	must(t, qa.PostSend(send(ends[0], 1000)))
	ends[0].good(1)
	ends[1].good(1)
	var found int
	var missing []string
	for range 100 { // descriptors of connections that are being set up come and go
		files := openFiles(t)
		var list []int
		for _, d := range fdset.Descriptors() {
			list = append(list, d.FD)
		}
		if slices.Contains(list, own) {
			t.Fatal("a socket of the program is in the list")
		}
		found, missing = 0, nil
		for fd, what := range files {
			kind, _, _ := strings.Cut(what, ":")
			if before[fd] == what || kind != "socket" && kind != "pipe" && kind != "/memfd" {
				continue
			}
			found++
			if !slices.Contains(list, fd) {
				missing = append(missing, what)
			}
		}
		if missing == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if found < 4 || missing != nil {
		t.Errorf("%d descriptors of two devices; not in the list: %v", found, missing)
	}
}

// openFiles returns the open descriptors and what they are.
func openFiles(t *testing.T) map[int]string {
	files := make(map[int]string)
	for _, e := range get(os.ReadDir("/proc/self/fd"))(t) {
		what, err := os.Readlink("/proc/self/fd/" + e.Name())
		if fd, bad := strconv.Atoi(e.Name()); bad == nil && err == nil {
			files[fd] = what
		}
	}
	return files
}

// TestFewDescriptors connects QPs of a device of one address, in a program that may use 64 processors. The device has
// at most 33 descriptors, so a process has at most 40: 3 are standard ones, 4 the Go runtime's.
func TestFewDescriptors(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(64))
	r, w, err := os.Pipe() // the runtime opens its own descriptors with the first one
	must(t, err)
	defer r.Close()
	defer w.Close()
	before := openFiles(t)
	e := newEnd(t, get(soft.New(soft.Config{Name: "vrb_few", Addrs: []netip.Addr{loopback(202)}}))(t))
	var qps []*verbs.QP // in each shard
	for range 4 {
		qa, qb := connect(e, e, verbs.QPTypeRC, nil)
		qps = append(qps, qa, qb)
	}
	for _, qp := range qps {
		must(t, qp.PostRecv(recv(e, 1, 2000)))
	}
	for _, qp := range qps {
		must(t, qp.PostSend(send(e, 1000)))
	}
	e.good(2 * len(qps))
	var more []string
	for fd, what := range openFiles(t) {
		if before[fd] != what {
			more = append(more, what)
		}
	}
	if len(more) < 20 || len(more) > 33 {
		t.Errorf("%d descriptors for a device of one address, must be 20 to 33: %q", len(more), more)
	}
}
