package rdmacm_test

import (
	"net/netip"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/rdmacm"
)

func TestAddressesAreResolvedByAnEvent(t *testing.T) {
	in(t, func(w *world) {
		c := w.newEnd(w.a, rdmacm.PSTCP)
		_, err := c.QueryAddrInfo()
		w.errno(err, syscall.ENOENT)
		w.errno(c.ResolveAddrInfo(bg, "", "", nil), syscall.EINVAL)
		w.ok(c.ResolveAddrInfo(bg, addrB.String(), "7471", nil))
		w.errno(c.ResolveAddrInfo(bg, addrB.String(), "7471", nil), syscall.EBUSY)
		c.expect(rdmacm.EventAddrInfoResolved)
		if res := must(c.QueryAddrInfo())(w); res.DstAddr != at(addrB, 7471) {
			t.Errorf("%+v", res)
		}
		_, err = c.QueryAddrInfo()
		w.errno(err, syscall.ENOENT)
		s := must(w.a.CreateID(nil, rdmacm.PSTCP, nil))(w)
		w.ok(s.ResolveAddrInfo(bg, addrB.String(), "1", nil))
		if res := must(s.QueryAddrInfo())(w); res.DstAddr != at(addrB, 1) || s.Event().Type != rdmacm.EventAddrInfoResolved {
			t.Errorf("%+v, %+v", res, s.Event())
		}
		w.ok(s.Close())
	})
}

func TestProgramsWriteEventsOfTheirOwn(t *testing.T) {
	in(t, func(w *world) {
		c := w.newEnd(w.a, rdmacm.PSTCP)
		w.errno(c.WriteEvent(rdmacm.EventEstablished, 0, 1), syscall.EINVAL)
		w.ok(c.ResolveAddr(bg, netip.AddrPort{}, at(addrB, port), timeout))
		w.ok(c.WriteEvent(rdmacm.EventUser, -5, 1<<40))
		c.expect(rdmacm.EventAddrResolved) // it came first
		ev := must(c.ch.GetEvent(bg))(w)
		if ev.Type != rdmacm.EventUser || ev.Status != -5 || ev.Arg != 1<<40 || ev.ID != c.ID ||
			ev.Type.String() != "RDMA_CM_EVENT_USER" {
			t.Errorf("%+v", ev)
		}
		w.ok(ev.Ack())
		s := must(w.a.CreateID(nil, rdmacm.PSTCP, nil))(w)
		w.ok(s.WriteEvent(rdmacm.EventUser, -5, 0))
		w.ok(s.ResolveAddr(bg, netip.AddrPort{}, at(addrB, port), timeout)) // skips it
		w.ok(s.Close())
		w.errno(s.WriteEvent(rdmacm.EventUser, 0, 0), syscall.EINVAL)
		w.ok(c.Close())
	})
}
