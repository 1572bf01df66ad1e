package rdmacm_test

import (
	"context"
	"errors"
	"net/netip"
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

// TestOthersDoNotWaitForAStoppedProcess checks that calls for other devices of a host go on while a listener starts
// its device, claims its port, and gives it back: the process that leads at the address may be stopped.
func TestOthersDoNotWaitForAStoppedProcess(t *testing.T) {
	fabric := mem.NewFabric(mem.Config{})
	slow := &slowLink{begun: make(chan struct{}), end: make(chan struct{})}
	device := func(name string, addr netip.Addr, open func(link.Link) link.Link) *verbs.Device {
		dev, err := soft.New(softlink.On(soft.Config{Name: name, Addrs: []netip.Addr{addr}}, softlink.Links{
			Open: func(addrs []netip.Addr, ports int) (link.Link, error) {
				l, err := fabric.Open(addrs, ports)
				return open(l), err
			},
		}))
		if err != nil {
			t.Fatal(err)
		}
		return dev.Device
	}
	h := rdmacm.NewHost(device("a", addrA, func(l link.Link) link.Link {
		slow.wait()
		slow.Link = l
		return slow
	}), device("b", addrB, func(l link.Link) link.Link { return l }))
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
