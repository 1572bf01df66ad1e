package rdmacm_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/mem"
	"github.com/verbena-rdma/verbena/internal/softlink"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// A refusingLink is shared with other processes, and refuses the claims of service IDs.
type refusingLink struct {
	link.Link
	errno  syscall.Errno
	claims int
}

func (l *refusingLink) Capabilities() link.Capabilities {
	c := l.Link.Capabilities()
	c.Shared = l
	return c
}

func (*refusingLink) CommIDs() (prefix uint32, bits int) { return 0, 0 }

func (l *refusingLink) ClaimService(uint64, netip.Addr) (release func(), err error) {
	l.claims++
	return nil, l.errno
}

// TestRefusedClaims checks that Listen tries another port only if another process has the present one: each try
// would wait for a process that does not answer, and a limit of the process is no fault of the port.
func TestRefusedClaims(t *testing.T) {
	for errno, retried := range map[syscall.Errno]bool{
		syscall.EADDRINUSE: true, syscall.ETIMEDOUT: false, syscall.EUSERS: false, syscall.EDQUOT: false,
	} {
		fabric := mem.NewFabric(mem.Config{})
		refusing := &refusingLink{errno: errno}
		dev, err := soft.New(softlink.On(soft.Config{Name: "a", Addrs: []netip.Addr{addrA}}, softlink.Links{
			Open: func(addrs []netip.Addr, ports int) (link.Link, error) {
				l, err := fabric.Open(addrs, ports)
				refusing.Link = l
				return refusing, err
			},
		}))
		if err != nil {
			t.Fatal(err)
		}
		h := rdmacm.NewHost(dev.Device)
		_, err = rdmacm.Listen(t.Context(), at(addrA, 0).String(), &rdmacm.Options{Host: h})
		if !errors.Is(err, errno) {
			t.Errorf("%v: %v", errno, err)
		}
		if n := refusing.claims; (n > 1) != retried {
			t.Errorf("%v: %d claims", errno, n)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A slowLink is shared with other processes. It waits in each call for which one of them may have to answer.
type slowLink struct {
	link.Link
	begun, end chan struct{}
}

func (l *slowLink) wait() {
	l.begun <- struct{}{}
	<-l.end
}

// open is the opening of a link, which joins the processes at its addresses.
func (l *slowLink) open(of link.Link) link.Link {
	l.wait()
	l.Link = of
	return l
}

func (l *slowLink) Capabilities() link.Capabilities {
	c := l.Link.Capabilities()
	c.Shared = l
	return c
}

func (*slowLink) CommIDs() (prefix uint32, bits int) { return 0, 0 }

func (l *slowLink) ClaimService(uint64, netip.Addr) (release func(), err error) {
	l.wait()
	return l.wait, nil
}

func unchanged(l link.Link) link.Link { return l }

// linked makes a device on a fabric, with a link of its own.
func linked(t *testing.T, f *mem.Fabric, name string, addr netip.Addr, open func(link.Link) link.Link) *verbs.Device {
	t.Helper()
	dev, err := soft.New(softlink.On(soft.Config{Name: name, Addrs: []netip.Addr{addr}}, softlink.Links{
		Open: func(addrs []netip.Addr, ports int) (link.Link, error) {
			l, err := f.Open(addrs, ports)
			return open(l), err
		},
	}))
	if err != nil {
		t.Fatal(err)
	}
	return dev.Device
}

// TestOthersDoNotWaitForAStoppedProcess checks that calls for other devices of a host go on while a listener starts
// its device, claims its port, and gives it back: the process that leads at the address may be stopped.
func TestOthersDoNotWaitForAStoppedProcess(t *testing.T) {
	fabric := mem.NewFabric(mem.Config{})
	slow := &slowLink{begun: make(chan struct{}), end: make(chan struct{})}
	h := rdmacm.NewHost(linked(t, fabric, "a", addrA, slow.open), linked(t, fabric, "b", addrB, unchanged))
	listen := func(addr netip.Addr) error {
		l, err := rdmacm.Listen(context.Background(), at(addr, 0).String(), &rdmacm.Options{Host: h})
		if err == nil {
			err = l.Close()
		}
		return err
	}
	all := make(chan error, 1)
	go func() { all <- listen(addrA) }()
	for _, step := range []string{"start", "claim", "release"} {
		select {
		case <-slow.begun:
		case err := <-all:
			t.Fatalf("the listener ends before its %s: %v", step, err)
		}
		other := make(chan error, 1)
		go func() { other <- listen(addrB) }()
		select {
		case err := <-other:
			if err != nil {
				t.Errorf("%s: %v", step, err)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("a call for another device waits for the %s", step)
		}
		slow.end <- struct{}{}
	}
	if err := <-all; err != nil {
		t.Error(err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// TestNewDeviceOfAStoppedProcess checks that a listener on all devices takes connections while a new device waits for
// the process that leads at its address.
func TestNewDeviceOfAStoppedProcess(t *testing.T) {
	fabric, addrC := mem.NewFabric(mem.Config{}), netip.MustParseAddr("198.18.0.3")
	slow := &slowLink{begun: make(chan struct{}), end: make(chan struct{})}
	added := linked(t, fabric, "c", addrC, slow.open)
	devices := []*verbs.Device{linked(t, fabric, "a", addrA, unchanged)}
	var present atomic.Pointer[[]*verbs.Device]
	present.Store(&devices)
	h := rdmacm.NewGrowingHost(func() ([]*verbs.Device, error) { return *present.Load(), nil })
	client := rdmacm.NewHost(linked(t, fabric, "b", addrB, unchanged))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	ok := rdmacm.FatalOn(t)
	l, err := rdmacm.Listen(ctx, ":7471", &rdmacm.Options{Host: h})
	ok(err)
	both := append(slices.Clone(devices), added)
	present.Store(&both)
	connect := func(to netip.Addr) error {
		id, err := rdmacm.Dial(ctx, at(to, 7471).String(), &rdmacm.Options{Host: client})
		if err != nil {
			return err
		}
		return id.Close()
	}
	accepting := make(chan struct{})
	go func() {
		defer close(accepting)
		for {
			id, err := l.Accept(ctx)
			if err != nil {
				return
			}
			_ = id.Close()
		}
	}()
	for range 2 { // the start and the claim
		select {
		case <-slow.begun:
		case <-ctx.Done():
			t.Fatal("the listener does not begin to listen on the new device")
		}
		ok(connect(addrA))
		slow.end <- struct{}{}
	}
	for connect(addrC) != nil { // until it listens there
		time.Sleep(time.Millisecond)
	}
	closed := make(chan error, 1)
	go func() { closed <- l.Close() }()
	<-slow.begun
	slow.end <- struct{}{}
	ok(<-closed)
	<-accepting
	ok(h.Close())
	ok(client.Close())
}
