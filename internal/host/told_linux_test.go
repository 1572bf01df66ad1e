package host

import (
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/fdset"
)

// TestEndOfServeIsTold checks that a member learns that verbena serve has ended, and that one that does not ask for it
// goes on.
func TestEndOfServeIsTold(t *testing.T) {
	key, s, _ := testServer(t)
	lost := make(chan error, 1)
	for _, f := range []func(error){func(err error) { lost <- err }, nil} {
		g, err := Join(key, Config{Open: opener(key), RecvBuffer: 1 << 20, Deliver: func(Mail) {}, Lost: f})
		if err != nil {
			t.Fatal(err)
		}
		g.Start()
		t.Cleanup(g.Close)
	}
	s.Close()
	select {
	case err := <-lost:
		if !errors.Is(err, unix.ENETDOWN) {
			t.Errorf("%v, want ENETDOWN", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the member does not learn it")
	}
}

// TestTimeoutsOfRequests checks which errors of a connection are time-outs: after others the leader has ended.
func TestTimeoutsOfRequests(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{&net.OpError{Op: "write", Err: os.ErrDeadlineExceeded}, true}, {fmt.Errorf("x: %w", os.ErrDeadlineExceeded), true},
		{&net.OpError{Op: "write", Err: os.NewSyscallError("sendmsg", unix.EPIPE)}, false}, {unix.EPIPE, false},
		{errors.New("x"), false}, {nil, false},
	} {
		if got := isTimeout(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}

// TestBuffersWithoutTheRight checks that a process without the right to exceed the limit of the system gets the buffer
// that it asks for below that limit.
func TestBuffersWithoutTheRight(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	size := func(want int) {
		t.Helper()
		if n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF); n != want || err != nil {
			t.Errorf("%d bytes, %v, want %d", n, err, want)
		}
	}
	setBuffer(fd, 20<<10)
	size(20 << 10)
	asUser(t, stranger, func() {
		setBuffer(fd, 16<<10)
		size(16 << 10)
	})
}

// TestForwardOfTheOwnSlot checks that a leader keeps the packets of its own slots, the first one too, and drops those
// of nobody.
func TestForwardOfTheOwnSlot(t *testing.T) {
	_, g := testLeader(t)
	g.claim(t, 0)
	if g.Forward(forSlot(0, 64)) {
		t.Error("a packet for the own slot is forwarded")
	}
	other := testMember(t, g.key)
	other.claim(t, 1)
	if m := forSlot(1, 64); !g.Forward(m) {
		t.Error("the leader keeps a packet of another process")
	} else if got := <-other.mail; string(got.Packet) != string(m.Packet) {
		t.Errorf("%x came, want %x", got.Packet, m.Packet)
	}
	if foreign, drop := other.Screen(make([]byte, 256)); foreign || drop {
		t.Errorf("a process that does not lead screens: %v, %v", foreign, drop)
	}
}

// TestRightsBesideOtherMessages checks that descriptors are found behind a control message of another kind.
func TestRightsBesideOtherMessages(t *testing.T) {
	fd, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	oob := unix.UnixCredentials(&unix.Ucred{Pid: 1})
	oob = append(oob, unix.UnixRights(fd)...)
	fds, err := rights(oob)
	if err != nil || len(fds) != 1 {
		unix.Close(fd)
		t.Fatalf("%v, %v", fds, err)
	}
	closeFDs(fds)
	if fds, err := rights(nil); err != nil || len(fds) != 0 {
		t.Errorf("no message: %v, %v", fds, err)
	}
}

// TestSignIsKnown checks that a forked child closes the sign of verbena serve, and that programs see the sign.
func TestSignIsKnown(t *testing.T) {
	key := ownKey()
	if key.servedElsewhere() {
		t.Fatal("the address is served")
	}
	before := fdset.Descriptors()
	c := key.putSign()
	if c == nil {
		t.Fatal("no sign")
	}
	defer c.Close()
	if n := len(fdset.Descriptors()); n != len(before)+1 {
		t.Errorf("%d descriptors are known, %d before", n, len(before))
	}
	if !key.servedElsewhere() {
		t.Error("the sign is not seen")
	}
	if second := key.putSign(); second != nil {
		second.Close()
		t.Error("two signs of an address")
	}
}
