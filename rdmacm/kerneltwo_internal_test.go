package rdmacm

import (
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// Several adapters, which share the kernel's connection manager, and its numbers of interfaces.

var secondAdapter = netip.MustParseAddr("198.18.0.3")

// One listener of the kernel serves all adapters, as long as one of them is there.
func TestKernelListensOnTwoAdapters(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		l := w.id(PSTCP)
		w.ok(l.BindAddr(netip.AddrPortFrom(netip.IPv4Unspecified(), 5000)))
		w.ok(l.Listen(2))
		w.called("create 1 TCP RC", "bind 1 0.0.0.0:5000 0", "listen 1 2", "query 1")
		if len(l.listeners) != 2 {
			t.Errorf("%d listeners", len(l.listeners))
		}
		w.h.mu.Lock()
		devices := []*device{w.h.devices[0], w.h.devices[1]}
		w.h.mu.Unlock()
		devices[0].remove()
		w.called()
		w.place.GUID = devices[1].vdev.GUID()
		w.request(l)
		id := w.next(EventConnectRequest).ID
		if id.Verbs() != devices[1].ctx {
			t.Errorf("the request is at %v", id.Verbs())
		}
		w.ok(id.Close())
		w.calls = nil
		devices[1].remove()
		w.called("destroy 1")
		w.none()
		w.ok(l.Close())
		w.called()
	}, secondAdapter)
}

// The kernel chooses the adapter, unless the ID has objects of another one.
func TestKernelChoosesTheAdapter(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		w.place.GUID, w.place.Local = w.devs[1].GUID(), netip.AddrPortFrom(secondAdapter, 4243)
		id := w.resolvedBy(PSTCP)
		w.h.mu.Lock()
		first, second := w.h.devices[0], w.h.devices[1]
		w.h.mu.Unlock()
		if id.Verbs() != second.ctx || id.LocalAddr() != w.place.Local || len(first.users) != 0 || len(second.users) != 1 {
			t.Errorf("at %v: %d and %d users", id.LocalAddr(), len(first.users), len(second.users))
		}
		w.ok(id.Close())
		for _, object := range []string{"QP", "SRQ", ""} {
			bound := w.id(PSTCP)
			w.ok(bound.BindAddr(netip.AddrPortFrom(fuzzHere, 0)))
			switch object {
			case "QP":
				w.ok(bound.CreateQP(nil, &verbs.QPInitAttr{Cap: kernelCaps}))
			case "SRQ":
				w.ok(bound.CreateSRQ(nil, &verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: 1, MaxSGE: 1}}))
			}
			w.ok(bound.ResolveAddr(w.Context(), netip.AddrPort{}, kernelPeer, time.Second))
			w.tellID(bound, EventAddrResolved, 0)
			if object == "" {
				w.next(EventAddrResolved)
			} else if ev := w.next(EventAddrError); ev.Status != -int(syscall.ENODEV) || bound.Verbs() != first.ctx {
				t.Errorf("with a %s: status %d, at %v", object, ev.Status, bound.Verbs())
			}
			if bound.srq != nil {
				w.ok(bound.DestroySRQ())
			}
			w.discard(bound)
		}
	}, secondAdapter)
}

// The kernel gets the number of the interface that the zone of a link-local address names.
func TestKernelScope(t *testing.T) {
	lo, err := net.InterfaceByIndex(1)
	if err != nil {
		t.Skip(err)
	}
	local := netip.MustParseAddr("fe80::1234")
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		for zone, scope := range map[string]int{lo.Name: 1, "none0": 0} {
			l := w.id(PSTCP)
			w.ok(l.BindAddr(netip.AddrPortFrom(local.WithZone(zone), 5000)))
			w.ok(l.Listen(1))
			if want := fmt.Sprintf(" [fe80::1234]:5000 %d", scope); w.calls[1][len("bind 1"):] != want {
				t.Errorf("%s, want%s", w.calls[1], want)
			}
			w.ok(l.Close())
			w.calls = nil
		}
	}, local)
}
