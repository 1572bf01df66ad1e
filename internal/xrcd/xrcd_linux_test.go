package xrcd

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

var lastDomain atomic.Uint64

// newDomain returns a domain that nobody has.
func newDomain() Domain {
	return Domain{Device: "test", Dev: uint64(os.Getpid()), Ino: lastDomain.Add(1)}
}

func join(t *testing.T, d Domain) *Member {
	t.Helper()
	m, err := Join(d, How{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// Members have different numbers, and one that has left gives its number back.
func TestNumbers(t *testing.T) {
	d := newDomain()
	a, b, c := join(t, d), join(t, d), join(t, d)
	if a.Number() != 0 || b.Number() != 1 || c.Number() != 2 {
		t.Errorf("%d, %d, %d", a.Number(), b.Number(), c.Number())
	}
	b.Close()
	if n := join(t, d).Number(); n != 1 {
		t.Errorf("number %d after the one with 1 has left", n)
	}
	other := d
	other.Device = "another"
	if n := join(t, other).Number(); n != 0 {
		t.Errorf("number %d in a domain without members", n)
	}
}

func TestX_XRCD_01_Flags(t *testing.T) {
	d := newDomain()
	if _, err := Join(d, How{}); err != ErrNone {
		t.Errorf("no domain: %v", err)
	}
	a, err := Join(d, How{Create: true, Exclusive: true})
	if err != nil {
		t.Fatal(err)
	}
	b := join(t, d)
	a.Close() // number 0 is free, and the domain still exists
	if _, err := Join(d, How{Create: true, Exclusive: true}); err != ErrExists {
		t.Errorf("O_EXCL: %v", err)
	}
	c, err := Join(d, How{})
	if err != nil || c.Number() != 0 {
		t.Errorf("%v", err)
	}
	c.Close()
	b.Close()
	if _, err := Join(d, How{}); err != ErrNone {
		t.Errorf("after the last member: %v", err)
	}
}

func TestFull(t *testing.T) {
	d := newDomain()
	for range Members {
		join(t, d)
	}
	if _, err := Join(d, How{Create: true}); err != ErrFull {
		t.Errorf("member 257: %v", err)
	}
}

// A process that joins while others do so waits, for a bounded time.
func TestJoinWaits(t *testing.T) {
	d := newDomain()
	lock, err := d.lock()
	if err != nil {
		t.Fatal(err)
	}
	joined := make(chan error, 1)
	go func() {
		m, err := Join(d, How{Create: true})
		m.Close()
		joined <- err
	}()
	time.Sleep(20 * time.Millisecond)
	select {
	case err := <-joined:
		t.Fatalf("joined meanwhile: %v", err)
	default:
	}
	_ = lock.Close()
	if err := <-joined; err != nil {
		t.Error(err)
	}
}

// connect returns the ends of a connection from a to b.
func connect(t *testing.T, a, b *Member) (out, in *Conn) {
	t.Helper()
	out, err := a.Dial(b.Number())
	if err != nil {
		t.Fatal(err)
	}
	if in, err = b.Accept(); err != nil {
		t.Fatal(err)
	}
	return out, in
}

func text(s string) func([]byte) []byte { return func(b []byte) []byte { return append(b, s...) } }

func TestMessages(t *testing.T) {
	d := newDomain()
	a, b := join(t, d), join(t, d)
	out, in := connect(t, a, b)
	long := strings.Repeat("0123456789", 100_000)
	for _, m := range []string{"one", "", long, "four"} {
		out.Send(text(m))
	}
	for _, want := range []string{"one", "", long, "four"} {
		if got, err := in.Receive(); err != nil || string(got) != want {
			t.Fatalf("%d bytes, %v; want %d", len(got), err, len(want))
		}
	}
	in.Send(text("back"))
	if got, err := out.Receive(); err != nil || string(got) != "back" {
		t.Errorf("%q, %v", got, err)
	}
	b.Close()
	if _, err := out.Receive(); err == nil {
		t.Error("a connection to a member that has left")
	}
	if _, err := a.Dial(b.Number()); err != ErrGone {
		t.Errorf("dialing it: %v", err)
	}
	for _, n := range []int{-1, Members, a.Number()} {
		if _, err := a.Dial(n); err != ErrGone {
			t.Errorf("dialing %d: %v", n, err)
		}
	}
	if _, err := b.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v", err)
	}
}

// Messages that may be lost are, once the other end does not read; the others are not.
func TestOfferDropsWhatHasNoRoom(t *testing.T) {
	d := newDomain()
	out, in := connect(t, join(t, d), join(t, d))
	packet := text(strings.Repeat("x", 1<<16))
	taken := 0
	for out.Offer(packet) {
		if taken++; taken > 10*room>>16 {
			t.Fatal("no bound")
		}
	}
	out.Send(text("important"))
	for range taken {
		if b, err := in.Receive(); err != nil || len(b) != 1<<16 {
			t.Fatalf("%d bytes, %v", len(b), err)
		}
	}
	if b, err := in.Receive(); err != nil || string(b) != "important" {
		t.Errorf("%q, %v", b, err)
	}
}

// A length that is too large ends the connection, and one that is announced only costs no memory.
func TestHostileLengths(t *testing.T) {
	d := newDomain()
	m := join(t, d)
	for _, head := range []string{"\xff\xff\xff\xff", "\x04\x00\x00\x01"} {
		c, err := d.dial(m.Number())
		if err != nil {
			t.Fatal(err)
		}
		in, err := m.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, head); err != nil {
			t.Fatal(err)
		}
		if _, err := in.Receive(); err != errTooLong {
			t.Errorf("%x: %v", head, err)
		}
		_ = c.Close()
	}
	c, err := d.dial(m.Number())
	if err != nil {
		t.Fatal(err)
	}
	in, err := m.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = c.Write([]byte{0x04, 0, 0, 0, 1}) // 64 MiB, of which one byte comes
	_ = c.Close()
	if _, err := in.Receive(); err != io.ErrUnexpectedEOF || cap(in.buf) > 1<<20 {
		t.Errorf("%v, a buffer of %d bytes", err, cap(in.buf))
	}
}

// TestAnotherUser: the domain of a process of another user cannot be joined, and its messages are not read.
func TestAnotherUser(t *testing.T) {
	const role, nobody = "VERBENA_XRCD_TEST", 65534
	d := Domain{Device: "users", Dev: 1, Ino: uint64(os.Getppid())}
	if os.Getenv(role) != "" {
		m, err := Join(d, How{Create: true})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = os.Stdout.WriteString("joined\n")
		_, _ = io.Copy(io.Discard, os.Stdin)
		m.Close()
		return
	}
	if os.Getuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
	d.Ino = uint64(os.Getpid())
	c := exec.Command("/proc/self/exe", "-test.run=^TestAnotherUser$")
	c.Env = append(os.Environ(), role+"=1")
	c.Dir = "/"
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Skipf("a process of another user cannot be started: %v", err)
	}
	said := make([]byte, 7)
	if _, err := io.ReadFull(out, said); err != nil || !bytes.Equal(said, []byte("joined\n")) {
		t.Fatalf("%q, %v", said, err)
	}
	for _, how := range []How{{}, {Create: true}, {Create: true, Exclusive: true}} {
		if _, err := Join(d, how); err != ErrForeign {
			t.Errorf("%+v: %v", how, err)
		}
	}
	_ = in.Close()
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := Join(d, How{}); err != ErrNone {
		t.Errorf("after its end: %v", err)
	}
}

// A connection that begins while the member leaves the domain is closed.
func TestConnectionDuringClose(t *testing.T) {
	d := newDomain()
	b := join(t, d)
	a, err := Join(d, How{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	a.Close()
	done := make(chan error, 1)
	go func() {
		_, err := a.Dial(b.Number())
		done <- err
	}()
	select {
	case err := <-done:
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("%v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Dial does not return")
	}
}
