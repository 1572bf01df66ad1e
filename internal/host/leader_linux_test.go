package host

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	calls "github.com/verbena-rdma/verbena/internal/refuse"
)

// TestPacketsArriveAtTheSlot checks that the socket of a slot receives the packets for its QPs while it has an owner,
// and that the next owner receives none of the earlier ones.
func TestPacketsArriveAtTheSlot(t *testing.T) {
	key, leader := testLeader(t)
	member := testMember(t, key)
	c, err := net.Dial("udp4", netip.AddrPortFrom(key.Addr, key.Port).String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	send := func(slot, len int) {
		t.Helper()
		if _, err := c.Write(forSlot(slot, len).Packet); err != nil { // has arrived then: this is the loopback
			t.Fatal(err)
		}
	}
	for i, g := range []*testGroup{leader, member, leader} {
		s := g.claim(t, 5)
		other := g.claim(t, -1)
		send(5, 100+i)
		b := make([]byte, 200)
		if n, _, err := unix.Recvfrom(s.FD, b, unix.MSG_DONTWAIT); err != nil || n != 100+i {
			t.Errorf("owner %d: %d bytes, %v, want %d", i, n, err, 100+i)
		}
		if n, _, err := unix.Recvfrom(other.FD, b, unix.MSG_DONTWAIT); err == nil {
			t.Errorf("owner %d: %d bytes at the socket of another slot", i, n)
		}
		send(5, 150) // not read
		g.Release(5)
		send(5, 160)
		if n, _, err := unix.Recvfrom(s.FD, b, unix.MSG_DONTWAIT); err == nil {
			t.Errorf("owner %d: %d bytes after the release", i, n)
		}
	}
}

// TestRequestsOfMembers checks the leader's replies that members do not look at themselves.
func TestRequestsOfMembers(t *testing.T) {
	key, leader := testLeader(t)
	member := testMember(t, key)
	for n := range memberSlots {
		if got := member.claim(t, -1).N; got != n {
			t.Errorf("slot %d, want %d", got, n)
		}
	}
	if _, err := member.Claim(-1); !errors.Is(err, unix.EUSERS) {
		t.Errorf("one slot too many: %v, want EUSERS", err)
	}
	for slot, want := range map[int]unix.Errno{3: 0, 200: unix.EINVAL} {
		if errno := member.ask(t, frame{kind: kindRelease, slot: slot}); errno != want {
			t.Errorf("release of slot %d: %v, want %v", slot, errno, want)
		}
		if errno := leader.ask(t, frame{kind: kindRelease, slot: 4}); errno != unix.EINVAL {
			t.Errorf("release of a slot of another member: %v, want EINVAL", errno)
		}
	}
	for id, want := range map[uint64]unix.Errno{version: 0, version - 1: unix.EPROTO, version + 1: unix.EPROTO} {
		reply, _, _, err := member.request(frame{kind: kindJoin, id: id, slot: -1, resume: true})
		if err != nil || reply.errno != want || reply.id != version {
			t.Errorf("a member of version %d: %+v, %v, want %v of version %d", id, reply, err, want, version)
		}
	}
}

// TestClosedGroupLeavesNothing checks that groups leave neither descriptors nor mapped memory, whether they led from
// the beginning, took over, or failed.
func TestClosedGroupLeavesNothing(t *testing.T) {
	t.Setenv(envRun, t.TempDir())
	key := ownKey()
	mapped := func() int {
		maps, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Skip(err)
		}
		return strings.Count(string(maps), "verbena-wills")
	}
	other := ownKey()
	<-testMember(t, other).led
	testMember(t, other) // the other leader has its spare descriptor
	before, memory := descriptors(t), mapped()
	first := testMember(t, key)
	second := unstarted(t, key)
	third := testMember(t, key)
	first.claim(t, 1)
	first.NewPlace(peerAddr, 0, 0, 0).Set([]byte("x"))
	for _, g := range []*testGroup{first, second, third} { // each of the others takes over
		s, err := g.Claim(-1)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(s.FD)
		g.Close()
	}
	const claims = 2 // of unstarted and of first, which stay open to the end of the test
	if n := descriptors(t); n > before+claims {
		t.Errorf("%d descriptors, %d before", n-claims, before)
	}
	for _, errno := range []unix.Errno{unix.EMFILE, unix.EACCES} {
		_, err := Join(key, Config{Open: func(bool) (int, error) { return -1, errno }})
		if !errors.Is(err, errno) {
			t.Errorf("%v, want %v", err, errno)
		}
	}
	if n := descriptors(t); n > before+claims {
		t.Errorf("%d descriptors, %d before, after failures", n-claims, before)
	}
	if n := mapped(); n > memory {
		t.Errorf("%d mappings of last wills, %d before", n, memory)
	}
}

// TestRefusedCallsOfTheLeader checks that a process to which the kernel refuses what a leader needs says so.
func TestRefusedCallsOfTheLeader(t *testing.T) {
	t.Setenv(envRun, t.TempDir())
	for name, call := range map[string]uintptr{
		"memfd_create": unix.SYS_MEMFD_CREATE, "socketpair": unix.SYS_SOCKETPAIR, "setsockopt": unix.SYS_SETSOCKOPT,
	} {
		t.Run(name, func(t *testing.T) {
			key := ownKey()
			open := opener(key)
			if err := calls.Thread(unix.EPERM, call); err != nil {
				t.Skip(err)
			}
			before := descriptors(t)
			g, err := Join(key, Config{Open: func(bool) (int, error) { return open(false) }, RecvBuffer: 1 << 16})
			if err == nil {
				g.Close()
			}
			if !errors.Is(err, unix.EPERM) {
				t.Errorf("%v, want EPERM", err)
			}
			if n := descriptors(t); n > before {
				t.Errorf("%d descriptors, %d before", n, before)
			}
		})
	}
}

// TestNoSuchSocket checks that a socket that does not exist is an error and not descriptor 0.
func TestNoSuchSocket(t *testing.T) {
	st := &openStore{}
	l := newLeader(Key{}, &Config{}, st, nil, nil)
	for range 2 {
		fds := null(t, 1)
		if err := st.add(fds); err != nil {
			t.Fatal(err)
		}
	}
	defer st.close()
	for _, i := range []int{2, chunk, chunk + 1} {
		if fd, err := l.duplicate(i); fd != -1 || err == nil {
			t.Errorf("socket %d of 2: descriptor %d, %v", i, fd, err)
		}
	}
	fd, err := l.duplicate(1)
	if err != nil || fd == st.fds[1] {
		t.Fatalf("descriptor %d, %v", fd, err)
	}
	unix.Close(fd)
}

// TestSlotOfADyingProcessIsHeld checks that a slot whose member has left is not free as long as the kernel has not
// released the lock of its process, and is free soon afterwards.
func TestSlotOfADyingProcessIsHeld(t *testing.T) {
	lk := &foreignLocks{}
	l := newLeader(Key{}, &Config{}, &openStore{}, lk.locks(t), nil)
	s := &session{}
	l.mu.Lock()
	l.table.add(s)
	set := func(kind int16, slot int64) {
		t.Helper()
		at := unix.Flock_t{Type: kind, Start: slot, Len: 1}
		if err := unix.FcntlFlock(uintptr(lk.fd), unix.F_OFD_SETLK, &at); err != nil {
			t.Skip(err)
		}
	}
	for _, n := range []int{3, 4} {
		l.table.assign(s, n)
		l.table.unassign(s, n)
	}
	set(unix.F_WRLCK, 3)
	for _, n := range []int{3, 4} {
		l.release(n)
	}
	if !l.table.slots[3].held || l.table.slots[4].held {
		t.Errorf("held: %v, want slot 3, whose owner has a lock; %v, want no slot 4", l.table.slots[3].held,
			l.table.slots[4].held)
	}
	l.mu.Unlock()
	set(unix.F_UNLCK, 3)
	held := func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.table.slots[3].held
	}
	for begin := time.Now(); held(); time.Sleep(time.Millisecond) {
		if time.Since(begin) > 20*time.Second {
			t.Fatal("the slot is held although its owner has ended")
		}
	}
	l.stop()
}

// TestHeldRequestsOfTheLeader checks that requests that were held for another process, whose service ID the leader's
// own process claims, disturb nothing.
func TestHeldRequestsOfTheLeader(t *testing.T) {
	key, leader := testLeader(t)
	member := testMember(t, key)
	slot := member.claim(t, -1).N
	const id = 7471
	leader.leader.mu.Lock()
	leader.leader.held = append(leader.leader.held, heldMail{id, forService(id), time.Now().Add(time.Hour)})
	leader.leader.mu.Unlock()
	if err := leader.ClaimService(id); err != nil {
		t.Fatal(err)
	}
	leader.Forward(forSlot(slot, 64))
	member.receives(t) // mail is sent in order
}

// TestSettlingTime checks that a new leader passes all requests to the socket of QP 1 for the settling time, and then
// those for claimed service IDs.
func TestSettlingTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &openStore{fds: null(t, FirstSlot)}
		defer st.close()
		l := newLeader(Key{}, &Config{}, st, nil, nil)
		s := &session{}
		l.table.add(s)
		l.table.listen(s, 77)
		l.wide = true
		l.filter = l.requests()
		l.done.Go(l.settle)
		time.Sleep(settleTime - time.Nanosecond)
		synctest.Wait()
		l.mu.Lock()
		if !l.wide || !l.filter.equal(allRequests) {
			t.Errorf("before the time: %+v", l.filter)
		}
		l.mu.Unlock()
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		l.mu.Lock()
		if l.wide || !l.filter.equal(newRequestFilter([]uint64{77})) {
			t.Errorf("after the time: %+v", l.filter)
		}
		l.mu.Unlock()
		l.stop()
	})
}

// TestLockedDirectoryIsTheOneOfTheName checks that a directory that was replaced or removed after it was opened is not
// taken for the one of its name.
func TestLockedDirectoryIsTheOneOfTheName(t *testing.T) {
	base := t.TempDir()
	at, err := unix.Open(base, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(at)
	dir, err := makeOpen(at, "x")
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(dir)
	if !lockedHere(dir, at, "x") {
		t.Error("the directory is not that of its name")
	}
	path := filepath.Join(base, "x")
	if err := os.Rename(path, path+"y"); err != nil {
		t.Fatal(err)
	}
	if lockedHere(dir, at, "x") {
		t.Error("a directory that was removed has its name")
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if lockedHere(dir, at, "x") {
		t.Error("a directory that was replaced has its name")
	}
	if again, err := makeOpen(at, "x"); err != nil || !lockedHere(again, at, "x") {
		t.Errorf("the new directory: %v", err)
	} else {
		unix.Close(again)
	}
	if err := os.Symlink(path, filepath.Join(base, "link")); err != nil {
		t.Fatal(err)
	}
	if fd, err := makeOpen(at, "link"); err == nil {
		unix.Close(fd)
		t.Error("a symbolic link is followed")
	}
}

// TestErrnoOfAnError checks that the reply to a request that failed never says success.
func TestErrnoOfAnError(t *testing.T) {
	for _, c := range []struct {
		err  error
		want unix.Errno
	}{
		{unix.EPERM, unix.EPERM}, {os.NewSyscallError("open", unix.EMFILE), unix.EMFILE}, {unix.Errno(0), unix.EIO},
		{errors.New("other"), unix.EIO},
	} {
		if got := errnoOf(c.err); got != c.want || errnoOrZero(c.err) != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
	if errno := errnoOrZero(nil); errno != 0 {
		t.Errorf("no error: %v", errno)
	}
}
