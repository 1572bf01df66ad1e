package host

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/environ"
	"github.com/verbena-rdma/verbena/internal/peeruser"
)

const stranger = 54321 // a user that does not exist

// serveDir makes the directories of verbena serve at a key, which it opens to all users.
func serveDir(t *testing.T, key Key) (run, folder string) {
	t.Helper()
	base := t.TempDir()
	// Other users must reach it.
	for dir := base; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run = filepath.Join(base, "run")
	t.Setenv(envRun, run)
	name, err := key.folder()
	if err != nil {
		t.Skip(err)
	}
	folder = filepath.Join(run, name)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	return run, folder
}

// serveSocket makes the socket of verbena serve in a directory.
func serveSocket(t *testing.T, folder string) *net.UnixListener {
	t.Helper()
	dir, err := os.Open(folder) // the path may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	s := &Server{dir: int(dir.Fd())}
	if err := s.listen(Sharing{Mode: 0o777, UID: -1, GID: -1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.ln.Close() })
	return s.ln.UnixListener
}

// asUser runs f on a thread of another user, without rights.
func asUser(t *testing.T, uid int, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("this test needs root")
	}
	environ.Elevated() // finds out once what the process is: not on the thread of another user
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		const keep = ^uintptr(0)
		_, _, e1 := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0)
		_, _, e2 := unix.RawSyscall(unix.SYS_SETRESGID, keep, uintptr(uid), keep)
		_, _, e3 := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(uid), keep)
		if e1|e2|e3 != 0 {
			done <- e1 | e2 | e3
			return
		}
		f()
		done <- nil
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestNoServe checks that a process goes on without verbena serve if there is none at its address, or it has ended.
func TestNoServe(t *testing.T) {
	key := ownKey()
	run, folder := serveDir(t, key)
	none := func(what string) {
		t.Helper()
		if c, _, err := key.dialServe(); c != nil || err != nil {
			t.Errorf("%s: %v, %v", what, c, err)
		}
	}
	none("no socket")
	ln := serveSocket(t, folder)
	c, cred, err := key.dialServe()
	if err != nil || c == nil || int(cred.Pid) != os.Getpid() {
		t.Fatalf("%v, %v, %v", c, cred, err)
	}
	c.Close()
	ln.Close()
	none("a socket that nobody listens at")
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	none("no directory")
	if err := os.Remove(run); err != nil {
		t.Fatal(err)
	}
	none("no directory of verbena serve")
}

// TestForgedServe checks that a process does not connect to a socket in a directory that others than root and the user
// of verbena serve can change.
func TestForgedServe(t *testing.T) {
	key := ownKey()
	run, folder := serveDir(t, key)
	serveSocket(t, folder)
	refused := func(what string, want string) {
		t.Helper()
		c, _, err := key.dialServe()
		if c != nil || !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v, want EPERM", what, c, err)
		}
	}
	chmod := func(name string, mode os.FileMode) {
		t.Helper()
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{run, folder} {
		for _, mode := range []os.FileMode{0o775, 0o757} {
			chmod(dir, mode)
			refused(dir, "must not be writable by others than its owner")
		}
		chmod(dir, 0o755)
	}
	link := filepath.Join(filepath.Dir(run), "link")
	if err := os.Symlink(run, link); err != nil {
		t.Fatal(err)
	}
	t.Setenv(envRun, link)
	if c, _, err := key.dialServe(); c != nil || err == nil {
		t.Error("a symbolic link is followed")
	}
	t.Setenv(envRun, run)
	before := descriptors(t)
	if os.Geteuid() != 0 {
		t.Skip("the rest needs root")
	}
	chown := func(name string, uid int) {
		t.Helper()
		if err := os.Chown(name, uid, 0); err != nil {
			t.Fatal(err)
		}
	}
	connects := func(what string) {
		t.Helper()
		c, _, err := key.dialServe()
		if err != nil || c == nil {
			t.Fatalf("%s: %v, %v", what, c, err)
		}
		c.Close()
	}
	connects("root's directories")
	chown(folder, stranger)
	connects("the directory of another user, where root listens")
	chown(run, stranger)
	connects("both directories of one user")
	chown(folder, 0)
	refused("a directory of another user that holds root's", "remove one of them, or set "+envRun)
	asUser(t, stranger, func() {
		if c, _, err := key.dialServe(); err != nil || c == nil {
			t.Errorf("the user's own directory: %v, %v", c, err)
		} else {
			c.Close()
		}
	})
	chown(run, 0)
	if n := descriptors(t); n > before {
		t.Errorf("%d descriptors, %d before", n, before)
	}
}

// TestForgedListener checks that a process does not talk to a socket of verbena serve at which another user listens.
func TestForgedListener(t *testing.T) {
	key := ownKey()
	_, folder := serveDir(t, key)
	if os.Geteuid() == 0 {
		if err := os.Chown(folder, stranger, 0); err != nil {
			t.Fatal(err)
		}
	}
	asUser(t, stranger, func() { serveSocket(t, folder) })
	c, _, err := key.dialServe()
	if err != nil || c == nil {
		t.Fatalf("the owner of the directory listens: %v, %v", c, err)
	}
	c.Close()
	if err := os.Chown(folder, 0, 0); err != nil {
		t.Fatal(err)
	}
	c, _, err = key.dialServe()
	if c != nil || !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "is of user 54321: must be root's") {
		t.Errorf("another user listens: %v, %v, want EPERM", c, err)
	}
}

// TestNotAdmitted checks what a user whom verbena serve does not admit is told.
func TestNotAdmitted(t *testing.T) {
	key := ownKey()
	_, folder := serveDir(t, key)
	serveSocket(t, folder)
	if err := os.Chmod(folder, 0o710); err != nil {
		t.Fatal(err)
	}
	asUser(t, stranger, func() {
		c, _, err := key.dialServe()
		var not *NotAdmittedError
		if c != nil || !errors.As(err, &not) || not.Group != groupName(0) || !errors.Is(err, unix.EACCES) {
			t.Errorf("%v, %v", c, err)
		}
	})
	for mode, want := range map[uint32]string{0o710: groupName(0), 0o711: groupName(0), 0o701: "", 0o700: ""} {
		err := key.notAdmitted("/run/x", &unix.Stat_t{Mode: mode})
		var not *NotAdmittedError
		if !errors.As(err, &not) || not.Group != want || strings.Contains(err.Error(), "(group ") != (want != "") ||
			!strings.Contains(err.Error(), "among those that /run/x admits") {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
	if got := groupName(stranger); got != "54321" {
		t.Errorf("a group without a name: %q", got)
	}
	if got := userName(stranger); got != "54321" {
		t.Errorf("a user without a name: %q", got)
	}
}

// TestLeaderOfAnotherUser checks that a process neither joins the group of another user nor lets one join its own.
func TestLeaderOfAnotherUser(t *testing.T) {
	t.Setenv(envRun, filepath.Join(t.TempDir(), "none"))
	key := ownKey()
	leader := testMember(t, key)
	<-leader.led
	asUser(t, stranger, func() {
		c, _, err := key.dial()
		if c != nil || !errors.Is(err, errOtherUser) || !errors.Is(err, syscall.EACCES) {
			t.Errorf("%v, %v, want the error of another user", c, err)
		}
		raw, err := net.DialUnix(seqpacket, nil, &net.UnixAddr{Name: key.name(), Net: seqpacket})
		if err != nil {
			t.Error(err)
			return
		}
		defer raw.Close()
		_, _ = raw.Write((&frame{kind: kindJoin, id: version, slot: -1}).bytes()) // it may be closed already
		if n, err := raw.Read(make([]byte, maxFrame)); n > 0 || err == nil {
			t.Errorf("the leader answers another user: %d bytes", n)
		}
	})
	if !peeruser.Own(&unix.Ucred{Pid: int32(os.Getpid()), Uid: uint32(os.Geteuid())}) {
		t.Error("this process is of another user")
	}
}

// TestRunDir checks the place of the directories, which the documents name.
func TestRunDir(t *testing.T) {
	t.Setenv(envRun, "")
	if got := RunDir(); got != "/run/verbena" {
		t.Errorf("%q", got)
	}
	t.Setenv(envRun, "/elsewhere")
	if got := RunDir(); got != "/elsewhere" {
		t.Errorf("%q", got)
	}
	a := Key{Port: 4791, Addr: netip.MustParseAddr("fe80::1"), Zone: 2}
	names := map[string]bool{}
	for _, k := range []Key{a, {4792, a.Addr, 2}, {4791, a.Addr, 3}, {4791, netip.MustParseAddr("fe80::2"), 2}} {
		name, err := k.folder()
		if err != nil || !isFolder(name) {
			t.Errorf("%q, %v", name, err)
		}
		names[name], names[k.name()] = true, true
	}
	if len(names) != 8 {
		t.Errorf("keys share names: %v", names)
	}
}

// TestServeRefusesForeignDirectories checks that verbena serve does not use a directory that another user can change.
func TestServeRefusesForeignDirectories(t *testing.T) {
	key := ownKey()
	run, folder := serveDir(t, key)
	serve := func(what, want string, is error, with Sharing) {
		t.Helper()
		s, err := Serve(key, Config{Open: opener(key), RecvBuffer: 1 << 16}, with)
		if err == nil {
			s.Close()
		}
		if is == nil && err != nil || is != nil && (!errors.Is(err, is) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %v", what, err, is)
		}
	}
	me := Sharing{Mode: 0o700, UID: -1, GID: -1}
	if err := os.Chmod(run, 0o775); err != nil {
		t.Fatal(err)
	}
	serve("a directory that others can write to", "must not be writable", unix.EPERM, me)
	if err := os.Chmod(run, 0o755); err != nil {
		t.Fatal(err)
	}
	before := descriptors(t)
	taken := func(bool) (int, error) { return -1, unix.EADDRINUSE }
	if s, err := Serve(key, Config{Open: taken}, me); !errors.Is(err, unix.EADDRINUSE) || s != nil {
		t.Errorf("without the port: %v, want EADDRINUSE", err)
	}
	if _, err := os.Stat(folder); err == nil {
		t.Error("a directory is left without verbena serve")
	}
	if n := descriptors(t); n > before {
		t.Errorf("%d descriptors, %d before", n, before)
	}
	if os.Geteuid() != 0 {
		t.Skip("the rest needs root")
	}
	own := func(name string, uid int) {
		t.Helper()
		if err := os.MkdirAll(name, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(name, uid, 0); err != nil {
			t.Fatal(err)
		}
	}
	own(run, stranger)
	serve("the directory of another user", "is of user 54321: must be root's or this user's", unix.EPERM, me)
	own(run, 0)
	own(folder, stranger)
	serve("a directory of another user in it", "is of user 54321: must be root's or this user's; remove it", unix.EPERM,
		me)
	own(folder, stranger)
	serve("the directory of the user that it changes to", "", nil, Sharing{Mode: 0o700, UID: stranger, GID: -1})
}

// TestOneServe checks that a second verbena serve at an address says who has it, and leaves that one alone.
func TestOneServe(t *testing.T) {
	key, s, _ := testServer(t)
	_, err := Serve(key, Config{Open: opener(key), RecvBuffer: 1 << 16}, Sharing{Mode: 0o700, UID: -1, GID: -1})
	if !errors.Is(err, unix.EADDRINUSE) || !strings.Contains(err.Error(), "another verbena serve shares") {
		t.Errorf("%v, want EADDRINUSE", err)
	}
	newHostile(t, key) // is admitted
	a := netip.MustParseAddr("ff02::77")
	member := testMember(t, key)
	if err := member.Enter(a); err != nil {
		t.Fatal(err)
	}
	if got := s.Multicast(); len(got) != 1 || got[0] != a {
		t.Errorf("groups %v", got)
	}
	if !s.Forward(toGroup(a)) {
		t.Error("verbena serve keeps a packet of a group")
	}
	if m := member.receives(t); m.Dst != a {
		t.Errorf("%+v", m)
	}
	if s.Forward(forSlot(200, 64)) {
		t.Error("a packet without a destination is forwarded")
	}
	slot := member.claim(t, -1)
	s.Forward(Mail{Packet: append(forSlot(slot.N, 64).Packet, make([]byte, maxFrame)...)})
	if n := s.MailDropped(); n != 1 {
		t.Errorf("%d packets were dropped, want one that is too long", n)
	}
}
