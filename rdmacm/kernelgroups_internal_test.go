package rdmacm

import (
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/ucma"
	"github.com/verbena-rdma/verbena/verbs"
)

// Datagrams, multicast groups and iWARP adapters, which the kernel's connection manager has too.

// service is the parameters of a datagram service or a group, each with a value of its own.
func service(to netip.Addr) *ucma.UDParam {
	return &ucma.UDParam{QPN: 44, QKey: 55, Private: []byte("peer"), AH: verbs.AHAttr{IsGlobal: true, PortNum: 1,
		GRH: verbs.GlobalRoute{DGID: verbs.GIDFromAddr(to), SGIDIndex: 1, HopLimit: 7}}}
}

// tellUD delivers an event with the parameters of datagrams.
func (w *kernelWorld) tellUD(uid uint64, t EventType, status int32, p *ucma.UDParam) {
	ev := &ucma.Event{UID: uid, Type: uint32(t), Status: status, ECE: ucma.ECE{Vendor: 11, Options: 22}}
	ev.SetUD(p)
	w.tell(ev)
}

// A look-up finds the QP of a service, or that there is none.
func TestKernelLookup(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		id := w.routed(PSUDP, true)
		w.errno(id.Connect(w.Context(), &ConnParam{PrivateData: make([]byte, 181)}), syscall.EINVAL)
		w.ok(id.Connect(w.Context(), &ConnParam{PrivateData: []byte("who"), QPNum: 3}))
		w.called(`connect 1 qp 3 srq false "who" flow false rd 128/128 retry 7/7 ece 0/0`)
		w.tellUD(id.uid(), EventEstablished, 0, service(fuzzThere))
		ev := w.next(EventEstablished)
		if p := ev.UD; p.QPNum != 44 || p.QKey != 55 || string(p.PrivateData) != "peer" || p.AHAttr.GRH.HopLimit != 7 ||
			ev.ECE != (ECE{VendorID: 11, Options: 22}) || id.RemoteECE() != ev.ECE {
			t.Errorf("%+v", ev)
		}
		w.tellUD(id.uid(), EventEstablished, 0, service(fuzzThere)) // once only
		w.none()
		w.errno(id.Disconnect(w.Context()), syscall.EINVAL)
		w.ok(id.Close())

		for _, c := range []struct {
			status  int32
			private string
		}{{2, "peer"}, {-int32(syscall.ETIMEDOUT), ""}, {0, ""}} {
			id := w.routed(PSUDP, true)
			w.ok(id.Connect(w.Context(), nil))
			w.tellUD(id.uid(), EventUnreachable, c.status, service(fuzzThere))
			if ev := w.next(EventUnreachable); ev.Status != int(c.status) || string(ev.UD.PrivateData) != c.private {
				t.Errorf("%+v", ev)
			}
			w.ok(id.Close())
		}
	})
}

// A look-up of a peer is answered with the QP, or refused.
func TestKernelAnswersLookups(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		l := w.listening(PSUDP, netip.AddrPortFrom(fuzzHere, 5000), 4)
		w.request(l)
		ev := w.next(EventConnectRequest)
		if string(ev.UD.PrivateData) != "peer" || string(ev.Conn.PrivateData) != "peer" ||
			ev.ECE != (ECE{VendorID: 11, Options: 22}) || ev.ID.RemoteECE() != ev.ECE {
			t.Errorf("%+v", ev)
		}
		id := ev.ID
		w.ok(id.CreateQP(nil, &verbs.QPInitAttr{Cap: kernelCaps}))
		w.calls = nil
		w.errno(id.Accept(w.Context(), &ConnParam{PrivateData: make([]byte, 137)}), syscall.EINVAL)
		w.ok(id.Accept(w.Context(), nil)) // the QP is in RTS from CreateQP on
		if len(w.calls) != 1 || w.calls[0][:10] != "accept 2 2" {
			t.Errorf("%v", w.calls)
		}
		w.tellUD(id.uid(), EventEstablished, 0, service(fuzzThere)) // nothing new
		w.none()
		w.discard(id)

		id = w.requested(l, true)
		w.errno(id.Reject(make([]byte, 137)), syscall.EINVAL)
		w.ok(id.Reject(make([]byte, 136)))
		w.ok(id.Close())
		w.ok(l.Close())
	})
}

var kernelGroup = netip.MustParseAddr("239.1.2.3")

// grouped makes an ID for datagrams that is bound to the adapter.
func (w *kernelWorld) grouped() *ID {
	w.Helper()
	id := w.id(PSUDP)
	w.ok(id.BindAddr(netip.AddrPortFrom(fuzzHere, 5000)))
	return id
}

// The kernel joins a group and says how to send to it. Leaving it is a command of its own.
func TestKernelJoins(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		id := w.grouped()
		w.ok(id.JoinMulticast(w.Context(), netip.AddrPortFrom(kernelGroup, 9), "mine"))
		w.called("create 1 UDP UD", "bind 1 198.18.0.1:5000 0", "join 1 2 239.1.2.3:0 0 0")
		w.none()
		w.errno(id.JoinMulticast(w.Context(), netip.AddrPortFrom(kernelGroup, 0), nil), syscall.EINVAL)
		w.tellUD(2, EventMulticastJoin, 0, service(kernelGroup))
		ev := w.next(EventMulticastJoin)
		if p := ev.UD; p.QPNum != 44 || p.QKey != 55 || p.Context != "mine" ||
			p.AHAttr.GRH.DGID != verbs.GIDFromAddr(kernelGroup) {
			t.Errorf("%+v", p)
		}
		send := netip.MustParseAddr("239.1.2.4")
		w.ok(id.JoinMulticastEx(w.Context(), &JoinMCAttr{CompMask: JoinMCAttrAddress | JoinMCAttrJoinFlags,
			JoinFlags: JoinSendOnlyFullMember, Addr: netip.AddrPortFrom(send, 0)}, nil))
		w.called("join 1 3 239.1.2.4:0 0 1")
		w.ok(id.LeaveMulticast(netip.AddrPortFrom(kernelGroup, 0)))
		w.called("leave 2")
		w.tellUD(2, EventMulticastError, -5, service(kernelGroup)) // too late
		w.none()
		w.ok(id.Close())
		w.called("leave 3", "destroy 1")
	})
}

// An address that cannot be resolved does not end the groups that the ID is in.
func TestKernelGroupsOutliveAnAddressError(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		id := w.grouped()
		w.ok(id.JoinMulticast(w.Context(), netip.AddrPortFrom(kernelGroup, 0), nil))
		w.tellUD(2, EventMulticastJoin, 0, service(kernelGroup))
		w.next(EventMulticastJoin)
		w.calls = nil
		there := netip.AddrPortFrom(fuzzThere, 7)
		w.ok(id.ResolveAddr(w.Context(), netip.AddrPort{}, there, time.Second))
		w.tellID(id, EventAddrError, -int32(syscall.ETIMEDOUT))
		w.next(EventAddrError)
		w.refuse(syscall.ENODEV, "resolve")
		w.ok(id.ResolveAddr(w.Context(), netip.AddrPort{}, there, time.Second))
		w.next(EventAddrError)
		w.refuse(0, "resolve")
		w.ok(id.ResolveAddr(w.Context(), netip.AddrPort{}, there, time.Second))
		w.tellID(id, EventAddrResolved, 0)
		w.next(EventAddrResolved)
		for _, c := range w.calls {
			if strings.HasPrefix(c, "destroy") || strings.HasPrefix(c, "create") {
				t.Errorf("%s: the kernel's ID with its groups must stay: %v", c, w.calls)
			}
		}
		w.calls = nil
		w.ok(id.LeaveMulticast(netip.AddrPortFrom(kernelGroup, 0)))
		w.called("leave 2")
		w.ok(id.Close())
		w.called("destroy 1")
	})
}

// An ID that the kernel cannot bind is not left in the kernel.
func TestKernelDoesNotBindForAGroup(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		id := w.grouped()
		w.refuse(syscall.EACCES, "bind")
		w.errno(id.JoinMulticast(w.Context(), netip.AddrPortFrom(kernelGroup, 0), nil), syscall.EACCES)
		w.called("create 1 UDP UD", "bind 1 198.18.0.1:5000 0", "destroy 1")
		w.refuse(0, "bind")
		w.ok(id.JoinMulticast(w.Context(), netip.AddrPortFrom(kernelGroup, 0), nil))
		w.called("create 2 UDP UD", "bind 2 198.18.0.1:5000 0", "join 2 3 239.1.2.3:0 0 0")
		w.ok(id.Close())
	})
}

// The QP is attached to the group that the kernel names. An ID that is in a group can still resolve an address.
func TestKernelAttaches(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		id := w.grouped()
		w.ok(id.CreateQP(nil, &verbs.QPInitAttr{Cap: kernelCaps}))
		w.ok(id.JoinMulticast(w.Context(), netip.AddrPortFrom(kernelGroup, 0), nil))
		other := netip.MustParseAddr("239.9.9.9")
		there := service(other)
		there.AH.DLID = 0xC001
		w.tellUD(2, EventMulticastJoin, 0, there)
		w.next(EventMulticastJoin)
		if g := id.groups[kernelGroup]; g == nil || g.mlid != 0xC001 {
			t.Errorf("the group of the ID is %+v: must have MLID 0xC001", g)
		}
		w.ok(id.QP().DetachMcast(verbs.GIDFromAddr(other), 0))
		w.ok(id.QP().AttachMcast(verbs.GIDFromAddr(other), 0))
		w.calls = nil
		w.ok(id.ResolveAddr(w.Context(), netip.AddrPort{}, kernelPeer, time.Second))
		w.called("resolve 1 198.18.0.1:5000 198.18.0.2:7471 0 1001")
		w.tellID(id, EventAddrResolved, 0)
		w.next(EventAddrResolved)
		w.discard(id)
	})
}

// A join fails at once or later, and a group is lost; afterwards the ID can join again.
func TestKernelDoesNotJoin(t *testing.T) {
	inKernel(t, verbs.TransportIB, func(w *kernelWorld) {
		id := w.grouped()
		group := netip.AddrPortFrom(kernelGroup, 0)
		for _, command := range []string{"create", "bind", "join"} {
			w.refuse(syscall.ENOBUFS, command)
			w.errno(id.JoinMulticast(w.Context(), group, nil), syscall.ENOBUFS)
			w.refuse(0, command)
		}
		w.none()
		w.ok(id.JoinMulticast(w.Context(), group, "mine"))
		w.refuse(syscall.ENOENT, "leave") // the kernel has ended it
		uid := id.groups[kernelGroup].uid
		w.tellUD(uid, EventMulticastError, -int32(syscall.ENETUNREACH), service(kernelGroup))
		if ev := w.next(EventMulticastError); ev.Status != -int(syscall.ENETUNREACH) || ev.UD.Context != "mine" ||
			ev.UD.QPNum != 0 {
			t.Errorf("%+v", ev)
		}
		w.tellUD(uid, EventMulticastError, -5, service(kernelGroup)) // once only
		w.none()
		w.errno(id.LeaveMulticast(group), syscall.EADDRNOTAVAIL)

		for _, c := range []struct{ kernel, want syscall.Errno }{{syscall.ENOENT, 0}, {syscall.EIO, syscall.EIO}} {
			w.ok(id.JoinMulticast(w.Context(), group, nil))
			w.refuse(c.kernel, "leave")
			w.errno(id.LeaveMulticast(group), c.want)
			w.refuse(0, "leave")
		}
		w.ok(id.Close())
	})
}

// The kernel moves the QP of an iWARP adapter, whose EventEstablished is the reply.
func TestKernelIWARP(t *testing.T) {
	inKernel(t, verbs.TransportIWARP, func(w *kernelWorld) {
		devices, err := w.h.Devices()
		w.ok(err)
		w.h.mu.Lock()
		d := w.h.devices[0]
		id := &ID{host: w.h, ps: PSTCP, qpType: verbs.QPTypeRC}
		w.ok(w.h.startKernel())
		id.bindDevice(d, gidPlace{1, 0})
		id.kernelPart = kernelPart{1, w.h.kernel.number(kernelTarget{id: id}), true, w.h.kernel}
		w.h.mu.Unlock()
		if d.streams || !d.kernel || !d.iwarp || d.ctx != devices[0] {
			t.Errorf("%+v", d)
		}
		id.ch, id.state = w.ch, stConnect
		w.ok(id.CreateQP(nil, &verbs.QPInitAttr{Cap: kernelCaps}))
		id.step(inConnect)
		// The rights of such a QP are those of INIT.
		if a, _, err := id.QP().Query(verbs.QPAttrAccessFlags); err != nil ||
			a.QPAccessFlags != verbs.AccessRemoteWrite|verbs.AccessRemoteRead|verbs.AccessRemoteAtomic {
			t.Errorf("rights %v, %v", a.QPAccessFlags, err)
		}
		w.tellParam(id, EventEstablished, offered())
		checkOffer(t, w.next(EventEstablished).Conn)
		if id.conn != connEstablished {
			t.Errorf("the connection is %v", id.conn)
		}
		// The QP may also be one that the program has made by itself.
		other := &ID{host: w.h, ps: PSTCP, qpType: verbs.QPTypeRC, reporting: reporting{ch: w.ch}}
		w.h.mu.Lock()
		other.bindDevice(d, gidPlace{1, 0})
		other.kernelPart = kernelPart{2, w.h.kernel.number(kernelTarget{id: other}), true, w.h.kernel}
		w.h.mu.Unlock()
		other.state = stConnect
		other.step(inConnect)
		w.tellParam(other, EventEstablished, offered())
		checkOffer(t, w.next(EventEstablished).Conn)
		w.discard(id)
		w.ok(other.Close())
		w.called("destroy 1", "destroy 2")
	})
}
