package host

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestInvalidFramesOfALeaderEndTheConnection checks that a member does not go on with a leader that sends something
// else than replies.
func TestInvalidFramesOfALeaderEndTheConnection(t *testing.T) {
	for name, b := range map[string][]byte{
		"no frame":  []byte("no frame"),
		"a request": (&frame{kind: kindJoin, id: version, slot: -1}).bytes(),
	} {
		member, leader := connPair(t)
		r := newRemote(Key{}, member, &unix.Ucred{}, func(Mail) { t.Errorf("%s is a packet", name) })
		sendTo(t, leader, b, null(t, 2))
		select {
		case <-r.over:
		case <-time.After(20 * time.Second):
			t.Errorf("%s: the connection goes on", name)
		}
		r.close()
	}
}

// TestDrainEmptiesASocket checks that no packet of the former owner is left, however many there are and however long.
func TestDrainEmptiesASocket(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer closeFDs(fds[:])
	for n := range 5 {
		if _, err := unix.Write(fds[0], make([]byte, 1000*n)); err != nil {
			t.Fatal(err)
		}
	}
	drain(fds[1])
	if n, _, err := unix.Recvfrom(fds[1], make([]byte, 8), unix.MSG_DONTWAIT); err != unix.EAGAIN {
		t.Errorf("%d bytes, %v after drain; want EAGAIN", n, err)
	}
}

// endsAtExec checks that a program that this process executes does not get a descriptor.
func endsAtExec(t *testing.T, fd int) {
	t.Helper()
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("descriptor %d has flags %#x, %v; want FD_CLOEXEC", fd, flags, err)
	}
}

// TestOnlyDirectoriesAreLocked checks that neither files nor symbolic links are opened for a lock, and that a program
// that this process executes does not get the lock.
func TestOnlyDirectoriesAreLocked(t *testing.T) {
	base := t.TempDir()
	if err := os.Mkdir(filepath.Join(base, "dir"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(base, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("dir", filepath.Join(base, "link")); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Open(base, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(at)
	for name, want := range map[string]bool{"dir": true, "file": false, "link": false, "missing": false} {
		fd, err := openToLock(at, name)
		if (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			continue
		}
		endsAtExec(t, fd)
		unix.Close(fd)
	}
}

// TestSocketsOfAVaultAreNotInherited checks that a program that is executed while the sockets are used gets none.
func TestSocketsOfAVaultAreNotInherited(t *testing.T) {
	v, err := newVault()
	if err != nil {
		t.Fatal(err)
	}
	defer v.close()
	if err := v.add(socketsOfChunk(t)); err != nil {
		t.Fatal(err)
	}
	if err := v.use(0, func(fds []int) {
		for _, fd := range fds {
			endsAtExec(t, fd)
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// TestNamesOfServeDirectories checks which paths are those of a directory of verbena serve for an address.
func TestNamesOfServeDirectories(t *testing.T) {
	at := netip.MustParseAddrPort("127.0.0.1:4791")
	for path, want := range map[string]bool{
		"/run/verbena/4026531840-4791-127.0.0.1-0": true,
		"/other/1-4791-127.0.0.1-0":                true,
		"4026531840-4791-127.0.0.1-0":              false, // a socket's name
		"/run/verbena/x-4791-127.0.0.1-0":          false,
		"/run/verbena/-4791-127.0.0.1-0":           false,
		"/run/verbena/1-4792-127.0.0.1-0":          false,
		"/run/verbena/1-4791-127.0.0.10-0":         false,
	} {
		if got := IsServeDir(path, at); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}
