package shm

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/untrusted/lingering"
	"github.com/verbena-rdma/verbena/internal/wire"
)

func TestNoProcessThere(t *testing.T) {
	var d testDirectory
	a := d.open(t, addrA, 1)
	path := &link.Path{Src: a.addr, Dst: addrB}
	if a.Prepare(path, 7) {
		t.Error("a process was found")
	}
	if !a.put(path, 7, 8, 1) {
		t.Error("no place")
	}
	a.p.Send(a.tx)
	if n := len(a.inner(0).sent); n != 1 {
		t.Errorf("%d packets went over the other link", n)
	}
}

// TestPacketsWaitForRings checks that packets wait for the handshake, and do not go over the other link meanwhile.
func TestPacketsWaitForRings(t *testing.T) {
	d := testDirectory{slow: make(chan struct{})}
	a, b := d.open(t, addrA, 1), d.open(t, addrB, 1)
	path := &link.Path{Src: a.addr, Dst: addrB}
	if !a.Prepare(path, 7) {
		t.Error("no process was found")
	}
	if a.put(path, 7, 8, 1) {
		t.Error("a place before the rings are ready")
	}
	close(d.slow)
	a.await("place", func() bool { return a.put(path, 7, 8, 1) })
	a.p.Send(a.tx)
	b.next()
}

// TestSlowNeighbour checks that a process that does not answer delays packets only for a short time.
func TestSlowNeighbour(t *testing.T) {
	d := testDirectory{slow: make(chan struct{})}
	a := d.open(t, addrA, 1)
	d.open(t, addrB, 1)
	a.hold = holdBack
	begin := time.Now()
	path := a.path(addrB, 7)
	for !a.put(path, 7, 8, 1) {
		time.Sleep(time.Millisecond)
	}
	if took := time.Since(begin); took < holdBack {
		t.Errorf("delayed by only %v", took)
	}
	close(d.slow)
}

// TestBurstOfDatagrams checks that many datagrams wait for a handshake, but not for long.
func TestBurstOfDatagrams(t *testing.T) {
	d := testDirectory{slow: make(chan struct{})}
	a := d.open(t, addrA, 1)
	d.open(t, addrB, 1)
	a.hold = time.Hour
	path := &link.Path{Src: a.addr, Dst: addrB, AnyOrder: true}
	sent := 0
	for sent < 1000 && a.put(path, 7, 8, 1) {
		sent++
	}
	if sent != earlyDatagrams {
		t.Errorf("%d datagrams did not wait, must be %d", sent, earlyDatagrams)
	}
	a.hold = 0
	if !a.put(path, 7, 8, 1) {
		t.Error("a datagram waits longer than the limit")
	}
	close(d.slow)
}

// TestSlowNeighbourAnyOrder checks that the first datagrams do not wait for a handshake: they go over the other link.
func TestSlowNeighbourAnyOrder(t *testing.T) {
	d := testDirectory{slow: make(chan struct{})}
	a, b := d.open(t, addrA, 1), d.open(t, addrB, 1)
	a.hold = time.Hour
	path := &link.Path{Src: a.addr, Dst: addrB, AnyOrder: true}
	if !a.put(path, 7, 8, 1) {
		t.Fatal("a datagram waits for the handshake")
	}
	a.p.Send(a.tx)
	if n := len(a.inner(0).sent); n != 1 {
		t.Errorf("%d packets over the other link", n)
	}
	close(d.slow)
	a.await("rings", func() bool { return a.p.routeOf(path, 7).state.Load() == routeRings })
	if !a.put(path, 7, 8, 2) {
		t.Fatal("no place in the ring")
	}
	a.p.Send(a.tx)
	b.next()
	if n := len(a.inner(0).sent); n != 1 {
		t.Errorf("%d packets over the other link", n)
	}
}

// TestSlowNeighbourInOrder checks that packets that must stay in order wait for the end of the handshake: UC does not
// retransmit.
func TestSlowNeighbourInOrder(t *testing.T) {
	d := testDirectory{slow: make(chan struct{})}
	a, b := d.open(t, addrA, 1), d.open(t, addrB, 1)
	a.hold = time.Nanosecond
	path := &link.Path{Src: a.addr, Dst: addrB, InOrder: true}
	a.Prepare(path, 7)
	if time.Sleep(time.Millisecond); a.put(path, 7, 8, 1) {
		t.Error("a place before the rings are ready")
	}
	close(d.slow)
	a.await("place", func() bool { return a.put(path, 7, 8, 1) })
	a.p.Send(a.tx)
	b.next()
	if n := len(a.inner(0).sent); n != 0 {
		t.Errorf("%d packets went over the other link", n)
	}
}

// TestDecoratedSlowNeighbour checks that packets of a decorator, which cannot wait, go over the other link during the
// handshake.
func TestDecoratedSlowNeighbour(t *testing.T) {
	d := testDirectory{slow: make(chan struct{})}
	a := d.open(t, addrA, 1)
	d.open(t, addrB, 1)
	path := a.path(addrB, 7)
	a.tx.Direct = nil
	a.put(path, 7, 600, 1)
	a.p.Send(a.tx)
	if n := len(a.inner(0).sent); n != 1 {
		t.Errorf("%d packets went over the other link", n)
	}
	close(d.slow)
}

// TestLossDuringHandshake checks a process that ends during the handshake, and one that refuses it.
func TestLossDuringHandshake(t *testing.T) {
	for refuses, want := range map[bool]link.Loss{false: link.PeerDied, true: link.NotLost} {
		a, b := (&testDirectory{}).open(t, addrA, 1), &silentDirectory{}
		a.dir = b
		path := a.path(addrB, 7)
		if a.put(path, 7, 8, 1) {
			t.Error("a place before the rings are ready")
		}
		if refuses {
			if _, _, err := expect(b.theirs, frameHello, 0); err != nil {
				t.Fatal(err)
			}
			_ = sendFrame(b.theirs, frame{kind: frameBye})
		}
		b.theirs.Close()
		a.await("place on the other link", func() bool { return a.put(path, 7, 8, 1) })
		if !refuses {
			<-a.lost
		}
		if got := a.Lost(path); got != want {
			t.Errorf("refuses %v: %v", refuses, got)
		}
	}
}

// A silentDirectory is a Directory of one process that sends nothing.
type silentDirectory struct{ theirs *net.UnixConn }

func (*silentDirectory) Owner(netip.Addr, uint32) string { return "x" }

func (d *silentDirectory) Dial(string) (*net.UnixConn, error) {
	mine, theirs := socketPair()
	d.theirs = theirs
	return mine, nil
}

// TestCloseAtTheEndOfAHandshake checks that a ring set whose handshake ends while the link is being closed ends too:
// Close would wait for its receiver.
func TestCloseAtTheEndOfAHandshake(t *testing.T) {
	var d testDirectory
	a := d.open(t, addrA, 1)
	h, r := &process{}, &route{}
	h.waiting = []*route{r}
	l, _ := sender(t)
	l.shape = shape{n: 1, m: 1}
	a.Close()
	a.connected(addrB.String(), h, l, routeRings)
	if l.end.Load() == ringsOpen {
		t.Error("the ring set is open")
	}
	if _, err := l.conn.Write([]byte{0}); err == nil {
		t.Error("its socket is open")
	}
}

// TestTwoPathsDuringAHandshake checks that both get the ring set of their process.
func TestTwoPathsDuringAHandshake(t *testing.T) {
	d := testDirectory{slow: make(chan struct{})}
	a, b := d.open(t, addrA, 1), d.open(t, addrB, 1)
	paths := []*link.Path{a.path(addrB, 7), a.path(addrB, 8)}
	close(d.slow)
	for i, path := range paths {
		a.await("ring set", func() bool { return path.Route.(*route).rings.Load() != nil })
		a.put(path, uint32(7+i), 8, 1)
		a.p.Send(a.tx)
		if got := b.next(); len(got) != 1 {
			t.Errorf("%d packets of path %d", len(got), i)
		}
	}
	if d.dials != 1 {
		t.Errorf("%d handshakes", d.dials)
	}
}

// TestAcceptAfterClose checks that a closed link has no handshake.
func TestAcceptAfterClose(t *testing.T) {
	var d testDirectory
	a := d.open(t, addrA, 1)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		ours, theirs := socketPair()
		a.Accept(theirs)
		ours.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.ReadAll(ours); err != nil {
			t.Errorf("a connection that was not accepted: %v", err)
		}
		ours.Close()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.incoming != 0 {
		t.Errorf("%d handshakes", a.incoming)
	}
}

// TestEnded checks which errors of a handshake mean that the other process has ended.
func TestEnded(t *testing.T) {
	for err, want := range map[error]bool{
		io.EOF: true, syscall.ECONNRESET: true, syscall.EPIPE: true, syscall.EPROTO: false, os.ErrDeadlineExceeded: false,
	} {
		if got := ended(fmt.Errorf("handshake: %w", err)); got != want {
			t.Errorf("%v: ended: %t", err, got)
		}
	}
}

// TestNoRingSetsAfterClose checks that a closed link reads no rings.
func TestNoRingSetsAfterClose(t *testing.T) {
	var d testDirectory
	a, b := d.open(t, addrA, 1), d.open(t, addrB, 1)
	path := a.ready(addrB, 7)
	a.put(path, 7, 8, 1)
	a.p.Send(a.tx)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(*b.in.Load()); n != 0 {
		t.Errorf("%d ring sets", n)
	}
	if n := len(b.take()); n != 0 {
		t.Errorf("%d packets", n)
	}
}

// TestAnotherUserIsRefused checks that the handshake ends if the process at the other end is another user's. The
// thread that makes the sockets as that user ends with its goroutine.
func TestAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has sockets of another user")
	}
	const nobody = 65534
	type ends struct {
		a, b *net.UnixConn
		err  error
	}
	made := make(chan ends)
	go func() {
		runtime.LockOSThread()
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); errno != 0 {
			made <- ends{err: errno}
			return
		}
		a, b := socketPair()
		made <- ends{a: a, b: b}
	}()
	theirs := <-made
	if theirs.err != nil {
		t.Skipf("this process may not become another user: %v", theirs.err)
	}
	defer theirs.a.Close()
	if err := sameUser(theirs.b); !errors.Is(err, syscall.EACCES) {
		t.Fatalf("user %d: %v", nobody, err)
	}
	_, err := acceptRings(theirs.b, 1, nil, nil)
	if !errors.Is(err, syscall.EACCES) {
		t.Errorf("a handshake of user %d: %v", nobody, err)
	}
	theirs.b.Close()
}

// TestStrangersAreNotAccepted checks that connections of another user cost neither a goroutine nor a place among the
// handshakes, and that one of this user behind them is accepted.
func TestStrangersAreNotAccepted(t *testing.T) {
	var s Sockets
	name := fmt.Sprintf("@verbena-shm-strangers/%d", os.Getpid())
	accepted := make(chan error, 200)
	s.Listen([]string{name}, func(c *net.UnixConn) {
		accepted <- sameUser(c)
		c.Close()
	})
	defer s.Listen(nil, nil)
	lingering.OtherUser(t, func() {
		for range 100 {
			c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: name, Net: "unix"})
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
		}
	})
	c, err := s.Dial(name)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := <-accepted; err != nil {
		t.Errorf("a stranger: %v", err)
	}
}

// TestInOrderAtTheEndOfTheHandshake: no packet of a path that must stay in order goes over the other link at the moment
// at which the handshake ends, as the next ones would overtake it.
func TestInOrderAtTheEndOfTheHandshake(t *testing.T) {
	var d testDirectory
	a, b := d.open(t, addrA, 1), d.open(t, addrB, 1)
	rings := a.ready(addrB, 7).Route.(*route).rings.Load()
	var next atomic.Pointer[route]
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if r := next.Swap(nil); r != nil {
				r.resolve(rings, routeOther)
			}
		}
	}()
	// With one processor each attempt takes as long as goroutines run without a switch.
	for n, begin := 0, time.Now(); n < 20000 && time.Since(begin) < 10*time.Second; n++ {
		r := &route{begun: time.Now()}
		path := &link.Path{Src: addrA, Dst: addrB, InOrder: true, Route: r}
		next.Store(r)
		for {
			p, mine := a.p.Place(path, 7, wire.BTHLen+8, false)
			if !mine {
				t.Fatalf("attempt %d: a packet goes over the other link", n)
			}
			if p != nil {
				clear(p)
				wire.BTH(p).Put(wire.UC|wire.SendOnly, 0, 0xFFFF, 7, 1, 0)
				break
			}
		}
		a.p.Publish()
		if n%64 == 0 {
			for len(b.take()) > 0 {
			}
		}
	}
}
