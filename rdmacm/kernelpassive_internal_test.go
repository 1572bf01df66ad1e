package rdmacm

import (
	"fmt"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/ucma"
	"github.com/verbena-rdma/verbena/verbs"
)

// The passive side of connections that the kernel makes.

// listening makes a listener, on all devices if the address is a wildcard.
func (w *kernelWorld) listening(ps PortSpace, a netip.AddrPort, backlog int) *ID {
	w.Helper()
	l := w.id(ps)
	w.ok(l.BindAddr(a))
	w.ok(l.Listen(backlog))
	w.mu.Lock()
	w.calls = nil
	w.mu.Unlock()
	return l
}

// request tells of a request, with a new ID of the kernel.
func (w *kernelWorld) request(l *ID) (n uint32) {
	n, _ = w.number(nil)
	ev := &ucma.Event{UID: l.uid(), ID: n, Type: uint32(EventConnectRequest), ECE: ucma.ECE{Vendor: 11, Options: 22}}
	if ev.SetParam(offered()); l.qpType == verbs.QPTypeUD {
		ev.SetUD(&ucma.UDParam{Private: []byte("peer")})
	}
	w.tell(ev)
	return n
}

// requested is the ID of a request, with a QP unless bare is set.
func (w *kernelWorld) requested(l *ID, bare bool) *ID {
	w.Helper()
	w.request(l)
	id := w.next(EventConnectRequest).ID
	if !bare {
		w.ok(id.CreateQP(nil, &verbs.QPInitAttr{Cap: kernelCaps}))
	}
	w.mu.Lock()
	w.calls = nil
	w.mu.Unlock()
	return id
}

var anyKernelPort = netip.AddrPortFrom(netip.IPv4Unspecified(), 0)

// The kernel listens where the ID is bound, and its port is the ID's if the package chose the port.
func TestKernelListens(t *testing.T) {
	for _, c := range []struct {
		at      netip.AddrPort
		bound   string
		backlog int
		limit   int
	}{
		{netip.AddrPortFrom(fuzzHere, 5000), "198.18.0.1:5000", 3, 3}, {anyKernelPort, "0.0.0.0:0", 0, 1024},
		{netip.AddrPortFrom(fuzzHere, 0), "198.18.0.1:0", 1, 1},
	} {
		inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
			l := w.id(PSTCP)
			w.ok(l.BindAddr(c.at))
			w.ok(l.Listen(c.backlog))
			w.called("create 1 TCP RC", "bind 1 "+c.bound+" 0", fmt.Sprintf("listen 1 %d", c.limit), "query 1")
			if port := l.SrcPort(); port != 4242 {
				t.Errorf("port %d", port)
			}
			w.ok(l.Close())
			w.called("destroy 1")
		})
	}
}

// A listener keeps the port that the program has read, also when it begins to listen on an adapter again.
func TestKernelListenerKeepsItsPort(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		l := w.id(PSTCP)
		w.ok(l.BindAddr(anyKernelPort))
		w.ok(l.Listen(1))
		port := l.SrcPort()
		l.mu.Lock()
		if at := l.kernelLocal(); at.Port() != port {
			t.Errorf("the kernel would choose another port: %v, want %d", at, port)
		}
		l.mu.Unlock()
		w.ok(l.Close())
	})
}

// A port that another process has is replaced by another one, if the program does not depend on it.
func TestKernelListenFails(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		w.refuse(syscall.EADDRINUSE, "listen")
		chosen := w.id(PSTCP)
		w.ok(chosen.BindAddr(netip.AddrPortFrom(fuzzHere, 5000)))
		w.errno(chosen.Listen(1), syscall.EADDRINUSE)
		w.called("create 1 TCP RC", "bind 1 198.18.0.1:5000 0", "listen 1 1", "destroy 1")
		w.refuse(0, "listen")
		w.ok(chosen.Listen(1))
		w.ok(chosen.Close())

		for _, command := range []string{"create", "bind"} {
			w.refuse(syscall.EACCES, command)
			l := w.id(PSTCP)
			w.ok(l.BindAddr(netip.AddrPortFrom(fuzzHere, 5001)))
			w.errno(l.Listen(1), syscall.EACCES)
			w.refuse(0, command)
			w.refuse(syscall.EIO, "query") // the port stays unknown
			w.ok(l.Listen(1))
			if l.SrcPort() != 5001 {
				t.Errorf("port %d", l.SrcPort())
			}
			w.refuse(0, "query")
			w.ok(l.Close())
			l = w.id(PSTCP)
			w.ok(l.BindAddr(netip.AddrPortFrom(fuzzHere, 5001)))
			at := w.place.Local
			w.place.Local = netip.AddrPort{} // the kernel does not tell the port
			w.ok(l.Listen(1))
			if l.LocalAddr() != netip.AddrPortFrom(fuzzHere, 5001) {
				t.Errorf("at %v", l.LocalAddr())
			}
			w.place.Local = at
			w.ok(l.Close())
		}
	})
}

func TestKernelListensAtAnotherPort(t *testing.T) {
	old := ephemeral
	ephemeral = func() (low, high uint16) { return 40000, 40002 }
	defer func() { ephemeral = old }()
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		l := w.id(PSTCP)
		w.ok(l.BindAddr(anyKernelPort))
		w.refuse(syscall.EADDRINUSE, "listen")
		w.errno(l.Listen(1), syscall.EADDRINUSE)
		// Each of the three ports once.
		one := []string{"create 1 TCP RC", "bind %d 0.0.0.0:0 0", "listen %d 1", "destroy %d"}
		var want []string
		for n := 1; n <= 3; n++ {
			want = append(want, fmt.Sprintf("create %d TCP RC", n))
			for _, s := range one[1:] {
				want = append(want, fmt.Sprintf(s, n))
			}
		}
		w.called(want...)
		w.ok(l.Close())
	})
}

// A request has the peer's parameters and addresses, and what the listener has set.
func TestKernelRequest(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		l := w.id(PSTCP)
		w.ok(l.SetTOS(9))
		w.ok(l.SetAckTimeout(11))
		w.ok(l.BindAddr(netip.AddrPortFrom(fuzzHere, 5000)))
		w.ok(l.Listen(0))
		w.calls = nil
		n := w.request(l)
		w.called(fmt.Sprintf("query %d", n))
		ev := w.next(EventConnectRequest)
		checkOffer(t, ev.Conn)
		id := ev.ID
		if ev.ListenID != l || !id.passive || ev.ECE != (ECE{VendorID: 11, Options: 22}) || id.RemoteECE() != ev.ECE {
			t.Errorf("%+v", ev)
		}
		if id.LocalAddr() != w.place.Local || id.PeerAddr() != w.place.Remote || id.PortNum() != 1 {
			t.Errorf("%v to %v", id.LocalAddr(), id.PeerAddr())
		}
		p := id.Route().PathRec
		if len(p) != 1 || p[0].TrafficClass != 9 || p[0].PacketLifeTime != 10 || p[0].MTU != verbs.MTU4096 {
			t.Errorf("%+v", p)
		}
		w.ok(id.Close())
		w.called(fmt.Sprintf("destroy %d", n))
		w.ok(l.Close())
	})
}

// Requests beyond the backlog are dropped. Retrieving the event frees a place.
func TestKernelBacklog(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		l := w.listening(PSTCP, netip.AddrPortFrom(fuzzHere, 5000), 2)
		w.request(l)
		w.request(l)
		w.calls = nil
		n := w.request(l)
		w.called(fmt.Sprintf("destroy %d", n))
		a := w.next(EventConnectRequest).ID
		w.request(l)
		b, c := w.next(EventConnectRequest).ID, w.next(EventConnectRequest).ID
		w.none()
		for _, id := range []*ID{a, b, c} {
			w.ok(id.Close())
		}
		if held := l.kernelHeld.Load(); held != 0 {
			t.Errorf("%d places are taken", held)
		}
		w.request(l) // not retrieved
		w.ok(l.Close())
	})
}

// A request is dropped when nothing is known of it, when its device is unknown, and after the listener's end.
func TestKernelRequestDropped(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		l := w.listening(PSTCP, netip.AddrPortFrom(fuzzHere, 5000), 2)
		w.refuse(syscall.EIO, "query")
		w.request(l)
		w.refuse(0, "query")
		guid := w.place.GUID
		w.place.GUID = verbs.GUID{1}
		w.request(l)
		w.place.GUID = guid
		w.tell(&ucma.Event{UID: 999, ID: 999, Type: uint32(EventConnectRequest)})
		w.none()
		if len(w.ids) != 1 || l.kernelHeld.Load() != 0 {
			t.Errorf("the kernel has %v; %d places are taken", w.ids, l.kernelHeld.Load())
		}
		if len(w.ch.ids.all()) != 1 {
			t.Errorf("%d IDs are on the channel", len(w.ch.ids.all()))
		}
		if last := w.calls[len(w.calls)-1]; last != "destroy 999" {
			t.Errorf("%s came last", last)
		}
		uid := l.uid()
		w.ok(l.Close())
		n, _ := w.number(nil)
		w.tell(&ucma.Event{UID: uid, ID: n, Type: uint32(EventConnectRequest)})
		w.none()
	})
}

// Accept moves the QP to RTS, and answers with the request's numbers or the program's.
func TestKernelAccepts(t *testing.T) {
	for _, c := range []struct {
		param   *ConnParam
		answer  string
		rd, dep uint8
	}{
		{nil, `"" flow false rd 5/6 retry 0/3`, 5, 6},
		{&ConnParam{PrivateData: []byte("yes"), FlowControl: true, ResponderResources: 2, InitiatorDepth: 1, RetryCount: 5,
			RNRRetryCount: 7}, `"yes" flow true rd 2/1 retry 5/7`, 2, 1},
		{&ConnParam{ResponderResources: MaxRespRes, InitiatorDepth: MaxInitDepth, RNRRetryCount: Zero},
			`"" flow false rd 5/6 retry 0/0`, 5, 6}, // C-PARM-09: not more than the peer has asked for
	} {
		inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
			l := w.listening(PSTCP, netip.AddrPortFrom(fuzzHere, 5000), 2)
			id := w.requested(l, false)
			w.ok(id.SetLocalECE(ECE{VendorID: 1, Options: 2}))
			w.errno(id.Accept(w.Context(), &ConnParam{PrivateData: make([]byte, 197)}), syscall.EINVAL)
			w.called()
			w.ok(id.Accept(w.Context(), c.param))
			w.called("attr 2 INIT", "attr 2 RTR", "attr 2 RTS",
				fmt.Sprintf("accept 2 2 qp %d srq false %s ece 1/2", id.QP().QPN(), c.answer))
			w.none()
			w.errno(id.Accept(w.Context(), c.param), syscall.EINVAL)
			w.errno(id.Reject(nil), syscall.EINVAL)
			w.tellID(id, EventEstablished, 0)
			if ev := w.next(EventEstablished); ev.Conn.ResponderResources != c.rd || ev.Conn.InitiatorDepth != c.dep {
				t.Errorf("%+v", ev.Conn)
			}
			if a, _, _ := id.QP().Query(0); a.QPState != verbs.QPSRTS || a.MaxDestRdAtomic != c.rd || a.MaxRdAtomic != c.dep {
				t.Errorf("%+v", a)
			}
			w.discard(id)
			w.ok(l.Close())
		})
	}
}

// An answer that fails refuses the request.
func TestKernelAcceptFails(t *testing.T) {
	for _, command := range []string{"attr", "accept"} {
		inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
			l := w.listening(PSTCP, netip.AddrPortFrom(fuzzHere, 5000), 2)
			id := w.requested(l, false)
			w.refuse(syscall.ENOTCONN, command)
			w.errno(id.Accept(w.Context(), nil), syscall.ENOTCONN)
			if last := w.calls[len(w.calls)-1]; last != `reject 2 28 ""` {
				t.Errorf("%s: %s came last", command, last)
			}
			if a, _, _ := id.QP().Query(0); a.QPState != verbs.QPSErr || id.conn != connRefused {
				t.Errorf("%s: the QP is in %v, the connection %v", command, a.QPState, id.conn)
			}
			w.discard(id)
			w.ok(l.Close())
		})
	}
}

// Reject passes on the reason and the data, whose length has a limit.
func TestKernelRejects(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		l := w.listening(PSTCP, netip.AddrPortFrom(fuzzHere, 5000), 4)
		id := w.requested(l, true)
		w.errno(id.Accept(w.Context(), nil), syscall.EINVAL) // without a QP it needs parameters
		w.errno(id.Reject(make([]byte, 149)), syscall.EINVAL)
		w.refuse(syscall.EPROTO, "reject")
		w.errno(id.Reject(nil), syscall.EPROTO)
		w.refuse(0, "reject")
		w.calls = nil
		w.ok(id.Reject([]byte("no")))
		w.called(`reject 2 28 "no"`)
		w.errno(id.Reject(nil), syscall.EINVAL)
		w.errno(id.Accept(w.Context(), &ConnParam{}), syscall.EINVAL)
		w.ok(id.Close())

		id = w.requested(l, true)
		w.ok(id.RejectECE(make([]byte, 148)))
		if len(w.calls) != 1 || w.calls[0][:11] != "reject 3 35" {
			t.Errorf("%v", w.calls)
		}
		w.ok(id.Close())

		id = w.requested(l, true) // the peer withdraws it
		w.tell(&ucma.Event{UID: id.uid(), Type: uint32(EventRejected)})
		w.none() // the kernel's number of an ID is known from Accept on
		w.ok(id.Accept(w.Context(), &ConnParam{QPNum: 5}))
		w.tellID(id, EventRejected, 4)
		if ev := w.next(EventRejected); ev.Status != 4 {
			t.Errorf("status %d", ev.Status)
		}
		w.errno(id.Reject(nil), syscall.EINVAL)
		w.ok(id.Close())
		w.ok(l.Close())
	})
}

// The kernel reports that the device has gone.
func TestKernelRemoval(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		l := w.listening(PSTCP, netip.AddrPortFrom(fuzzHere, 5000), 4)
		id := w.requested(l, true)
		w.ok(id.Accept(w.Context(), &ConnParam{QPNum: 5}))
		w.tellID(id, EventAddrChange, 0)
		w.next(EventAddrChange)
		w.tellID(id, EventDeviceRemoval, 0)
		w.next(EventDeviceRemoval)
		w.next(EventDeviceRemoval)
		w.none()
		w.tellID(id, EventEstablished, 0) // nothing comes after it
		w.request(l)
		w.none()
		var a verbs.QPAttr
		_, err := id.InitQPAttr(&a)
		w.errno(err, syscall.EINVAL)
		w.ok(id.Close())
		w.ok(l.Close())
	})
}

// A host without the kernel's connection manager has no adapter.
func TestKernelCannotBeOpened(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		open := w.h.openKernel
		w.h.openKernel = func() (kernelChannel, error) { return nil, syscall.EACCES }
		_, err := w.h.Devices()
		w.errno(err, syscall.EACCES)
		w.h.openKernel = open
		if _, err = w.h.Devices(); err != nil {
			t.Fatal(err)
		}
		w.h.openKernel = func() (kernelChannel, error) { return nil, syscall.EMFILE }
		id := w.id(PSTCP)
		w.errno(id.BindAddr(netip.AddrPortFrom(fuzzHere, 0)), syscall.EMFILE)
		w.ok(id.Close())
		w.h.openKernel = open
	})
}

// A listener of a synchronous ID gets its requests in channels of their own.
func TestKernelGetRequest(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		l, err := w.h.CreateID(nil, PSTCP, nil)
		w.ok(err)
		w.ok(l.BindAddr(netip.AddrPortFrom(fuzzHere, 5000)))
		w.ok(l.Listen(1))
		w.request(l)
		id, err := l.GetRequest(w.Context())
		w.ok(err)
		if id.Channel() == l.Channel() || id.Channel() == w.ch {
			t.Error("the request is on another ID's channel")
		}
		done := make(chan error, 1)
		go func() { done <- id.Accept(w.Context(), &ConnParam{QPNum: 5}) }()
		w.await("accept")
		select {
		case err := <-done:
			t.Errorf("Accept did not wait: %v", err)
		case <-time.After(5 * time.Millisecond):
		}
		w.tellID(id, EventEstablished, 0)
		w.ok(<-done)
		w.ok(id.Close())
		w.ok(l.Close())
	})
}

// A listener with a fixed path MTU refuses requests that ask for more: the kernel's ID is destroyed.
func TestKernelListensForAPathMTU(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		for _, limit := range []verbs.MTU{verbs.MTU512, verbs.MTU1024} { // requests ask for 1024
			l := w.id(PSTCP)
			w.ok(l.BindAddr(anyKernelPort))
			w.ok(l.SetPathMTU(limit))
			w.ok(l.Listen(1))
			n := w.request(l)
			if limit == verbs.MTU1024 {
				w.ok(w.next(EventConnectRequest).ID.Close())
			}
			w.none()
			w.mu.Lock()
			if w.ids[n] {
				t.Errorf("limit %v: the request is left", limit)
			}
			w.mu.Unlock()
			w.ok(l.Close())
		}
	})
}
