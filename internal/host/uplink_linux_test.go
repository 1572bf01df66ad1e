package host

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// connPair returns both ends of a connection as between a member and its leader.
func connPair(t *testing.T) (member, leader *net.UnixConn) {
	t.Helper()
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range p {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		ends[i] = c.(*net.UnixConn)
	}
	return ends[0], ends[1]
}

// TestTimedOutRequestsAreRevoked checks that a stopped leader that continues does not keep the claims of requests that
// have timed out.
func TestTimedOutRequestsAreRevoked(t *testing.T) {
	member, leader := connPair(t)
	r := newRemote(Key{}, member, &unix.Ucred{}, func(Mail) {})
	defer r.close()
	r.limit = time.Millisecond
	group := netip.MustParseAddr("ff02::77")
	for _, f := range []frame{
		{kind: kindClaim, slot: -1}, {kind: kindListen, id: 77, slot: -1}, {kind: kindEnter, addr: group, slot: -1},
	} {
		if _, _, err := r.do(f); !errors.Is(err, unix.ETIMEDOUT) {
			t.Fatalf("%c: %v", f.kind, err)
		}
	}
	_ = leader.SetDeadline(time.Now().Add(10 * time.Second))
	next := func() frame {
		t.Helper()
		b := make([]byte, maxFrame)
		n, err := leader.Read(b)
		f, ok := parseFrame(b[:n])
		if err != nil || !ok {
			t.Fatalf("%x, %v", b[:n], err)
		}
		return f
	}
	answer := func(f frame, fds ...int) {
		t.Helper()
		if _, _, err := leader.WriteMsgUnix(f.bytes(), rightsOf(fds), nil); err != nil {
			t.Fatal(err)
		}
	}
	claim := next()
	for _, want := range []kind{kindListen, kindUnlisten, kindEnter, kindLeave} {
		f := next()
		if f.kind != want || want == kindUnlisten && f.id != 77 || want == kindLeave && f.addr != group {
			t.Fatalf("%+v, want %c", f, want)
		}
		answer(frame{kind: kindReply, slot: -1, seq: f.seq})
	}
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(null)
	answer(frame{kind: kindReply, slot: 9, seq: claim.seq}, null)
	if f := next(); f.kind != kindRelease || f.slot != 9 {
		t.Errorf("%+v, want the release of slot 9", f)
	}
	r.limit = 10 * time.Second
	done := make(chan error, 1)
	go func() {
		f, _, err := r.do(frame{kind: kindListen, id: 78, slot: -1})
		if err == nil && f.id != 78 {
			err = errors.New("a reply to another request")
		}
		done <- err
	}()
	f := next()
	answer(frame{kind: kindReply, slot: 9, seq: unawaited})
	answer(frame{kind: kindReply, slot: -1, id: f.id, seq: f.seq})
	answer(frame{kind: kindReply, slot: 9, seq: unawaited})
	if err := <-done; err != nil {
		t.Error(err)
	}
}
