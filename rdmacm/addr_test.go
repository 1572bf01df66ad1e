package rdmacm_test

import (
	"net/netip"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

func TestC_BIND_Addresses(t *testing.T) {
	in(t, func(w *world) {
		for _, c := range []struct {
			addr  netip.AddrPort
			errno syscall.Errno
		}{
			{netip.AddrPort{}, syscall.EINVAL}, {at(netip.MustParseAddr("fe80::1"), 0), syscall.EINVAL}, {at(group4, 1),
				syscall.EINVAL},
			{at(netip.MustParseAddr("198.18.0.99"), 0), syscall.ENODEV},
		} {
			e := w.newEnd(w.a, rdmacm.PSTCP)
			w.errno(e.BindAddr(c.addr), c.errno)
			w.ok(e.BindAddr(at(addrA, 0)))                           // C-ID-21, C-BIND-01: it is still usable
			if e.SrcPort() < 1024 || e.LocalAddr().Addr() != addrA { // C-BIND-04
				t.Errorf("bound to %v", e.LocalAddr())
			}
			if e.Verbs() == nil || e.PortNum() != 1 || e.PD() == nil { // C-BIND-02
				t.Error("not bound to a device")
			}
			w.errno(e.BindAddr(at(addrA, 0)), syscall.EINVAL)
			e.close()
		}
	})
}

func TestC_BIND_PortsInUse(t *testing.T) {
	in(t, func(w *world) {
		bind := func(ps rdmacm.PortSpace, a netip.Addr, reuse bool) (*end, error) {
			e := w.newEnd(w.a, ps)
			w.ok(e.SetReuseAddr(reuse))
			return e, e.BindAddr(at(a, port))
		}
		first, err := bind(rdmacm.PSTCP, addrA, true)
		w.ok(err)
		for _, c := range []struct {
			ps    rdmacm.PortSpace
			a     netip.Addr
			reuse bool
			errno syscall.Errno
		}{
			{rdmacm.PSTCP, addrA, false, syscall.EADDRINUSE}, {rdmacm.PSTCP, netip.IPv4Unspecified(), false,
				syscall.EADDRNOTAVAIL},
			{rdmacm.PSTCP, addrA6, false, 0}, {rdmacm.PSUDP, addrA, false, 0}, // C-PS-05, T-24
			{rdmacm.PSTCP, addrA, true, 0}, // C-OPT-04
		} {
			e, err := bind(c.ps, c.a, c.reuse)
			if c.errno != 0 {
				w.errno(err, c.errno)
				if e.LocalAddr() != (netip.AddrPort{}) {
					t.Errorf("after %v the ID has the address %v", c.errno, e.LocalAddr())
				}
			} else {
				w.ok(err)
			}
			if c.reuse {
				w.errno(e.Listen(0), syscall.EADDRINUSE) // C-OPT-05
				w.errno(first.Listen(0), syscall.EADDRINUSE)
				w.errno(e.SetReuseAddr(false), syscall.EINVAL)
			}
			e.close()
		}
		w.ok(first.Listen(0))
		w.errno(first.SetReuseAddr(true), syscall.EINVAL)
		first.close()
		again, err := bind(rdmacm.PSTCP, addrA, false)
		w.ok(err)
		again.close()
	})
}

func TestC_ADDR_Resolve(t *testing.T) {
	in(t, func(w *world) {
		e := w.newEnd(w.a, rdmacm.PSTCP)
		w.errno(e.ResolveAddr(bg, netip.AddrPort{}, netip.AddrPort{}, timeout), syscall.EINVAL)
		w.errno(e.ResolveAddr(bg, at(addrA6, 0), at(addrB, port), timeout), syscall.EINVAL)
		w.errno(e.ResolveAddr(bg, at(addrB, 0), at(addrB, port), timeout), syscall.ENODEV)
		if e.PeerAddr() != (netip.AddrPort{}) || e.LocalAddr() != (netip.AddrPort{}) {
			t.Errorf("after refused calls the ID has the addresses %v and %v", e.LocalAddr(), e.PeerAddr())
		}
		w.ok(e.ResolveAddr(bg, at(addrA, 4242), at(addrB, port), timeout)) // C-ADDR-03
		e.expect(rdmacm.EventAddrResolved)
		// C-ADDR-10, C-ADDR-01, C-ADDR-02, C-QRY-02, C-QRY-04, C-QRY-03, C-QRY-01
		if e.LocalAddr() != at(addrA, 4242) || e.PeerAddr() != at(addrB, port) || e.DstPort() != port || e.Verbs() == nil {
			t.Errorf("%v %v", e.LocalAddr(), e.PeerAddr())
		}
		w.errno(e.ResolveRoute(bg, 0), syscall.EINVAL)
		w.ok(e.SetTOS(96))
		w.ok(e.ResolveRoute(bg, timeout))
		e.expect(rdmacm.EventRouteResolved)
		r := e.Route()
		// C-ROUTE-02, C-ADDR-07
		if len(r.PathRec) != 1 || r.SGID != verbs.GIDFromAddr(addrA) || r.DGID != verbs.GIDFromAddr(addrB) {
			t.Fatalf("%+v", r)
		}
		p := r.PathRec[0]
		if p.PKey != 0xFFFF || !p.Reversible || p.MTU != verbs.MTU4096 || p.HopLimit != 64 || p.TrafficClass != 96 ||
			p.PacketLifeTime != 16 ||
			p.FlowLabel != (4242*31+port)&0xFFFFF { // C-ROUTE-03, W-CMA-12, C-OPT-03
			t.Errorf("%+v", p)
		}
		e.close()

		bound := w.newEnd(w.a, rdmacm.PSTCP)
		w.ok(bound.BindAddr(at(addrA6, 0)))
		w.errno(bound.ResolveAddr(bg, netip.AddrPort{}, at(addrB, port), timeout), syscall.EINVAL)
		before := bound.LocalAddr()
		w.ok(bound.ResolveAddr(bg, at(addrA6, 1), at(addrB6, port), timeout))
		bound.expect(rdmacm.EventAddrResolved)
		if bound.LocalAddr() != before { // C-ADDR-05
			t.Errorf("the binding changed from %v to %v", before, bound.LocalAddr())
		}
		bound.close()

		none := rdmacm.NewHost()
		x := w.newEnd(none, rdmacm.PSTCP)
		w.ok(x.ResolveAddr(bg, netip.AddrPort{}, at(addrB, port), timeout))
		if ev := x.expect(rdmacm.EventAddrError); ev.Status != -int(syscall.ENODEV) { // C-ADDR-09
			t.Errorf("status %d, %v", ev.Status, ev.Err())
		}
		w.ok(x.ResolveAddr(bg, netip.AddrPort{}, at(addrB, port), timeout)) // C-ID-23
		x.expect(rdmacm.EventAddrError)
		x.close()
		w.ok(none.Close())
	})
}

func TestC_OPT_Options(t *testing.T) {
	in(t, func(w *world) {
		e := w.newEnd(w.a, rdmacm.PSTCP)
		for _, c := range []struct {
			level, name int
			value       []byte
			errno       syscall.Errno
		}{
			{0, 0, []byte{1}, 0}, {0, 0, []byte{1, 0}, syscall.EINVAL}, {0, 1, []byte{1, 0, 0, 0}, 0}, {0, 1, []byte{1},
				syscall.EINVAL},
			{0, 2, []byte{1, 0, 0, 0}, 0}, {0, 2, nil, syscall.EINVAL}, {0, 3, []byte{14}, 0}, {0, 3, []byte{32},
				syscall.EINVAL},
			// C-OPT-02
			{0, 4, []byte{1}, syscall.ENOSYS}, {2, 0, []byte{1}, syscall.ENOSYS}, {1, 1, nil, syscall.EINVAL}, {1, 2, nil,
				syscall.ENOSYS},
		} {
			if err := e.SetOption(c.level, c.name, c.value); c.errno != 0 {
				w.errno(err, c.errno)
			} else {
				w.ok(err)
			}
		}
		e.close()
		u := w.newEnd(w.a, rdmacm.PSUDP)
		w.errno(u.SetAckTimeout(5), syscall.EINVAL) // C-OPT-07
		u.close()
	})
}

func TestC_OPT_07_AckTimeout(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		c := w.newEnd(w.a, rdmacm.PSTCP)
		w.ok(c.SetAckTimeout(10))
		w.ok(c.ResolveAddr(bg, netip.AddrPort{}, at(addrB, port), timeout))
		c.expect(rdmacm.EventAddrResolved)
		w.ok(c.ResolveRoute(bg, timeout))
		c.expect(rdmacm.EventRouteResolved)
		if p := c.Route().PathRec[0]; p.PacketLifeTime != 9 {
			t.Errorf("packet life time %d", p.PacketLifeTime)
		}
		w.ok(c.CreateQP(nil, qpInit()))
		w.ok(c.Connect(bg, nil))
		ev := w.next(l.ch, rdmacm.EventConnectRequest)
		s := &end{ev.ID, w, l.ch}
		w.ok(s.CreateQP(nil, qpInit()))
		w.ok(s.SetAckTimeout(12))
		w.ok(s.Accept(bg, nil))
		w.ok(ev.Ack())
		c.expect(rdmacm.EventEstablished)
		s.expect(rdmacm.EventEstablished)
		ca, _, _ := c.QP().Query(0)
		sa, _, _ := s.QP().Query(0)
		if ca.Timeout != 10 || sa.Timeout != 12 { // C-OPT-01
			t.Errorf("timeouts %d and %d", ca.Timeout, sa.Timeout)
		}
		s.closeID()
		c.close()
		l.close()
	})
}

// pathData are two struct ibv_path_data, of which only the second counts: the way from host a to host b.
func pathData() []byte {
	path := make([]byte, 144)
	path[72] = 0x2B
	rec := path[80:]
	a, b := verbs.GIDFromAddr(addrA), verbs.GIDFromAddr(addrB)
	copy(rec[8:], b[:])
	copy(rec[24:], a[:])
	rec[47], rec[49], rec[50], rec[51], rec[54], rec[56] = 33, 0x81, 0xFF, 0xFF, 0x80|3, 0x80|14
	return path
}

func TestC_OPT_08_Path(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		c := w.newEnd(w.a, rdmacm.PSTCP)
		w.ok(c.ResolveAddr(bg, netip.AddrPort{}, at(addrB, port), timeout))
		c.expect(rdmacm.EventAddrResolved)
		path := pathData()
		b := verbs.GIDFromAddr(addrB)
		w.errno(c.SetOption(rdmacm.OptionIB, rdmacm.OptionIBPath, path[:72]), syscall.EINVAL)
		w.errno(c.SetOption(rdmacm.OptionIB, rdmacm.OptionIBPath, path[:71]), syscall.EINVAL)
		w.ok(c.SetOption(rdmacm.OptionIB, rdmacm.OptionIBPath, path))
		c.expect(rdmacm.EventRouteResolved)
		if p := c.Route().PathRec[0]; p.MTU != verbs.MTU1024 || p.HopLimit != 33 || p.PacketLifeTime != 14 || p.DGID != b ||
			!p.Reversible {
			t.Errorf("%+v", p)
		}
		w.ok(c.CreateQP(nil, qpInit()))
		w.ok(c.Connect(bg, nil))
		ev := w.next(l.ch, rdmacm.EventConnectRequest)
		s := &end{ev.ID, w, l.ch}
		w.ok(s.CreateQP(nil, qpInit()))
		w.ok(s.Accept(bg, nil))
		w.ok(ev.Ack())
		c.expect(rdmacm.EventEstablished)
		s.expect(rdmacm.EventEstablished)
		if sa, _, _ := s.QP().Query(0); sa.PathMTU != verbs.MTU1024 { // W-CM-07
			t.Errorf("path MTU %v", sa.PathMTU)
		}
		s.closeID()
		c.close()
		l.close()
	})
}
