package host

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/fdset"
)

func inode(t *testing.T, fd int) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

// socketsOfChunk returns as many sockets as a vault takes at once.
func socketsOfChunk(t *testing.T) (fds []int) {
	t.Helper()
	for range chunk {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
	}
	return fds
}

// TestVault checks that sockets stay in a vault, in order, whichever process added or peeked at them.
func TestVault(t *testing.T) {
	v, err := newVault()
	if err != nil {
		t.Fatal(err)
	}
	defer v.close()
	var want []uint64
	before := descriptors(t)
	for range sockets / chunk {
		fds := socketsOfChunk(t)
		for _, fd := range fds {
			want = append(want, inode(t, fd))
		}
		if err := v.add(fds); err != nil {
			t.Fatal(err)
		}
	}
	fd, err := unix.FcntlInt(uintptr(v.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	next, err := openVault(fd)
	if err != nil || next.count() != len(want) {
		t.Fatalf("%d sockets, %v", next.count(), err)
	}
	for _, w := range []*vault{v, next, v} {
		for first := len(want) - chunk; first >= 0; first -= chunk {
			if err := w.use(first, func(fds []int) {
				for i, fd := range fds {
					if got := inode(t, fd); got != want[first+i] {
						t.Fatalf("socket %d is another one", first+i)
					}
				}
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	next.close()
	if got := descriptors(t); got > before {
		t.Errorf("%d descriptors, %d before", got, before)
	}
	if v.use(len(want), func([]int) {}) == nil {
		t.Error("there are more")
	}
}

// TestVaultRefusesSockets checks that sockets that a vault cannot keep are not counted, and are closed.
func TestVaultRefusesSockets(t *testing.T) {
	v, err := newVault()
	if err != nil {
		t.Fatal(err)
	}
	defer v.close()
	const most = 253 // of one message: SCM_MAX_FD of the kernel
	before := descriptors(t)
	if err := v.add(null(t, most+1)); err == nil || v.count() != 0 {
		t.Errorf("%d sockets, %v", v.count(), err)
	}
	if n := descriptors(t); n > before {
		t.Errorf("%d descriptors, %d before", n, before)
	}
	for _, first := range []int{-1, 0} {
		if err := v.use(first, func([]int) { t.Error("there are sockets") }); err != unix.EINVAL {
			t.Errorf("from %d on: %v, want EINVAL", first, err)
		}
	}
	fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := openVault(fd); err == nil {
		t.Error("a descriptor of something else is a vault")
	}
}

// TestLocksEndWithTheLastLink checks that the locks of a process end with its last link, and their descriptors too.
func TestLocksEndWithTheLastLink(t *testing.T) {
	lk := &foreignLocks{}
	before := descriptors(t)
	a := lk.locks(t)
	second, err := unix.FcntlInt(uintptr(a.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := openLocks(second)
	if err != nil || b != a {
		t.Fatalf("%p instead of %p, %v", b, a, err)
	}
	if !a.lock(7) {
		t.Fatal("not locked")
	}
	other := func() bool { // locks as another process does
		l := unix.Flock_t{Type: unix.F_WRLCK, Start: 7, Len: 1}
		return unix.FcntlFlock(uintptr(lk.fd), unix.F_OFD_SETLK, &l) == nil
	}
	b.close()
	if other() {
		t.Error("the lock has ended with another link")
	}
	locksMu.Lock()
	a.refs++ // for the close of the end of the test
	locksMu.Unlock()
	a.close()
	a.close()
	if !other() {
		t.Error("the lock has not ended with the last link")
	}
	locksMu.Lock()
	_, listed := allLocks[a.key]
	a.refs, a.fds = 1, nil
	locksMu.Unlock()
	if n := descriptors(t); listed || n > before+1 { // lk.fd
		t.Errorf("listed: %v; %d descriptors, %d before", listed, n, before)
	}
}

// TestLocks checks that a lock belongs to one link and ends with it, and not before, although descriptors of the
// memory are opened and closed.
func TestLocks(t *testing.T) {
	fd, err := createWills(1)
	if err != nil {
		t.Fatal(err)
	}
	dup := func() int {
		d, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	second, third := dup(), dup()
	a, err := openLocks(fd)
	if err != nil {
		t.Fatal(err)
	}
	b, err := openLocks(second)
	if err != nil {
		t.Fatal(err)
	}
	if !a.lock(3) || b.lock(3) || a.lock(3) || !b.taken(3) {
		t.Error("two links have the same lock")
	}
	dropFDs([]int{third})
	b.close()
	if held(t, fd, 3) != os.Getpid() {
		t.Error("a lock was released when another link ended")
	}
	if id := uint64(0x1060000 | 7471); !a.lock(serviceLock(id)) || a.lock(serviceLock(id)) || !a.lock(serviceLock(id+1)) {
		t.Error("service IDs")
	}
	a.unlock(3)
	if pid := held(t, fd, 3); pid != 0 {
		t.Errorf("process %d has a lock that was released", pid)
	}
	if !a.lock(3) {
		t.Error("a released lock cannot be taken")
	}
	a.close()
	if len(allLocks) > 0 {
		t.Log("other tests are running")
	}
}

// held returns the process that has locked a byte and no other one, as another process sees it.
func held(t *testing.T, fd int, at int64) int {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadFile("/proc/locks")
	if err != nil {
		t.Skip(err)
	}
	return lockedBy(string(all), st.Ino, at)
}

// lockedBy finds a lock in /proc/locks: number, kind, mandatory or advisory, mode, process, device and inode, start,
// end.
func lockedBy(all string, ino uint64, at int64) int {
	for _, line := range strings.Split(all, "\n") {
		f := strings.Fields(line)
		if len(f) == 8 && strings.HasSuffix(f[5], fmt.Sprintf(":%d", ino)) && f[6] == fmt.Sprint(at) &&
			f[7] == f[6] {
			pid, _ := strconv.Atoi(f[4])
			return pid
		}
	}
	return 0
}

// TestOpenStore checks that the store of verbena serve keeps the sockets of all chunks until it is closed.
func TestOpenStore(t *testing.T) {
	before := descriptors(t)
	r := &openStore{}
	var want []uint64
	for range chunk + 1 {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, inode(t, fd))
		if err := r.add([]int{fd}); err != nil {
			t.Fatal(err)
		}
	}
	var got []uint64
	for first := 0; first < r.count(); first += chunk {
		if err := r.use(first, func(fds []int) {
			for _, fd := range fds {
				got = append(got, inode(t, fd))
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("sockets %v, want %v", got, want)
	}
	for _, first := range []int{-chunk, len(want)} {
		if r.use(first, func([]int) {}) == nil {
			t.Errorf("there are sockets from %d on", first)
		}
	}
	if r.close(); descriptors(t) > before {
		t.Errorf("%d descriptors, %d before", descriptors(t), before)
	}
}

// TestLocksOutliveASecondLink checks that a process that leaves low numbers to the program keeps its locks when it gets
// the descriptor of their memory once more, for a second link at the address.
func TestLocksOutliveASecondLink(t *testing.T) {
	key, g := testLeader(t)
	s := g.claim(t, -1)
	if err := g.ClaimService(7471); err != nil {
		t.Fatal(err)
	}
	fdset.SetFloor(600)
	defer fdset.SetFloor(0)
	second := testMember(t, key)
	if second.locks != g.locks {
		t.Fatal("two links at one address do not share their locks")
	}
	for _, at := range []int64{int64(s.N), serviceLock(7471)} {
		if pid := held(t, g.locks.fd, at); pid != os.Getpid() {
			t.Errorf("lock %#x belongs to process %d, want %d", at, pid, os.Getpid())
		}
	}
}
