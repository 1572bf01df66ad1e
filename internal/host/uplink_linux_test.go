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

// listens claims a service ID and returns the result.
func listens(r *remote, id uint64) <-chan error {
	done := make(chan error, 1)
	go func() {
		f, _, err := r.do(frame{kind: kindListen, id: id, slot: -1})
		if err == nil && f.id != id {
			err = errors.New("the reply to another request")
		}
		done <- err
	}()
	return done
}

// TestTimedOutRequestsAreRevoked checks that a stopped leader that continues does not keep the claims of requests that
// have timed out.
func TestTimedOutRequestsAreRevoked(t *testing.T) {
	member, leader := connPair(t)
	r := newRemote(Key{}, member, &unix.Ucred{}, func(Mail) {})
	defer r.close()
	r.limit = 200 * time.Millisecond // it also limits the write, which must succeed on a busy machine
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
	done := listens(r, 78)
	f := next()
	answer(frame{kind: kindReply, slot: 9, seq: unawaited})
	answer(frame{kind: kindReply, slot: -1, id: f.id, seq: f.seq})
	answer(frame{kind: kindReply, slot: 9, seq: unawaited})
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// null returns n descriptors.
func null(t *testing.T, n int) (fds []int) {
	t.Helper()
	for range n {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
	}
	return fds
}

// sendTo sends a message with descriptors, which it closes.
func sendTo(t *testing.T, c *net.UnixConn, b []byte, fds []int) {
	t.Helper()
	if _, _, err := c.WriteMsgUnix(b, rightsOf(fds), nil); err != nil {
		t.Fatal(err)
	}
	closeFDs(fds)
}

// TestMemberKeepsNoDescriptors checks that a member closes the descriptors that come with anything but the reply that
// it waits for.
func TestMemberKeepsNoDescriptors(t *testing.T) {
	mail := forSlot(7, 64)
	for name, b := range map[string][]byte{
		"mail": mail.bytes(), "no reply": (&frame{kind: kindClaim, slot: -1}).bytes(), "no frame": {1, 2, 3},
		"unawaited": (&frame{kind: kindReply, slot: -1, seq: unawaited}).bytes(),
		"too late":  (&frame{kind: kindReply, slot: 9, seq: 1}).bytes(),
		"not read":  (&frame{kind: kindReply, slot: 9, seq: 2}).bytes(),
	} {
		member, leader := connPair(t)
		before := descriptors(t)
		got := make(chan Mail, 1)
		r := newRemote(Key{}, member, &unix.Ucred{}, func(m Mail) { got <- m })
		r.expired.Store(1)
		sendTo(t, leader, b, null(t, 3))
		leader.Close() // after what was sent
		<-r.over
		if len(got) != 0 != (name == "mail") {
			t.Errorf("%s: %d packets were delivered", name, len(got))
		}
		r.close()
		if n := descriptors(t); n > before-2 { // without the connection
			t.Errorf("%s: %d descriptors, %d before", name, n, before)
		}
	}
}

// TestLateReplyReleasesOnlyAClaim checks that a member that gets the reply to a request that has timed out releases the
// slot of a claim, and no slot that such a reply only names: the process may own it.
func TestLateReplyReleasesOnlyAClaim(t *testing.T) {
	for _, c := range []struct {
		name  string
		reply frame
		fds   int
		want  bool
	}{
		{"a claim", frame{slot: 9}, 1, true},
		{"a claim of slot 0", frame{slot: 0}, 1, true},
		{"a release", frame{slot: 9}, 0, false},
		{"a refused claim", frame{slot: 9, errno: unix.EADDRINUSE}, 1, false},
		{"a service ID", frame{slot: -1}, 1, false},
	} {
		member, leader := connPair(t)
		got := make(chan Mail, 1)
		r := newRemote(Key{}, member, &unix.Ucred{}, func(m Mail) { got <- m })
		r.expired.Store(5)
		c.reply.kind, c.reply.seq = kindReply, 5
		sendTo(t, leader, c.reply.bytes(), null(t, c.fds))
		mail := forSlot(7, 64)
		sendTo(t, leader, mail.bytes(), nil)
		<-got // it has read the reply before
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _, _ = r.do(frame{kind: kindListen, id: 1, slot: -1})
		}()
		first := answerOne(t, leader, frame{slot: -1}, nil)
		if released := first.kind == kindRelease; released != c.want || !released && first.kind != kindListen ||
			released && (first.slot != c.reply.slot || first.seq != unawaited) {
			t.Errorf("%s: %+v", c.name, first)
		}
		leader.Close()
		<-done
		r.close()
	}
}

// TestLastWordOfALeader checks that a reply that precedes the end of the connection is the answer: it can say why.
func TestLastWordOfALeader(t *testing.T) {
	member, leader := connPair(t)
	r := newRemote(Key{}, member, &unix.Ucred{}, func(Mail) {})
	defer r.close()
	sendTo(t, leader, (&frame{kind: kindReply, slot: -1, errno: unix.EMFILE}).bytes(), nil)
	leader.Close()
	<-r.over
	if f, _, err := r.do(frame{kind: kindJoin, slot: -1}); err != nil || f.errno != unix.EMFILE {
		t.Errorf("%+v, %v", f, err)
	}
	if _, _, err := r.do(frame{kind: kindJoin, slot: -1}); !errors.Is(err, errEnded) {
		t.Errorf("without a reply: %v", err)
	}
}

// TestAnswerOfAnEarlierRequest checks that the reply to an earlier claim that comes first is not taken for that to the
// present request, and that its slot is released.
func TestAnswerOfAnEarlierRequest(t *testing.T) {
	member, leader := connPair(t)
	r := newRemote(Key{}, member, &unix.Ucred{}, func(Mail) {})
	defer r.close()
	r.seq = 5
	before := descriptors(t)
	r.replies <- answer{f: frame{kind: kindReply, slot: 9, seq: 3}, fds: null(t, 1)}
	done := listens(r, 7)
	if f := answerOne(t, leader, frame{slot: -1, id: 7}, nil); f.kind != kindListen || f.seq != 6 {
		t.Errorf("%+v", f)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if f := answerOne(t, leader, frame{slot: -1}, nil); f.kind != kindRelease || f.slot != 9 {
		t.Errorf("%+v, want the release of slot 9", f)
	}
	if n := descriptors(t); n > before {
		t.Errorf("%d descriptors, %d before", n, before)
	}
}

// TestNoDescriptorForAnAnswer checks that a process that has no descriptor left for the sockets of an answer says so,
// and does not keep the slot.
func TestNoDescriptorForAnAnswer(t *testing.T) {
	member, leader := connPair(t)
	r := newRemote(Key{}, member, &unix.Ucred{}, func(Mail) {})
	defer r.close()
	sockets := null(t, 2)
	defer closeFDs(sockets)
	_ = leader.SetDeadline(time.Now().Add(10 * time.Second))
	for _, c := range []struct {
		ask   frame
		slot  int // of the answer
		fds   []int
		after kind // what the leader is told
	}{
		{frame{kind: kindClaim, slot: -1}, 9, sockets[:1], kindRelease},
		{frame{kind: kindJoin, id: version, slot: -1}, -1, sockets, 0},
	} {
		done := make(chan error, 1)
		go func() {
			_, fds, err := r.do(c.ask)
			dropFDs(fds)
			done <- err
		}()
		b := make([]byte, maxFrame)
		n, err := leader.Read(b)
		f, ok := parseFrame(b[:n])
		if err != nil || !ok || f.kind != c.ask.kind {
			t.Fatalf("%x, %v", b[:n], err)
		}
		t.Run(string(rune(f.kind)), func(t *testing.T) {
			withoutDescriptors(t, 0)
			reply := frame{kind: kindReply, slot: c.slot, seq: f.seq}
			if _, _, err := leader.WriteMsgUnix(reply.bytes(), rightsOf(c.fds), nil); err != nil {
				t.Fatal(err)
			}
			if err := <-done; !errors.Is(err, unix.EMFILE) {
				t.Errorf("%v, want EMFILE", err)
			}
		})
		if c.after == 0 {
			continue
		}
		_ = leader.SetReadDeadline(time.Now().Add(time.Second))
		n, err = leader.Read(b)
		if f, ok := parseFrame(b[:n]); err != nil || !ok || f.kind != c.after || f.slot != c.slot {
			t.Errorf("%x, %v: must be the release of slot %d", b[:n], err, c.slot)
		}
	}
}
