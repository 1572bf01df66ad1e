package rdmacm_test

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// The device is removed: each of its IDs gets the event and can only be closed, and the host can open the device
// again.
func TestC_EVT_23_DeviceRemoval(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		wild := w.newEnd(w.b, rdmacm.PSTCP)
		w.ok(wild.BindAddr(at(netip.IPv4Unspecified(), port+1)))
		w.ok(wild.Listen(0))
		c, s := w.connected(l, at(addrB, port))
		w.b.Remove(s.Verbs())
		w.b.Remove(l.Verbs()) // once more, nothing happens
		for range 2 {         // l and s, in whatever order
			l.expect(rdmacm.EventDeviceRemoval)
		}
		l.none()
		wild.none()
		for name, err := range map[string]error{
			"disconnect": s.Disconnect(bg), "listen": l.Listen(1), "notify": s.Notify(verbs.EventCommEst),
			"establish": s.Establish(),
		} {
			if !errors.Is(err, syscall.EINVAL) {
				t.Errorf("%s: %v", name, err)
			}
		}
		s.closeID()
		l.close()
		// The listener on all devices is still there, without a device.
		e := w.resolved(rdmacm.PSTCP, at(addrB, port+1))
		w.ok(e.CreateQP(nil, qpInit()))
		w.ok(e.Connect(bg, nil))
		e.expect(rdmacm.EventUnreachable)
		e.close()
		wild.close()
		c.close()
	})
}

// A call that waits on a synchronous ID ends with ENODEV.
func TestC_SYNC_03_DeviceRemoval(t *testing.T) {
	in(t, func(w *world) {
		w.fab.Cut(addrA, addrB)
		res := must(rdmacm.GetAddrInfo(bg, addrB.String(), "7471", nil))(w)
		id := must(w.a.CreateEP(bg, res, nil, qpInit()))(w)
		go func() {
			time.Sleep(time.Second)
			w.a.Move(id.Verbs(), true) // a hint that nobody waits for
			w.a.Remove(id.Verbs())
		}()
		w.errno(id.Connect(bg, nil), syscall.ENODEV)
		w.ok(id.Close())
	})
}

// The hardware's address changes, or the ID's own: ADDR_CHANGE is a hint, after which everything works as before.
func TestC_EVT_26_AddrChange(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		c, s := w.connected(l, at(addrB, port))
		w.b.Move(s.Verbs(), false) // the addresses are still there
		l.none()
		w.b.Move(s.Verbs(), true)
		for range 2 {
			l.expect(rdmacm.EventAddrChange)
		}
		w.ok(c.Disconnect(bg))
		s.expect(rdmacm.EventDisconnected)
		w.ok(s.Disconnect(bg))
		c.expect(rdmacm.EventDisconnected)
		c.expect(rdmacm.EventTimewaitExit)
		s.expect(rdmacm.EventTimewaitExit)
		s.closeID()
		c.close()
		l.close()
	})
}

// A listener on all devices listens on new ones too.
func TestC_LIS_05_LateDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, fab: rdmatest.New(rdmatest.Config{RealTime: true})}
		w.a = w.host("a", addrA)
		early, late := must(w.fab.NewDevice("b", addrB6))(w), must(w.fab.NewDevice("late", addrB))(w)
		var both atomic.Bool
		w.b = rdmacm.NewGrowingHost(func() ([]*verbs.Device, error) {
			if both.Load() {
				return []*verbs.Device{early, late}, nil
			}
			return []*verbs.Device{early}, nil
		})
		l := w.listen(at(netip.IPv6Unspecified(), port), 0)
		both.Store(true)
		time.Sleep(2 * time.Second)
		c, s := w.connected(l, at(addrB, port))
		if name := s.Verbs().Device().Name(); name != "late" {
			t.Errorf("the request came to device %s", name)
		}
		s.closeID()
		c.expect(rdmacm.EventDisconnected)
		c.close()
		l.close()
		time.Sleep(2 * time.Second) // nobody looks for devices any more
		w.ok(w.a.Close())
		w.ok(w.b.Close())
	})
}

// Addresses of the family AF_IB: GIDs and service IDs. There is no header, so the program has its room.
func TestC_QRY_06_AFIB(t *testing.T) {
	in(t, func(w *world) {
		sid := rdmacm.ServiceID(rdmacm.PSTCP, port)
		gid := verbs.GIDFromAddr(addrB)
		l := w.newEnd(w.b, rdmacm.PSTCP)
		w.errno(l.BindAddrIB(rdmacm.SockaddrIB{GID: gid, SID: rdmacm.ServiceID(rdmacm.PSUDP, port)}), syscall.EPROTONOSUPPORT)
		w.errno(l.BindAddrIB(rdmacm.SockaddrIB{GID: gid, SID: sid, PKey: 0x8001}), syscall.EINVAL)
		w.ok(l.BindAddrIB(rdmacm.SockaddrIB{GID: gid, SID: sid, SIDMask: ^uint64(0)}))
		if l.SrcPort() != port || l.LocalAddr() != at(addrB, port) || l.LocalAddrIB().SID != sid ||
			l.LocalAddrIB().GID != gid || !l.IsAFIB() {
			t.Errorf("bound to %v, %+v", l.LocalAddr(), l.LocalAddrIB())
		}
		if l.PeerAddrIB() != (rdmacm.SockaddrIB{}) {
			t.Errorf("a peer %+v", l.PeerAddrIB())
		}
		w.ok(l.Listen(0))
		c := w.newEnd(w.a, rdmacm.PSTCP)
		w.ok(c.ResolveAddrIB(bg, nil, rdmacm.SockaddrIB{GID: gid, SID: sid}, timeout))
		c.expect(rdmacm.EventAddrResolved)
		w.ok(c.ResolveRoute(bg, timeout))
		c.expect(rdmacm.EventRouteResolved)
		w.ok(c.CreateQP(nil, qpInit()))
		w.errno(c.Connect(bg, &rdmacm.ConnParam{PrivateData: make([]byte, 93)}), syscall.EINVAL) // W-CMA-14, T-08
		private := make([]byte, 92)
		for i := range private {
			private[i] = byte(i + 0x80)
		}
		w.ok(c.Connect(bg, &rdmacm.ConnParam{PrivateData: private}))
		ev := w.next(l.ch, rdmacm.EventConnectRequest)
		if string(ev.Conn.PrivateData) != string(private) {
			t.Errorf("private data %x", ev.Conn.PrivateData)
		}
		s := &end{ev.ID, w, l.ch}
		if !s.IsAFIB() || s.LocalAddrIB().SID != sid || s.PeerAddr().Addr() != addrA || s.DstPort() != 0 {
			t.Errorf("a request from %v to %v", s.PeerAddr(), s.LocalAddr())
		}
		w.ok(s.CreateQP(nil, qpInit()))
		w.ok(s.Accept(bg, nil))
		w.ok(ev.Ack())
		c.expect(rdmacm.EventEstablished)
		s.expect(rdmacm.EventEstablished)
		s.closeID()
		c.expect(rdmacm.EventDisconnected)
		c.close()
		l.close()
	})
}

// A listener's waits end with its device, and so do those that begin later.
func TestListenerOfARemovedDevice(t *testing.T) {
	for name, wait := range map[string]func(*rdmacm.Listener, context.Context) (*rdmacm.ID, error){
		"Accept": (*rdmacm.Listener).Accept, "Request": (*rdmacm.Listener).Request,
	} {
		in(t, func(w *world) {
			l := must(rdmacm.Listen(bg, at(addrB, port).String(), &rdmacm.Options{Host: w.b}))(w)
			const waits = 3
			result, soon := make(chan error, waits), w.soon()
			for range waits {
				go func() {
					_, err := wait(l, soon)
					result <- err
				}()
			}
			synctest.Wait()
			w.b.Remove(l.ID().Verbs())
			for range waits {
				w.errno(<-result, syscall.ENODEV)
			}
			if _, err := wait(l, w.soon()); err == nil || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s, later: %v", name, err)
			}
			w.ok(l.Close())
		})
	}
}

// A request between GIDs has no IP header, also if the program's data begins with the version of one, but not of IPv4
// or IPv6.
func TestRequestBetweenGIDsWithDataLikeAHeader(t *testing.T) {
	in(t, func(w *world) {
		target := rdmacm.SockaddrIB{GID: verbs.GIDFromAddr(addrB), SID: rdmacm.ServiceID(rdmacm.PSTCP, port)}
		l := w.newEnd(w.b, rdmacm.PSTCP)
		w.ok(l.BindAddrIB(target))
		w.ok(l.Listen(0))
		for _, private := range []string{"", "\x00\x50", "\x01\x70"} {
			c := w.newEnd(w.a, rdmacm.PSTCP)
			w.ok(c.ResolveAddrIB(bg, nil, target, timeout))
			c.expect(rdmacm.EventAddrResolved)
			w.ok(c.ResolveRoute(bg, timeout))
			c.expect(rdmacm.EventRouteResolved)
			w.ok(c.Connect(bg, &rdmacm.ConnParam{PrivateData: []byte(private), QPNum: 5}))
			ev := w.next(l.ch, rdmacm.EventConnectRequest)
			if s := ev.ID; !s.IsAFIB() || s.LocalAddr() != at(addrB, port) || s.PeerAddr() != at(addrA, 0) ||
				len(ev.Conn.PrivateData) != 92 {
				t.Errorf("%q: AF_IB %v, from %v to %v, %d bytes", private, s.IsAFIB(), s.PeerAddr(), s.LocalAddr(),
					len(ev.Conn.PrivateData))
			}
			w.ok(ev.Ack())
			w.ok(ev.ID.Close())
			c.expect(rdmacm.EventRejected)
			c.close()
		}
		l.close()
	})
}
