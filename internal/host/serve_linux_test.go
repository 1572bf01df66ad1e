package host

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// A hostile is a member that sends arbitrary requests to verbena serve.
type hostile struct {
	t *testing.T
	c *net.UnixConn
}

// runDir makes the RunDir of a verbena serve.
func runDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv(envRun, dir)
	return dir
}

// testServer returns verbena serve at an address, and the last wills that it would send.
func testServer(t *testing.T) (Key, *Server, chan []Will) {
	t.Helper()
	runDir(t)
	key := ownKey()
	sent := make(chan []Will, 16)
	s, err := Serve(key, Config{
		Open: opener(key), RecvBuffer: 1 << 20, Deliver: func(Mail) {},
		Send: func(w []Will) { sent <- w }, Lead: func(gsi, strays int) error { closeFDs([]int{gsi, strays}); return nil },
	}, Sharing{Mode: 0o700, GID: -1, UID: -1})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(s.Close)
	return key, s, sent
}

func (h *hostile) ask(f frame) (frame, []int) {
	h.t.Helper()
	if _, err := h.c.Write(f.bytes()); err != nil {
		h.t.Fatal(err)
	}
	buf, oob := make([]byte, maxFrame), make([]byte, unix.CmsgSpace(4*chunk))
	_ = h.c.SetReadDeadline(time.Now().Add(10 * time.Second))
	n, oobn, _, _, err := h.c.ReadMsgUnix(buf, oob)
	if err != nil {
		h.t.Fatal(err)
	}
	fds, err := rights(oob[:oobn])
	if err != nil {
		h.t.Fatal(err)
	}
	r, ok := parseFrame(buf[:n])
	if !ok {
		h.t.Fatalf("reply %x", buf[:n])
	}
	h.t.Cleanup(func() { closeFDs(fds) })
	return r, fds
}

func newHostile(t *testing.T, key Key) (*hostile, []int) {
	t.Helper()
	c, _, err := key.dialServe()
	if err != nil || c == nil {
		t.Fatal(c, err)
	}
	t.Cleanup(func() { c.Close() })
	h := &hostile{t, c}
	r, fds := h.ask(frame{kind: kindJoin, id: version, slot: -1})
	if r.errno != 0 || len(fds) != 1 {
		t.Fatalf("join: %+v, %d descriptors", r, len(fds))
	}
	return h, fds
}

// TestHostileMemberOfServe checks that a member gets its own sockets and memory and nothing else, cannot take the
// claims of another one, and cannot inject packets.
func TestHostileMemberOfServe(t *testing.T) {
	key, s, sent := testServer(t)
	victim := testMember(t, key)
	slot := victim.claim(t, 5)
	if err := victim.ClaimService(77); err != nil {
		t.Fatal(err)
	}
	h, mem := newHostile(t, key)
	if r, fds := h.ask(frame{kind: kindJoin, id: version, slot: -1}); r.errno == 0 || len(fds) > 0 {
		t.Error("a second join returns memory again")
	}
	for _, f := range []frame{
		{kind: kindClaim, slot: slot.N},
		{kind: kindClaim, slot: slot.N, resume: true},
		{kind: kindClaim, slot: slot.N + 1, resume: true},
		{kind: kindRelease, slot: slot.N},
		{kind: kindListen, id: 77, slot: -1},
		{kind: kindListen, id: 77, slot: -1, resume: true},
	} {
		if r, fds := h.ask(f); r.errno == 0 || len(fds) > 0 {
			t.Errorf("%+v is allowed, with %d descriptors", f, len(fds))
		}
	}
	h.ask(frame{kind: kindUnlisten, id: 77, slot: -1})
	s.leader.mu.Lock()
	lost := s.leader.table.services[77] == nil || s.leader.table.slots[slot.N].owner == nil
	s.leader.mu.Unlock()
	if lost {
		t.Fatal("the victim has lost its slot or service ID")
	}
	mail := forSlot(slot.N, 64)
	if _, err := h.c.Write(mail.bytes()); err != nil {
		t.Fatal(err)
	}
	mad := make([]byte, MADOffset+madMinimum)
	wire.BTH(mad).Put(wire.UD|wire.SendOnly, 0, 0xFFFF, wire.GSIQPN, 1, 0)
	mad[MADOffset+MADClass], mad[MADOffset+MADAttr+1], mad[MADOffset+madReqSID+7] = ClassCM, AttrREQ, 77
	if _, err := h.c.Write((&Mail{Packet: mad, Src: peerAddr, Dst: peerAddr}).bytes()); err != nil {
		t.Fatal(err)
	}
	r, fds := h.ask(frame{kind: kindClaim, slot: -1})
	if r.errno != 0 || r.slot == slot.N || len(fds) != 1 {
		t.Fatalf("a slot of its own: %+v, %d descriptors", r, len(fds))
	}
	if len(victim.mail) > 0 {
		t.Errorf("the victim got %+v", <-victim.mail)
	}

	// Only last wills that end a connection of the member are sent.
	w, err := openWills(mem[0], 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []int{slot.N, r.slot} {
		b := make([]byte, MaxWill)
		b[0], b[MADClass], b[MADAttr+1], b[MADLocalID] = 1, ClassCM, attrDREQ, byte(of)
		w.newPlace(0, Will{To: peerAddr}).Set(b)
	}
	h.c.Close()
	select {
	case left := <-sent:
		if len(left) != 1 || left[0].MAD[MADLocalID] != byte(r.slot) {
			t.Errorf("sent: %v", left)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("no last wills were sent")
	}
	w.close()
}

// TestServeKeepsNothingOfMembers checks that the memory and the connection of a member end with it.
func TestServeKeepsNothingOfMembers(t *testing.T) {
	key, s, _ := testServer(t)
	newHostile(t, key) // stays: verbena serve has all of its own descriptors now
	before := descriptors(t)
	for range 3 {
		h, mem := newHostile(t, key)
		closeFDs(mem)
		mem[0] = -1 // the end of the test closes what is left
		h.c.Close()
	}
	for begin := time.Now(); descriptors(t) > before; time.Sleep(time.Millisecond) {
		if time.Since(begin) > 10*time.Second {
			t.Fatalf("%d descriptors, %d before", descriptors(t), before)
		}
	}
	s.leader.mu.Lock()
	defer s.leader.mu.Unlock()
	if n, m := len(s.leader.conns), len(s.leader.table.sessions); n != 1 || m != 1 {
		t.Errorf("%d connections and %d sessions are left, want those of one member", n, m)
	}
}

// TestFloodOfMembers checks that members of another user find room, however many connections and requests a member
// makes. Here the limits are those of one user.
func TestFloodOfMembers(t *testing.T) {
	key, _, _ := testServer(t)
	for i := range userSessions + 8 {
		c, _, err := key.dialServe()
		if err != nil || c == nil {
			t.Fatal(i, err)
		}
		defer c.Close()
		h := &hostile{t, c}
		if r, _ := h.ask(frame{kind: kindJoin, id: version, slot: -1}); (r.errno == unix.EUSERS) != (i >= userSessions) {
			t.Fatalf("member %d: %v", i, r.errno)
		}
	}
}

// stopClock makes time stand still for a server. The test moves it on by the result.
func stopClock(s *Server) *time.Time {
	now := time.Now()
	s.leader.mu.Lock()
	defer s.leader.mu.Unlock()
	s.leader.now = func() time.Time { return now }
	return &now
}

// TestPaceOfAUser checks that the members of one user share the requests that the leader takes, and those of another
// user do not wait for them: each request holds up the mail of all members.
func TestPaceOfAUser(t *testing.T) {
	key, s, _ := testServer(t)
	now := stopClock(s)
	const members = 4
	for range members {
		h, _ := newHostile(t, key) // its first request
		for range burst/members - 1 {
			h.ask(frame{kind: kindUnlisten, id: 5, slot: -1})
		}
	}
	next := &session{of: uint32(os.Geteuid())}
	if d := s.leader.wait(next); d != pace {
		t.Errorf("after the burst of %d members a request waits for %v, want %v", members, d, pace)
	}
	if d := s.leader.wait(&session{of: next.of + 1}); d != 0 {
		t.Errorf("the first request of another user waits for %v", d)
	}
	*now = now.Add((burst + 1) * pace)
	if d := s.leader.wait(next); d != 0 {
		t.Errorf("after a pause a request waits for %v", d)
	}
}

// TestMailCountsAsRequests checks that a member that sends mail, all of which is dropped, waits as for requests.
func TestMailCountsAsRequests(t *testing.T) {
	key, s, _ := testServer(t)
	stopClock(s)
	h, _ := newHostile(t, key) // its first request
	for range burst - 2 {
		if _, err := h.c.Write([]byte{byte(kindMail)}); err != nil {
			t.Fatal(err)
		}
	}
	h.ask(frame{kind: kindUnlisten, id: 5, slot: -1}) // the last one of the burst
	if d := s.leader.wait(&session{uid: uint32(os.Geteuid())}); d != pace {
		t.Errorf("after %d requests and mails the next one waits for %v, want %v", burst, d, pace)
	}
}

// TestLastWillsOfAUser checks that the members of one user do not leave more last wills than are allowed: they take
// memory until they are sent.
func TestLastWillsOfAUser(t *testing.T) {
	key, s, sent := testServer(t)
	const room, wills = 3, 5
	now := stopClock(s)
	s.leader.mu.Lock()
	s.leader.lastWills.acts(uint32(os.Geteuid()), *now, willPace, userWills-room)
	s.leader.mu.Unlock()
	for _, want := range []int{room, 0} {
		h, mem := newHostile(t, key)
		r, _ := h.ask(frame{kind: kindClaim, slot: -1})
		w, err := openWills(mem[0], 1)
		if err != nil || r.errno != 0 {
			t.Fatal(err, r.errno)
		}
		for range wills {
			b := make([]byte, MaxWill)
			b[0], b[MADClass], b[MADAttr+1], b[MADLocalID] = 1, ClassCM, attrDREQ, byte(r.slot)
			w.newPlace(0, Will{To: peerAddr}).Set(b)
		}
		h.c.Close()
		got := 0
		select {
		case left := <-sent:
			got = len(left)
		case <-time.After(map[bool]time.Duration{true: 10 * time.Second, false: 300 * time.Millisecond}[want > 0]):
		}
		if got != want {
			t.Errorf("%d last wills are sent, want %d", got, want)
		}
	}
	s.leader.mu.Lock()
	defer s.leader.mu.Unlock()
	later := now.Add(time.Hour)
	if got := s.leader.lastWills.room(uint32(os.Geteuid()), later, willPace, userWills); got != userWills {
		t.Errorf("later there is room for %d, want %d", got, userWills)
	}
}

// TestUnreadDescriptors checks that a member that reads no replies has few descriptors in its queue, that others can
// claim slots meanwhile, and that it gets its slots when it reads.
func TestUnreadDescriptors(t *testing.T) {
	key, _, _ := testServer(t)
	h, _ := newHostile(t, key)
	const claims = 10
	for n := range claims {
		if _, err := h.c.Write((&frame{kind: kindClaim, slot: n, seq: uint32(n)}).bytes()); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(200 * time.Millisecond)
	other, _ := newHostile(t, key)
	if r, fds := other.ask(frame{kind: kindClaim, slot: claims}); r.errno != 0 || len(fds) != 1 {
		t.Errorf("another member: %v, %d descriptors", r.errno, len(fds))
	}
	raw, err := h.c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	waiting := 0
	if err := raw.Control(func(fd uintptr) { waiting, err = unix.IoctlGetInt(int(fd), unix.SIOCINQ) }); err != nil {
		t.Fatal(err)
	}
	if waiting > frameLen {
		t.Errorf("%d bytes of replies wait, want those of one", waiting)
	}
	buf, oob := make([]byte, maxFrame), make([]byte, unix.CmsgSpace(4*chunk))
	_ = h.c.SetReadDeadline(time.Now().Add(10 * time.Second))
	for n := range claims {
		got, oobn, _, _, err := h.c.ReadMsgUnix(buf, oob)
		if err != nil {
			t.Fatal(err)
		}
		fds, _ := rights(oob[:oobn])
		closeFDs(fds)
		if r, ok := parseFrame(buf[:got]); !ok || r.errno != 0 || r.slot != n || len(fds) != 1 {
			t.Errorf("claim %d: slot %d, %v, %d descriptors", n, r.slot, r.errno, len(fds))
		}
	}
}

// TestFloodOfRejectedMembers checks that connections beyond the limit of a user, each of which would otherwise be open
// until its request has arrived or rejectTimeout has passed, are closed at once if there are many.
func TestFloodOfRejectedMembers(t *testing.T) {
	key, s, _ := testServer(t)
	for range userSessions {
		newHostile(t, key)
	}
	for range maxRejects {
		s.leader.rejects <- struct{}{}
	}
	c, _, err := key.dialServe()
	if err != nil || c == nil {
		t.Fatal(c, err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = c.Write((&frame{kind: kindJoin, id: version, slot: -1}).bytes()) // it may be closed already
	if n, err := c.Read(make([]byte, maxFrame)); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("it is not closed at once: %d bytes, %v", n, err)
	}
}

// TestSlotsOneAfterAnother checks that a member of verbena serve does not get all slots by claiming and releasing one
// after another. The slots that its user has had stay with the user.
func TestSlotsOneAfterAnother(t *testing.T) {
	key, _, _ := testServer(t)
	h, _ := newHostile(t, key)
	for n := range Slots {
		r, _ := h.ask(frame{kind: kindClaim, slot: n})
		want := unix.Errno(0)
		if n >= userSlots {
			want = unix.EDQUOT
		}
		if r.errno != want {
			t.Fatalf("slot %d: %v instead of %v", n, r.errno, want)
		}
		if r.errno == 0 {
			h.ask(frame{kind: kindRelease, slot: n})
		}
	}
	if r, _ := h.ask(frame{kind: kindClaim, slot: -1}); r.errno != 0 || r.slot >= userSlots {
		t.Errorf("any slot: %d, %v", r.slot, r.errno)
	}
}

// TestConfinedAfterFailure checks that the socket of a slot is confined before a member gets it, also if that failed
// when a member claimed the slot before.
func TestConfinedAfterFailure(t *testing.T) {
	key, s, _ := testServer(t)
	h, _ := newHostile(t, key)
	store := s.leader.store.(*openStore)
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(null)
	swap := func(fd int) (was int) {
		s.leader.mu.Lock()
		defer s.leader.mu.Unlock()
		was, store.fds[FirstSlot+5] = store.fds[FirstSlot+5], fd
		return was
	}
	socket := swap(null)
	r, _ := h.ask(frame{kind: kindClaim, slot: 5})
	swap(socket)
	if r.errno != unix.ENOTSOCK {
		t.Fatalf("without a socket: %v", r.errno)
	}
	r, fds := h.ask(frame{kind: kindClaim, slot: 5})
	if r.errno != 0 || len(fds) != 1 {
		t.Fatal(r.errno)
	}
	if locked, err := unix.GetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_LOCK_FILTER); err != nil || locked != 1 {
		t.Errorf("the filter is not locked: %d, %v", locked, err)
	}
}

// TestServeStartsOnce checks that a verbena serve that finds another one leaves the directory of that one, which may
// not have made its socket yet.
func TestServeStartsOnce(t *testing.T) {
	dir := runDir(t)
	key := ownKey()
	first := &Server{run: -1, dir: -1}
	defer first.Close()
	if err := first.makeDir(key, Sharing{UID: -1}); err != nil {
		t.Fatal(err)
	}
	if s, err := Serve(key, Config{Open: opener(key), RecvBuffer: 1 << 16}, Sharing{UID: -1}); err == nil {
		s.Close()
		t.Fatal("a second one starts")
	}
	if _, err := os.Stat(filepath.Join(dir, first.name)); err != nil {
		t.Error(err)
	}
}

// TestServeDirectoryModes checks that only its owner can write to the directory, whatever the mode of the sharing.
func TestServeDirectoryModes(t *testing.T) {
	for mode, want := range map[os.FileMode]os.FileMode{0o700: 0o700, 0o770: 0o710, 0o777: 0o711, 0o750: 0o710} {
		dir := runDir(t)
		key := ownKey()
		s, err := Serve(key, Config{Open: opener(key), RecvBuffer: 1 << 16}, Sharing{Mode: mode, GID: -1, UID: -1})
		if err != nil {
			t.Fatal(err)
		}
		all, _ := filepath.Glob(dir + "/*")
		if st, err := os.Stat(all[0]); err != nil || st.Mode().Perm() != want {
			t.Errorf("mode %o: the directory has %o, %v", mode, st.Mode().Perm(), err)
		}
		s.Close()
	}
}

// TestServeNamesItsDirectory checks that the error of a socket that cannot be made names the directory.
func TestServeNamesItsDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gone")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	t.Setenv(envRun, filepath.Dir(path))
	err = (&Server{dir: int(dir.Fd()), name: "gone"}).listen(Sharing{})
	if want := "socket in " + path + ": "; !errors.Is(err, unix.ENOENT) || !strings.HasPrefix(err.Error(), want) ||
		strings.Contains(err.Error(), "/proc/") {
		t.Errorf("%v, want %s...", err, want)
	}
}

// TestServedElsewhere: a program with another VERBENA_RUN does not wait for verbena serve as for a leader of its user.
func TestServedElsewhere(t *testing.T) {
	dir := runDir(t)
	key := ownKey()
	s, err := Serve(key, Config{Open: opener(key)}, Sharing{Mode: 0o700, GID: -1, UID: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	t.Setenv(envRun, filepath.Join(dir, "other"))
	if key.maybeGroup() {
		t.Error("its sockets seem to be of a group that elects its leader")
	}
	g, err := Join(key, Config{Open: opener(key)})
	if err == nil {
		g.Close()
	}
	if !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("%v, want EADDRINUSE", err)
	}
	s.Close()
	if key.servedElsewhere() {
		t.Error("it has ended, and its sign is there")
	}
}

// TestRelativeRunDirRefused: verbena serve and a program with another working directory would not find each other.
func TestRelativeRunDirRefused(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv(envRun, "relative")
	key := ownKey()
	if s, err := Serve(key, Config{Open: opener(key)}, Sharing{Mode: 0o700, GID: -1, UID: -1}); err == nil {
		s.Close()
		t.Error("verbena serve has taken it")
	} else if !errors.Is(err, unix.EINVAL) {
		t.Errorf("verbena serve: %v", err)
	}
	if _, _, err := key.dialServe(); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a program: %v", err)
	}
	if _, err := os.Stat("relative"); err == nil {
		t.Error("the directory was made")
	}
}

// TestServeRemovesLeftovers checks that verbena serve removes the directories of processes that were killed, of other
// namespaces and addresses too, and neither those that are in use nor anything else.
func TestServeRemovesLeftovers(t *testing.T) {
	dir := runDir(t)
	folder := func(name string, files ...string) string {
		path := filepath.Join(dir, name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if err := os.WriteFile(filepath.Join(path, f), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return path
	}
	gone := []string{folder("4026530000-4791-10.0.0.1-0", socketName), folder("4026530000-4791-fe80::1-2")}
	stay := []string{
		folder("4026530001-4791-10.0.0.1-0", socketName), folder("mine", socketName),
		folder("4026530002-4791-10.0.0.1-0", socketName, "another file"),
	}
	used, err := os.Open(stay[0])
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	if err := unix.Flock(int(used.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	key := ownKey()
	s, err := Serve(key, Config{Open: opener(key), RecvBuffer: 1 << 16}, Sharing{Mode: 0o700, GID: -1, UID: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, path := range gone {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is left", path)
		}
	}
	for _, path := range stay {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(stay[0], socketName)); err != nil {
		t.Error(err)
	}
}
