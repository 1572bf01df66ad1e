package rdmacm

import (
	"context"
	"fmt"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/ucma"
	"github.com/verbena-rdma/verbena/observe"
	"github.com/verbena-rdma/verbena/verbs"
)

// The active side of connections that the kernel makes: what it is asked, and what its events mean.

var kernelPeer = netip.AddrPortFrom(netip.MustParseAddr("198.18.0.2"), 7471)

var kernelCaps = verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}

// resolvedBy makes an ID whose address the kernel has resolved.
func (w *kernelWorld) resolvedBy(ps PortSpace) *ID {
	w.Helper()
	id := w.id(ps)
	w.ok(id.ResolveAddr(w.Context(), netip.AddrPort{}, kernelPeer, time.Second))
	w.tellID(id, EventAddrResolved, 0)
	w.next(EventAddrResolved)
	return id
}

// routed makes an ID that may Connect, with a QP unless bare is set.
func (w *kernelWorld) routed(ps PortSpace, bare bool) *ID {
	w.Helper()
	id := w.resolvedBy(ps)
	w.ok(id.ResolveRoute(w.Context(), time.Second))
	w.tellID(id, EventRouteResolved, 0)
	w.next(EventRouteResolved)
	if !bare {
		w.ok(id.CreateQP(nil, &verbs.QPInitAttr{Cap: kernelCaps}))
	}
	w.mu.Lock()
	w.calls = nil
	w.mu.Unlock()
	return id
}

// discard closes an ID with its QP.
func (w *kernelWorld) discard(id *ID) {
	w.Helper()
	if id.QP() != nil {
		w.ok(id.DestroyQP())
	}
	w.ok(id.Close())
}

// Options that are set after ResolveAddr, and before Accept, reach the kernel's ID too.
func TestKernelGetsLaterOptions(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		id := w.resolvedBy(PSTCP)
		w.calls = nil
		w.ok(id.SetTOS(7))
		w.ok(id.SetTOS(0))
		w.ok(id.SetAckTimeout(9))
		w.called("option 1 0 [7]", "option 1 0 [0]", "option 1 3 [9]")
		w.refuse(syscall.ENOSYS, "option")
		w.errno(id.SetAckTimeout(10), syscall.ENOSYS)
		w.refuse(0, "option")
		w.ok(id.Close())

		l := w.listening(PSTCP, netip.AddrPortFrom(fuzzHere, 5000), 4)
		id = w.requested(l, false)
		w.ok(id.SetAckTimeout(11))
		if want := fmt.Sprintf("option %d 3 [11]", id.kernelID); len(w.calls) != 1 || w.calls[0] != want {
			t.Errorf("%v, want %s", w.calls, want)
		}
		w.discard(id)
		w.ok(l.Close())
	})
}

// The options of the ID reach the kernel's ID, which is made with the address's resolution. The kernel chooses the
// port, as the program has not read that of the package.
func TestKernelResolves(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		id := w.id(PSTCP)
		w.ok(id.SetTOS(7))
		w.ok(id.SetReuseAddr(true))
		w.ok(id.SetAFOnly(true))
		w.ok(id.SetAckTimeout(9))
		w.ok(id.ResolveAddr(w.Context(), netip.AddrPort{}, kernelPeer, 1500*time.Millisecond))
		yes := fmt.Sprintf("%v", nativeTrue)
		w.called("create 1 TCP RC", "option 1 0 [7]", "option 1 1 "+yes, "option 1 2 "+yes, "option 1 3 [9]",
			"resolve 1 198.18.0.1:0 198.18.0.2:7471 0 1501")
		w.none()
		w.errno(id.ResolveRoute(w.Context(), time.Second), syscall.EINVAL)
		w.tellID(id, EventAddrResolved, 0)
		if ev := w.next(EventAddrResolved); ev.Status != 0 || ev.ID != id {
			t.Errorf("%+v", ev)
		}
		if id.LocalAddr() != netip.AddrPortFrom(fuzzHere, 4242) || id.PortNum() != 1 {
			t.Errorf("at %v, port %d", id.LocalAddr(), id.PortNum())
		}
		w.tellID(id, EventAddrResolved, 0) // once only
		w.tellID(id, EventRouteResolved, 0)
		w.none()
		w.called("query 1")
		w.ok(id.ResolveRoute(w.Context(), 999*time.Millisecond))
		w.called("route 1 1000")
		w.tellID(id, EventRouteResolved, 0)
		w.next(EventRouteResolved)
		r := id.Route().PathRec
		if len(r) != 1 || r[0].TrafficClass != 7 || r[0].PacketLifeTime != 8 || r[0].MTU != verbs.MTU4096 ||
			r[0].DGID != verbs.GIDFromAddr(kernelPeer.Addr()) {
			t.Errorf("%+v", r)
		}
		w.ok(id.Close())
		w.called("destroy 1")
	})
}

// A port that the program has chosen is the kernel's too.
func TestKernelResolvesFromAPort(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		id := w.id(PSTCP)
		w.ok(id.ResolveAddr(w.Context(), netip.AddrPortFrom(fuzzHere, 5000), kernelPeer, 0))
		w.called("create 1 TCP RC", "resolve 1 198.18.0.1:5000 198.18.0.2:7471 0 2001")
		w.ok(id.Close())
	})
}

func TestKernelMilliseconds(t *testing.T) {
	for d, want := range map[time.Duration]uint32{
		0: 2001, -time.Second: 2001, 1: 1, time.Millisecond: 2, time.Hour: 3600001, 1000 * time.Hour: 1 << 31,
		1 << 62: 1 << 31,
	} {
		if got := milliseconds(d); got != want {
			t.Errorf("%v: %d ms, want %d", d, got, want)
		}
	}
}

// A command that fails makes EventAddrError, as the kernel's own event does, and the ID can resolve again.
func TestKernelDoesNotResolve(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		id := w.id(PSTCP)
		w.ok(id.SetTOS(1))
		resolve := func(want syscall.Errno) {
			t.Helper()
			w.ok(id.ResolveAddr(w.Context(), netip.AddrPort{}, kernelPeer, time.Second))
			if want == 0 {
				return
			}
			if ev := w.next(EventAddrError); ev.Status != -int(want) {
				t.Errorf("status %d, want %v", ev.Status, want)
			}
		}
		for _, command := range []string{"create", "option", "resolve"} {
			w.refuse(syscall.ENOBUFS, command)
			resolve(syscall.ENOBUFS)
			w.refuse(0, command)
		}
		if len(w.ids) > 0 {
			t.Errorf("IDs %v are left", w.ids)
		}
		resolve(0)
		w.calls = nil
		w.tellID(id, EventAddrError, -int32(syscall.EHOSTUNREACH))
		w.called("destroy 3")
		if ev := w.next(EventAddrError); ev.Status != -int(syscall.EHOSTUNREACH) {
			t.Errorf("status %d", ev.Status)
		}
		w.refuse(syscall.ENXIO, "query")
		resolve(0)
		w.tellID(id, EventAddrResolved, 0)
		if ev := w.next(EventAddrError); ev.Status != -int(syscall.ENXIO) {
			t.Errorf("status %d", ev.Status)
		}
		w.refuse(0, "query")
		guid := w.place.GUID
		w.place.GUID = verbs.GUID{1}
		resolve(0)
		w.tellID(id, EventAddrResolved, 0)
		if ev := w.next(EventAddrError); ev.Status != -int(syscall.ENODEV) {
			t.Errorf("an unknown device: status %d", ev.Status)
		}
		w.place.GUID = guid
		resolve(0)
		w.tellID(id, EventAddrResolved, 0)
		w.next(EventAddrResolved)
		w.ok(id.Close())
	})
}

func TestKernelDoesNotRoute(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		id := w.resolvedBy(PSTCP)
		w.refuse(syscall.ENOMEM, "route")
		w.errno(id.ResolveRoute(w.Context(), time.Second), syscall.ENOMEM)
		w.refuse(0, "route")
		w.ok(id.ResolveRoute(w.Context(), time.Second))
		w.tellID(id, EventRouteError, -int32(syscall.ETIMEDOUT))
		if ev := w.next(EventRouteError); ev.Status != -int(syscall.ETIMEDOUT) || len(id.Route().PathRec) != 0 {
			t.Errorf("status %d, %v", ev.Status, id.Route())
		}
		w.ok(id.Close())

		gids := w.id(PSTCP)
		w.ok(gids.resolveAddr(w.Context(), netip.AddrPort{}, kernelPeer, time.Second, true, 0))
		if ev := w.next(EventAddrError); ev.Status != -int(syscall.EOPNOTSUPP) {
			t.Errorf("GIDs as addresses: status %d", ev.Status)
		}
		w.ok(gids.Close())
	})
}

// A fixed path MTU, and a path that the program gives, become a path of the kernel's ID instead of a resolved one.
func TestKernelTakesAPath(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		id := w.resolvedBy(PSTCP)
		w.ok(id.SetPathMTU(verbs.MTU512))
		w.refuse(syscall.ENODEV, "path")
		w.errno(id.ResolveRoute(w.Context(), time.Second), syscall.ENODEV)
		w.refuse(0, "path")
		w.calls = nil
		w.ok(id.ResolveRoute(w.Context(), time.Second))
		w.mu.Lock()
		path := id.makePath(verbs.MTU512)
		w.mu.Unlock()
		w.called(fmt.Sprintf("path %d 1 1 %x", id.kernelID, path.data()))
		w.none() // before the kernel's event
		w.tellID(id, EventRouteResolved, 0)
		w.next(EventRouteResolved)
		if r := id.Route(); len(r.PathRec) != 1 || r.PathRec[0] != path || path.MTU != verbs.MTU512 {
			t.Errorf("the route is %+v, want %+v", r, path)
		}
		w.ok(id.Close())

		id = w.resolvedBy(PSTCP)
		path.TrafficClass, path.MTU, path.SL = 0x60, verbs.MTU256, 3
		w.ok(id.SetOption(OptionIB, OptionIBPath, path.data()))
		w.tellID(id, EventRouteResolved, 0)
		w.next(EventRouteResolved)
		if r := id.Route(); len(r.PathRec) != 1 || r.PathRec[0] != path {
			t.Errorf("the route is %+v, want %+v", r, path)
		}
		w.ok(id.Close())
	})
}

// The request has the program's parameters; the reply moves the QP to RTS with the kernel's attributes.
func TestKernelConnects(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		id := w.routed(PSTCP, false)
		w.ok(id.SetLocalECE(ECE{VendorID: 3, Options: 4}))
		long := make([]byte, 57)
		w.errno(id.Connect(w.Context(), &ConnParam{PrivateData: long}), syscall.EINVAL)
		w.refuse(syscall.ENOBUFS, "connect")
		w.errno(id.Connect(w.Context(), nil), syscall.ENOBUFS)
		w.refuse(0, "connect")
		w.calls = nil
		w.ok(id.Connect(w.Context(), &ConnParam{PrivateData: []byte("hi"), ResponderResources: 2, InitiatorDepth: 3,
			RetryCount: 9, RNRRetryCount: 8, FlowControl: true}))
		w.called("connect 1 qp " + fmt.Sprint(id.QP().QPN()) + ` srq false "hi" flow true rd 2/3 retry 7/7 ece 3/4`)
		w.errno(id.Connect(w.Context(), nil), syscall.EINVAL)
		w.none()

		w.tellParam(id, EventConnectResponse, offered())
		w.called("attr 1 INIT", "attr 1 RTR", "attr 1 RTS", "accept 1 1 none ece 0/0")
		ev := w.next(EventEstablished)
		checkOffer(t, ev.Conn)
		if ev.ECE != (ECE{VendorID: 11, Options: 22}) || id.RemoteECE() != ev.ECE {
			t.Errorf("ECE %v, %v", ev.ECE, id.RemoteECE())
		}
		a, _, err := id.QP().Query(0)
		w.ok(err)
		if a.QPState != verbs.QPSRTS || a.DestQPNum != 77 || a.MaxDestRdAtomic != 5 || a.MaxRdAtomic != 6 ||
			a.PathMTU != verbs.MTU1024 || a.Timeout != 14 || a.RQPSN != 5 || a.SQPSN != 6 {
			t.Errorf("%+v", a)
		}
		w.tellParam(id, EventConnectResponse, offered()) // once only
		w.none()
		w.calls = nil
		w.ok(id.Disconnect(w.Context()))
		w.called("disconnect 1")
		if a, _, _ := id.QP().Query(0); a.QPState != verbs.QPSErr {
			t.Errorf("the QP is in %v after Disconnect", a.QPState)
		}
		w.tellID(id, EventDisconnected, -int32(syscall.ETIMEDOUT))
		if ev := w.next(EventDisconnected); ev.Status != -int(syscall.ETIMEDOUT) {
			t.Errorf("status %d", ev.Status)
		}
		w.tellID(id, EventDisconnected, 0) // once only
		w.none()
		w.tellID(id, EventTimewaitExit, 0)
		w.next(EventTimewaitExit)
		w.ok(id.Disconnect(w.Context()))
		w.called()
		w.discard(id)
		w.called("destroy 1")
	})
}

// A connection that the kernel makes is observed with its duration, as others are.
func TestKernelConnectionIsObserved(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		events := make(chan observe.Event, 10)
		defer observe.Handle(func(e observe.Event) {
			if e.Name == observe.Connect && e.Local.Addr() == fuzzHere {
				events <- e
			}
		})()
		id := w.routed(PSTCP, false)
		begin := time.Now()
		w.ok(id.Connect(w.Context(), nil))
		sent := time.Now()
		time.Sleep(time.Millisecond)
		w.tellParam(id, EventConnectResponse, offered())
		w.next(EventEstablished)
		e := <-events
		if e.Duration < e.Time.Sub(sent) || e.Duration > e.Time.Sub(begin) || e.Err != nil || e.Peer.Port() == 0 {
			t.Errorf("%+v", e)
		}
		w.discard(id)
	})
}

// Without a QP the program connects its own, between EventConnectResponse and Establish.
func TestKernelConnectsWithoutQP(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		id := w.routed(PSTCP, true)
		w.errno(id.Connect(w.Context(), nil), syscall.EINVAL)
		w.ok(id.Connect(w.Context(), &ConnParam{QPNum: 33, SRQ: true}))
		w.called(`connect 1 qp 33 srq true "" flow false rd 128/128 retry 7/7 ece 0/0`)
		w.errno(id.Establish(), syscall.EINVAL)
		w.tellParam(id, EventConnectResponse, offered())
		checkOffer(t, w.next(EventConnectResponse).Conn)
		a := verbs.QPAttr{QPState: verbs.QPSRTR}
		mask, err := id.InitQPAttr(&a)
		if err != nil || mask&verbs.QPAttrDestQPN == 0 || a.DestQPNum != 77 {
			t.Errorf("%v, %+v, %v", mask, a, err)
		}
		w.refuse(syscall.ENOTCONN, "accept", "attr")
		w.errno(id.Establish(), syscall.ENOTCONN)
		b := verbs.QPAttr{QPState: verbs.QPSRTR}
		if _, err := id.InitQPAttr(&b); err == nil || b.DestQPNum != 0 {
			t.Errorf("%v, %+v", err, b)
		}
		w.refuse(0, "accept", "attr")
		w.calls = nil
		w.ok(id.Establish())
		w.called("accept 1 1 none ece 0/0")
		w.errno(id.Establish(), syscall.EINVAL)
		w.tellID(id, EventDisconnected, 0)
		w.next(EventDisconnected)
		w.ok(id.Disconnect(w.Context())) // agrees
		w.called("disconnect 1")
		w.ok(id.Close())
	})
}

// Whatever fails after the reply refuses the connection and is EventConnectError.
func TestKernelConnectionFails(t *testing.T) {
	for _, command := range []string{"attr", "accept"} {
		inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
			id := w.routed(PSTCP, false)
			w.ok(id.Connect(w.Context(), nil))
			w.refuse(syscall.EPROTO, command)
			w.tellParam(id, EventConnectResponse, offered())
			if ev := w.next(EventConnectError); ev.Status != -int(syscall.EPROTO) {
				t.Errorf("%s: status %d", command, ev.Status)
			}
			if last := w.calls[len(w.calls)-1]; last != `reject 1 28 ""` {
				t.Errorf("%s: %s came last", command, last)
			}
			if a, _, _ := id.QP().Query(0); a.QPState != verbs.QPSErr {
				t.Errorf("%s: the QP is in %v", command, a.QPState)
			}
			w.discard(id)
		})
	}
}

// The kernel's events for a request of this side, and the status and the data that they pass on.
func TestKernelRequestFails(t *testing.T) {
	for _, c := range []struct {
		sent   EventType
		status int32
		want   EventType
	}{
		{EventRejected, 28, EventRejected}, {EventUnreachable, -110, EventUnreachable},
		{EventConnectError, -71, EventConnectError},
	} {
		inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
			id := w.routed(PSTCP, false)
			w.ok(id.Connect(w.Context(), nil))
			ev := &ucma.Event{UID: id.uid(), Type: uint32(c.sent), Status: c.status}
			ev.SetParam(offered())
			w.tell(ev)
			got := w.next(c.want)
			if got.Status != int(c.status) || c.sent == EventRejected && string(got.Conn.PrivateData) != "peer" {
				t.Errorf("%v: %+v", c.sent, got)
			}
			w.tell(ev)
			w.none()
			w.discard(id)
		})
	}
}

// The end of a connection that the peer begins, and a Disconnect that the kernel refuses.
func TestKernelDisconnect(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		id := w.routed(PSTCP, false)
		w.errno(id.Disconnect(w.Context()), syscall.EINVAL)
		w.ok(id.Connect(w.Context(), nil))
		w.errno(id.Disconnect(w.Context()), syscall.EINVAL)
		w.tellParam(id, EventConnectResponse, offered())
		w.next(EventEstablished)
		w.refuse(syscall.EINVAL, "disconnect")
		w.errno(id.Disconnect(w.Context()), syscall.EINVAL)
		w.tellID(id, EventDisconnected, 0)
		w.next(EventDisconnected)
		if id.conn != connDisconnected {
			t.Errorf("the connection is %v", id.conn)
		}
		w.discard(id)

		other := w.routed(PSTCP, false)
		w.ok(other.Connect(w.Context(), nil))
		w.tellParam(other, EventConnectResponse, offered())
		w.next(EventEstablished)
		w.errno(other.Notify(verbs.EventCommEst), 0)
		w.refuse(syscall.EISCONN, "notify")
		w.errno(other.Notify(verbs.EventCommEst), syscall.EISCONN)
		w.tellID(other, EventDisconnected, 0)
		w.next(EventDisconnected)
		if other.conn != connPeerLeft {
			t.Errorf("the connection is %v", other.conn)
		}
		w.ok(other.Disconnect(w.Context())) // the kernel has ended it meanwhile: no error
		w.refuse(syscall.EIO, "disconnect")
		w.errno(other.Disconnect(w.Context()), syscall.EIO)
		w.discard(other)
	})
}

// A synchronous ID waits for the kernel's events.
func TestKernelSynchronous(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		id, err := w.h.CreateID(nil, PSTCP, nil)
		w.ok(err)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		done := make(chan error, 1)
		go func() {
			err := id.ResolveAddr(ctx, netip.AddrPort{}, kernelPeer, time.Second)
			if err == nil {
				err = id.ResolveRoute(ctx, time.Second)
			}
			done <- err
		}()
		w.await("resolve")
		w.tellID(id, EventAddrResolved, 0)
		w.await("route")
		w.tellID(id, EventRouteResolved, 0)
		w.ok(<-done)
		w.ok(id.Close())
	})
}
