package sim

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	links "github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/mem"
	"github.com/verbena-rdma/verbena/internal/link/shm"
	"github.com/verbena-rdma/verbena/internal/softlink"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// A near is a network whose devices share memory, as two processes of one host do. Time is real, and nothing is lost.
type near struct {
	net     *mem.Fabric // for packets before the rings are ready
	start   time.Time
	devices []*soft.Device
	opened  []*verbs.Context

	mu sync.Mutex
	// +checklocks:mu
	links map[netip.Addr]*shm.Link
}

func newNear(seed uint64) network {
	return &near{net: mem.NewFabric(mem.Config{Seed: seed}), start: time.Now(), links: map[netip.Addr]*shm.Link{}}
}

// Owner and Dial make a near a shm.Directory.
func (n *near) Owner(a netip.Addr, _ uint32) string { return a.String() }

// Dial connects two links of this process.
func (n *near) Dial(name string) (*net.UnixConn, error) {
	n.mu.Lock()
	l := n.links[netip.MustParseAddr(name)]
	n.mu.Unlock()
	if l == nil {
		return nil, unix.ECONNREFUSED
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socketpair")
		c, err := net.FileConn(f)
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		ends[i] = c.(*net.UnixConn)
	}
	l.Accept(ends[0])
	return ends[1], nil
}

func (n *near) open(addrs []netip.Addr, ports int) (links.Link, error) {
	l, err := n.net.Open(addrs, ports)
	if err != nil {
		return nil, err
	}
	s, err := shm.Wrap(l, n)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.links[addrs[0]] = s.(*shm.Link)
	return s, nil
}

func (n *near) Open(name string, addrs ...netip.Addr) (*verbs.Context, error) {
	dev, err := soft.New(softlink.On(soft.Config{Name: name, Addrs: addrs, Shards: 1, Manual: true},
		softlink.Links{Open: n.open}))
	if err != nil {
		return nil, err
	}
	n.devices = append(n.devices, dev)
	ctx, err := dev.Open()
	if err == nil {
		n.opened = append(n.opened, ctx)
	}
	return ctx, err
}

// Advance runs the devices, or sleeps so that the goroutines of handshakes run.
func (n *near) Advance() bool {
	busy := false
	for _, d := range n.devices {
		busy = d.Step() || busy
	}
	if !busy {
		time.Sleep(20 * time.Microsecond)
	}
	return true
}

func (n *near) Now() time.Duration        { return time.Since(n.start) }
func (n *near) SetFaults(rdmatest.Faults) {}

// Stats counts the packets through memory as sent, while the devices are open.
func (n *near) Stats() (s rdmatest.Stats) {
	for _, d := range n.devices {
		for _, c := range d.Counters() {
			if c.Name == "shm_tx_packets" {
				s.Sent += c.Value
			}
		}
	}
	return s
}

// Close closes the contexts that are still open.
func (n *near) Close() error {
	var errs []error
	for _, ctx := range n.opened {
		if err := ctx.Close(); !errors.Is(err, os.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
