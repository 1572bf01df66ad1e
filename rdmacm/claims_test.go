package rdmacm_test

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/mem"
	"github.com/verbena-rdma/verbena/internal/softlink"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/rdmacm"
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
