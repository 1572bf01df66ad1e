package rdmacm

import (
	"errors"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/cm"
	"github.com/verbena-rdma/verbena/internal/ucma"
	"github.com/verbena-rdma/verbena/verbs"
)

// Steps of connections that the kernel makes, when they end otherwise than the program has wanted.

// Disconnect waits for the event of the end, which is still to come or to be read. It does not wait for one that the
// program has read.
func TestKernelDisconnectWaitsForTheEvent(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		id := w.routed(PSTCP, true)
		for _, c := range []struct {
			conn   connState
			unread bool
			want   bool
		}{
			{connEstablished, false, true}, {connAccepted, false, true}, {connPeerLeft, true, true},
			{connPeerLeft, false, false}, {connDisconnected, true, true}, {connDisconnected, false, false},
		} {
			id.mu.Lock()
			id.conn = c.conn
			if c.unread {
				id.push(&Event{Type: EventDisconnected})
			}
			wait, err := id.disconnectByKernel("disconnect")
			id.mu.Unlock()
			if wait != c.want || err != nil {
				t.Errorf("%v, an event is unread %v: waits %v, %v, want %v", c.conn, c.unread, wait, err, c.want)
			}
			if c.unread {
				w.next(EventDisconnected)
			}
		}
		id.conn = connNone
		if wait, err := id.disconnectByKernel("disconnect"); wait || !errors.Is(err, syscall.EINVAL) {
			t.Errorf("without connection: waits %v, %v", wait, err)
		}
		w.discard(id)
	})
}

// The peer of a look-up refuses with a status above 0 and data; a time-out has neither.
func TestKernelLookupThatFails(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		for status, want := range map[int32]string{1: "why", 2: "why", -int32(syscall.ETIMEDOUT): ""} {
			id := w.routed(PSUDP, true)
			w.ok(id.Connect(w.Context(), nil))
			ev := &ucma.Event{UID: id.uid(), Type: uint32(EventUnreachable), Status: status}
			ev.SetUD(&ucma.UDParam{Private: []byte("why")})
			w.tell(ev)
			if ev := w.next(EventUnreachable); ev.Status != int(status) || string(ev.UD.PrivateData) != want {
				t.Errorf("status %d: %+v", status, ev)
			}
			w.discard(id)
		}
	})
}

// An ID whose address could not be resolved has no device any more, if it had none before.
func TestKernelForgetsTheDeviceOfAnAddress(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		id := w.id(PSTCP)
		for range 2 {
			w.ok(id.ResolveAddr(w.Context(), netip.AddrPort{}, kernelPeer, time.Second))
			w.tellID(id, EventAddrError, -int32(syscall.ENETUNREACH))
			w.next(EventAddrError)
			if id.Verbs() != nil || id.LocalAddr().Addr() != netip.IPv4Unspecified() || id.wildcard.IsValid() {
				t.Errorf("the device is %v, the address %v", id.Verbs(), id.LocalAddr())
			}
		}
		w.discard(id)
	})
}

// A path whose MTU the port cannot have is not given to the kernel.
func TestKernelPathMTUOfThePort(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		id := w.resolvedBy(PSTCP)
		w.calls = nil
		id.pathMTU = verbs.MTU4096 + 1
		w.ok(id.ResolveRoute(w.Context(), time.Second))
		w.called()
		if ev := w.next(EventRouteError); ev.Status != -int(syscall.EINVAL) {
			t.Errorf("status %d", ev.Status)
		}
		w.discard(id)
	})
}

// A port that the kernel refuses for another reason than its use is not replaced, though the program has not read it.
func TestKernelPortThatIsRefused(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		for errno, taken := range map[syscall.Errno]bool{syscall.EACCES: false, syscall.EADDRINUSE: true} {
			for _, unread := range []bool{true, false} {
				l := w.id(PSTCP)
				w.ok(l.BindAddr(netip.AddrPortFrom(fuzzHere, 0)))
				l.portUnread = unread
				w.refuse(errno, "listen")
				l.mu.Lock()
				w.h.mu.Lock()
				l.backlog = cm.NewBacklog(1)
				err := l.listenByKernel(l.dev)
				w.h.mu.Unlock()
				l.mu.Unlock()
				if !errors.Is(err, errno) || errors.Is(err, errTaken) != (taken && unread) {
					t.Errorf("%v, not read %v: %v", errno, unread, err)
				}
				w.refuse(0, "listen")
				w.ok(l.Close())
			}
		}
	})
}

// A device that the kernel's choice leaves is closed if it has gone.
func TestKernelLeavesADeviceThatHasGone(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		w.place.GUID, w.place.Local = w.devs[1].GUID(), netip.AddrPortFrom(secondAdapter, 4243)
		id := w.id(PSTCP)
		w.ok(id.ResolveAddr(w.Context(), netip.AddrPort{}, kernelPeer, time.Second))
		w.h.mu.Lock()
		first := id.dev
		first.gone = true
		w.h.mu.Unlock()
		w.tellID(id, EventAddrResolved, 0)
		w.next(EventAddrResolved)
		w.h.mu.Lock()
		if slices.Contains(w.h.devices, first) || id.dev == first {
			t.Error("the device is kept")
		}
		w.h.mu.Unlock()
		w.discard(id)
	}, secondAdapter)
}

// A route that the kernel does not find can be asked for again.
func TestKernelRouteThatIsNotFound(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		id := w.resolvedBy(PSTCP)
		for range 2 {
			w.ok(id.ResolveRoute(w.Context(), time.Second))
			w.tellID(id, EventRouteError, -int32(syscall.ENETUNREACH))
			if ev := w.next(EventRouteError); ev.Status != -int(syscall.ENETUNREACH) || id.haveRoute {
				t.Errorf("status %d, a route %v", ev.Status, id.haveRoute)
			}
		}
		w.discard(id)
	})
}

// The result of a join that comes after the ID has left the group is not reported.
func TestKernelGroupThatWasLeft(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		id := w.grouped()
		w.ok(id.JoinMulticast(w.Context(), netip.AddrPortFrom(kernelGroup, 0), nil))
		g := id.groups[kernelGroup]
		w.ok(id.LeaveMulticast(netip.AddrPortFrom(kernelGroup, 0)))
		id.mu.Lock()
		for _, event := range []EventType{EventMulticastJoin, EventMulticastError} {
			ev := &ucma.Event{Type: uint32(event)}
			ev.SetUD(service(kernelGroup))
			id.onKernelGroup(ev, g)
		}
		id.mu.Unlock()
		w.none()
		w.ok(id.Close())
	})
}

// A listener does not extend to an adapter whose connection manager cannot be opened.
func TestKernelListenerWithoutConnectionManager(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		_, err := w.h.Devices()
		w.ok(err)
		real := w.h.openKernel
		w.h.openKernel = func() (kernelChannel, error) { return nil, syscall.EMFILE }
		l := w.id(PSTCP)
		l.mu.Lock()
		l.state, l.local = stListen, netip.AddrPortFrom(netip.IPv4Unspecified(), 5000)
		l.mu.Unlock()
		l.extendTo(w.h.devices[0])
		if len(l.listeners) != 0 {
			t.Errorf("%d listeners", len(l.listeners))
		}
		w.ok(l.Close())
		w.h.openKernel = real
	})
}

// An ID that the kernel has for a group listens too.
func TestKernelListensWithAGroup(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		id := w.grouped()
		w.ok(id.JoinMulticast(w.Context(), netip.AddrPortFrom(kernelGroup, 0), nil))
		w.calls = nil
		w.ok(id.Listen(3))
		w.called("listen 1 3", "query 1")
		w.ok(id.Close())
	})
}

// An adapter that is in use is watched for its removal.
func TestKernelDeviceIsWatched(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		id := w.id(PSTCP)
		w.ok(id.BindAddr(netip.AddrPortFrom(fuzzHere, 0)))
		w.h.mu.Lock()
		if d := id.dev; !d.up || d.async == nil {
			t.Errorf("the device has started: %v; it is watched: %v", d.up, d.async != nil)
		}
		w.h.mu.Unlock()
		w.ok(id.Close())
	})
}
