package packet

import (
	"bytes"
	"errors"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/link"
)

// canOpen skips a test if the process may not open packet sockets.
func canOpen(t *testing.T) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	if err != nil {
		t.Skipf("this test needs CAP_NET_RAW: %v", err)
	}
	_ = unix.Close(fd)
}

func open(t *testing.T, name string) link.Raw {
	t.Helper()
	l, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// frames returns a channel of received frames with an EtherType.
func frames(l link.Raw, etherType ...byte) <-chan []byte {
	c := make(chan []byte, 100)
	l.Start(func(b []byte, _ bool) {
		if bytes.Equal(b[12:12+len(etherType)], etherType) {
			c <- bytes.Clone(b)
		}
	})
	return c
}

func wait(t *testing.T, c <-chan []byte) []byte {
	t.Helper()
	select {
	case b := <-c:
		return b
	case <-time.After(20 * time.Second):
		t.Fatal("no frame")
		return nil
	}
}

func none(t *testing.T, c <-chan []byte) {
	t.Helper()
	select {
	case b := <-c:
		t.Fatalf("a frame: % x", b)
	case <-time.After(20 * time.Millisecond):
	}
}

// experimental makes a frame with an EtherType for local experiments (IEEE 802) and a subtype that other processes
// do not use.
func experimental(payload string) []byte {
	b := append(
		[]byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5, byte(os.Getpid() >> 8), byte(os.Getpid())},
		payload...)
	return append(b, make([]byte, 60)...)
}

func TestLoopback(t *testing.T) {
	canOpen(t)
	a, b := open(t, "lo"), open(t, "lo")
	ca, cb := frames(a, experimental("")[12:16]...), frames(b, experimental("")[12:16]...)
	frame := experimental("hello")
	if err := a.Send(frame); err != nil {
		t.Fatal(err)
	}
	if got := wait(t, cb); !bytes.Equal(got, frame) {
		t.Errorf("% x", got)
	}
	// A loopback interface returns a sent frame to its sender, once.
	if got := wait(t, ca); !bytes.Equal(got, frame) {
		t.Errorf("% x", got)
	}
	none(t, ca)
	none(t, cb)
	ifi, err := net.InterfaceByName("lo")
	if err != nil || a.MTU() != ifi.MTU+14 {
		t.Errorf("MTU %d of %+v, %v", a.MTU(), ifi, err)
	}
	if err := a.Send(make([]byte, a.MTU()+100)); !errors.Is(err, syscall.EMSGSIZE) {
		t.Errorf("a frame that is too long: %v", err)
	}
	if err := a.Send(nil); err == nil {
		t.Error("an empty frame is sent")
	}
}

// TestCloseWaitsForReceive checks that receive is not running after Close.
func TestCloseWaitsForReceive(t *testing.T) {
	canOpen(t)
	l, err := Open("lo")
	if err != nil {
		t.Fatal(err)
	}
	var begun, ended atomic.Bool
	running := make(chan struct{})
	l.Start(func([]byte, bool) {
		if begun.Swap(true) {
			return
		}
		close(running)
		for !errors.Is(l.Send(experimental("")), os.ErrClosed) {
			runtime.Gosched()
		}
		time.Sleep(20 * time.Millisecond) // a Close that does not wait returns meanwhile
		ended.Store(true)
	})
	if err := l.Send(experimental("")); err != nil {
		t.Fatal(err)
	}
	<-running
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if !ended.Load() {
		t.Error("receive has not returned")
	}
}

// TestVeth sends frames, with and without VLAN tags and for other addresses, between two interfaces in its own
// network namespace.
func TestVeth(t *testing.T) {
	canOpen(t)
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("this test needs the ip command")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and the namespace with it
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("this test needs CAP_SYS_ADMIN, for a network namespace: %v", err)
	}
	for _, args := range []string{"link add va type veth peer name vb", "link set va up", "link set vb up"} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Skipf("ip %s: %v: %s", args, err, out)
		}
	}
	a, b := open(t, "va"), open(t, "vb")
	ca, cb := frames(a, experimental("")[12:16]...), frames(b)
	tagged := bytes.Clone(experimental("tagged"))
	tagged = append(tagged[:12:12], append([]byte{0x81, 0, 0x60, 5}, tagged[12:]...)...)
	service := bytes.Clone(tagged)
	service[12], service[13] = 0x88, 0xa8
	sent := map[string]bool{}
	for _, frame := range [][]byte{experimental("plain"), tagged, service} {
		sent[string(frame)] = true
		arrives(t, a, cb, frame, sent)
	}
	none(t, ca) // a port does not receive the frames that it sends
}

// arrives sends a frame until it is received: the kernel takes time to bring an interface up, and loses frames
// until then. Every frame for the same address must be in sent.
func arrives(t *testing.T, from link.Raw, at <-chan []byte, frame []byte, sent map[string]bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		if err := from.Send(frame); err != nil && !errors.Is(err, unix.ENETDOWN) {
			t.Fatal(err)
		}
		for again := time.After(50 * time.Millisecond); again != nil; {
			select {
			case got := <-at:
				if bytes.Equal(got, frame) {
					return
				}
				if bytes.Equal(got[:6], frame[:6]) && !sent[string(got)] {
					t.Fatalf("% x\nwant % x", got, frame)
				}
			case <-again:
				again = nil
			}
		}
	}
	t.Fatal("no frame")
}

func TestErrors(t *testing.T) {
	if _, err := Open("nosuchinterface"); !errors.Is(err, syscall.ENODEV) ||
		!strings.Contains(err.Error(), "nosuchinterface") {
		t.Errorf("%v", err)
	}
	err := explain("eth0", unix.EPERM)
	if !errors.Is(err, syscall.EPERM) || !strings.Contains(err.Error(), "CAP_NET_RAW") ||
		!strings.Contains(err.Error(), "setcap") {
		t.Errorf("%v", err)
	}
	if err := explain("eth0", unix.EACCES); !errors.Is(err, syscall.EPERM) {
		t.Errorf("%v", err)
	}
	err = explain("eth0", unix.EMFILE)
	if !errors.Is(err, syscall.EMFILE) || strings.Contains(err.Error(), "CAP_NET_RAW") {
		t.Errorf("%v", err)
	}
}

// TestNoRight opens a socket as a user without capabilities.
func TestNoRight(t *testing.T) {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&hdr, &none[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := Open("lo"); !errors.Is(err, syscall.EPERM) || !strings.Contains(err.Error(), "CAP_NET_RAW") {
		t.Errorf("%v", err)
	}
}
