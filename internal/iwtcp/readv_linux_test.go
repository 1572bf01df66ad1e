package iwtcp

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestReadIntoTwoPlaces checks that one call reads a payload to its place and what follows behind it, and that the end
// and an empty socket are told apart.
func TestReadIntoTwoPlaces(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[1])
	if _, err := unix.Write(fds[0], []byte("payload+header+more")); err != nil {
		t.Fatal(err)
	}
	place, buf := make([]byte, 8), make([]byte, 7)
	for _, want := range []string{"payload+header+", "more"} {
		n, err := readv(fds[1], place, buf)
		if got := string(append(place[:min(n, 8):8], buf[:max(n-8, 0)]...)); err != nil || got != want {
			t.Errorf("read %q, %v; want %q", got, err, want)
		}
	}
	if n, err := readv(fds[1], place, buf); n != 0 || err != unix.EAGAIN {
		t.Errorf("an empty socket: %d bytes, %v; want EAGAIN", n, err)
	}
	unix.Close(fds[0])
	if n, err := readv(fds[1], place, buf); n != 0 || err != nil {
		t.Errorf("after the end: %d bytes, %v; want 0", n, err)
	}
}
