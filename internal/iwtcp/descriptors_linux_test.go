package iwtcp

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/fdset"
	"github.com/verbena-rdma/verbena/internal/iwarp"
	"github.com/verbena-rdma/verbena/internal/refuse"
	"github.com/verbena-rdma/verbena/internal/transport"
)

// pollerOpen opens the descriptors of Go's network poller, which a process opens when it first needs them.
var pollerOpen = sync.OnceFunc(func() {
	if r, w, err := os.Pipe(); err == nil {
		_, _ = r.Close(), w.Close()
	}
})

// descriptors are those of the process, with what they stand for. There may be fewer later: those of garbage of other
// tests.
func descriptors(t *testing.T) map[string]string {
	pollerOpen()
	t.Helper()
	dir, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	all := map[string]string{}
	for _, e := range dir {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			all[e.Name()] = to
		}
	}
	return all
}

// withFree calls f while the process can open n descriptors more.
func withFree(t *testing.T, n int, f func()) {
	t.Helper()
	for range 2 { // so that no connection of another test is collected, and closed, meanwhile
		runtime.GC()
	}
	var held []int
	for range n {
		fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, fd)
	}
	if err := refuse.Descriptors(func() {
		for _, fd := range held {
			_ = unix.Close(fd)
		}
		f()
	}); err != nil {
		t.Fatal(err)
	}
}

// A loop for which the process has too few descriptors is an error, and leaves none open.
func TestLoopWithoutDescriptors(t *testing.T) {
	before := len(descriptors(t))
	for n := range 3 {
		var err, ofDevice error
		d := new(Device)
		withFree(t, n, func() {
			_, err = newLoop()
			_, ofDevice = d.NewQP(Config{Num: 1})
		})
		if !errors.Is(err, syscall.EMFILE) || !errors.Is(ofDevice, syscall.EMFILE) {
			t.Errorf("%d descriptors: %v, of a device: %v", n, err, ofDevice)
		}
		if d.Find(1) != nil || d.loop.Load() != nil {
			t.Errorf("%d descriptors: the device has a QP or a loop", n)
		}
		if after := len(descriptors(t)); after > before {
			t.Errorf("%d descriptors: %d are open, %d before", n, after, before)
		}
	}
}

// A QP for whose connection the process has no descriptor stays in INIT, and the connection is closed.
func TestStartWithoutDescriptors(t *testing.T) {
	e := newEnd(t, new(Device), 1, 8)
	peer, own := connection(t)
	var err error
	withFree(t, 0, func() { err = e.Start(&Conn{tcp: own}, func(bool) { t.Error("the end is reported") }) })
	if !errors.Is(err, syscall.EMFILE) || e.State() != transport.Init {
		t.Errorf("%v, state %v", err, e.State())
	}
	ended(t, peer)
	if err := e.Start(closedConn(t), func(bool) {}); err == nil || e.State() != transport.Init {
		t.Errorf("a connection that is closed: %v, state %v", err, e.State())
	}
}

// closedConn is a connection that this side has closed.
func closedConn(t *testing.T) *Conn {
	_, own := connection(t)
	_ = own.Close()
	return &Conn{tcp: own}
}

// A descriptor may have the number 0: a daemon closes its standard input.
func TestDescriptorsWithTheNumber0(t *testing.T) {
	saved, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		t.Skip("the test has no standard input")
	}
	defer unix.Close(saved)
	defer func() { _ = unix.Dup3(saved, 0, 0) }()

	_ = unix.Close(0)
	l, err := newLoop()
	if err != nil {
		t.Fatal(err)
	}
	if l.ready != 0 {
		t.Fatalf("the set has the number %d", l.ready)
	}
	l.stop()
	if fd, err := unix.FcntlInt(uintptr(saved), unix.F_DUPFD_CLOEXEC, 0); err != nil || fd != 0 {
		t.Fatalf("%d is free, %v", fd, err)
	}

	reported := make(chan bool, 1)
	for i, leaves := range []func(*end){
		func(e *end) { e.Fail() },
		func(e *end) { e.Reset() },
		func(e *end) { e.cut(e.m) },
		func(e *end) {
			e.Disconnect()
			e.mu.Lock()
			if !e.shut {
				t.Error("Disconnect does nothing")
			}
			e.mu.Unlock()
			e.cut(e.m)
		},
	} {
		e := newEnd(t, new(Device), 1, 8)
		peer, own := connection(t)
		_ = unix.Close(0)
		if err := e.Start(&Conn{tcp: own, Params: iwarp.Params{IRD: 1, ORD: 1}},
			func(silent bool) { reported <- silent }); err != nil {
			t.Fatal(err)
		}
		e.mu.Lock()
		if e.fd != 0 {
			t.Fatalf("the socket has the number %d", e.fd)
		}
		e.mu.Unlock()
		e.SetKeepAlive(1)
		if on, err := unix.GetsockoptInt(0, unix.SOL_SOCKET, unix.SO_KEEPALIVE); on == 0 || err != nil {
			t.Errorf("keep-alive %d, %v", on, err)
		}
		if _, err := peer.Write(readRequest(e.reg.RKey, 8)); err != nil {
			t.Fatal(err)
		}
		(&raw{TCPConn: peer, t: t}).receive(responseLength())
		if v := e.View(); v.Counters.TxPackets == 0 {
			t.Errorf("%+v of a connection", v.Counters)
		}
		leaves(e)
		<-reported
		_, _ = unix.FcntlInt(uintptr(saved), unix.F_DUPFD_CLOEXEC, 0)
		e.mu.Lock()
		if e.fd >= 0 {
			t.Errorf("the QP has the socket %d after its end", e.fd)
		}
		e.mu.Unlock()
		if _, err := peer.Read(make([]byte, 1)); i == 0 && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the peer of a QP that was moved to ERR reads: %v", err)
		}
		_ = peer.Close()
	}
}

// A child that a program forks closes the sockets of connections: fdset knows them.
func TestSocketsAreKnown(t *testing.T) {
	known := func() int { return len(fdset.Descriptors()) }
	before := known()
	_, at, asked := listener(t)
	if n := known(); n != before+1 {
		t.Errorf("%d descriptors with a listener, %d before", n, before)
	}
	dialed := make(chan *Conn, 1)
	go func() {
		c, err := Dial(t.Context(), loopbackAny, at, iwarp.Options{})
		if err != nil {
			t.Error(err)
		}
		dialed <- c
	}()
	r := <-asked
	a, err := r.Accept(iwarp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	c := <-dialed
	defer c.Close()
	if n := known(); n != before+3 {
		t.Errorf("%d descriptors with both ends of a connection, %d before", n, before)
	}
}
