package soft

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/control"
	"github.com/verbena-rdma/verbena/internal/link/pcap"
)

// toolConn returns an end of a connection whose other end is a tool.
func toolConn(t *testing.T) net.Conn {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tool, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tool.Close() })
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// capturesOf counts the captures of a device.
func (c *controller) capturesOf(device string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.captures {
		if l.device == device {
			n++
		}
	}
	return n
}

// TestAnnouncedCaptureIsCalledOnce: a capture of a tool has the packets of a device once, also if a second device of
// the name is opened, or the tool finds the process while the process calls the tool.
func TestAnnouncedCaptureIsCalledOnce(t *testing.T) {
	calls := make(chan *control.Call, 64)
	a, err := control.Announce(func(c *control.Call) { calls <- c })
	if err != nil {
		t.Skip("no abstract unix sockets here:", err)
	}
	defer a.Close()
	const name = "vrb_called_once"
	others := controlled.capturesOf("vrb_called_twice")
	first, second := newDevice(spec{name: name}), newDevice(spec{name: name})
	controlled.add(first)
	defer func() { controlled.remove(first)() }()
	all := controlled.capturesOf(name) // other captures of the machine may be announced too
	if all == 0 {
		t.Fatal("the announced capture was not called")
	}
	controlled.add(second)
	defer func() { controlled.remove(second)() }()
	if n := controlled.capturesOf(name); n != all {
		t.Errorf("%d captures after the second device, want %d", n, all)
	}
	for range 2 { // the first call leaves no lock behind
		controlled.Capture(toolConn(t), bufio.NewReader(strings.NewReader("")), name, a.Name)
		if n := controlled.capturesOf(name); n != all {
			t.Errorf("%d captures when the tool has found the process, want %d", n, all)
		}
	}
	if n := controlled.capturesOf("vrb_called_twice"); n != others {
		t.Errorf("%d captures of another device, want %d", n, others)
	}
}

// TestSnapOfALiveCapture: a tool may set the least and the largest length of a captured packet, and no other ones
// beyond: then the capture ends.
func TestSnapOfALiveCapture(t *testing.T) {
	for n, good := range map[int]bool{pcap.MinSnap: true, pcap.MinSnap - 1: false, pcap.MaxSnap: true,
		pcap.MaxSnap + 1: false} {
		requests := bufio.NewReader(strings.NewReader(fmt.Sprintf("snap %d\nsnap 1000\n", n)))
		var c controller
		conn := toolConn(t)
		c.mu.Lock()
		l := c.begin(conn, "vrb_snap", "")
		c.mu.Unlock()
		c.follow(conn, requests, l)
		rest, err := io.ReadAll(requests)
		if err != nil || (len(rest) == 0) != good {
			t.Errorf("snap %d: %q is left, %v", n, rest, err)
		}
		if n := c.capturesOf("vrb_snap"); n != 0 {
			t.Errorf("%d captures are left", n)
		}
	}
}

// TestCapturesOfOneAnnouncement: a tool's announcement may be for several devices, and captures that were not announced
// are as many as tools ask for.
func TestCapturesOfOneAnnouncement(t *testing.T) {
	var c controller
	var ended sync.WaitGroup
	r, w := io.Pipe()
	defer ended.Wait()
	defer w.Close()
	for n, a := range []struct {
		device, announced string
		more              int
	}{{"x", "one", 1}, {"x", "one", 1}, {"y", "one", 2}, {"x", "two", 3}, {"x", "", 4}, {"x", "", 5}, {"y", "two", 6}} {
		conn := toolConn(t)
		ended.Go(func() { c.Capture(conn, bufio.NewReader(r), a.device, a.announced) })
		all := func() int { return c.capturesOf("x") + c.capturesOf("y") }
		for end := time.Now().Add(20 * time.Second); all() < a.more && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		if n == 1 { // a capture too many would come soon
			time.Sleep(20 * time.Millisecond)
		}
		if all() != a.more {
			t.Errorf("%d: %d captures, want %d", n, all(), a.more)
		}
	}
}
