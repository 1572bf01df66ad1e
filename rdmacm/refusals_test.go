package rdmacm_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// The errno of each refusal, and that a refused call leaves the ID as it was.

// After Close every call says so.
func TestRefusedAfterClose(t *testing.T) {
	in(t, func(w *world) {
		id := must(w.a.CreateID(nil, rdmacm.PSTCP, nil))(w)
		w.ok(id.BindAddr(at(addrA, 0)))
		w.ok(id.Close())
		var a verbs.QPAttr
		a.QPState = verbs.QPSInit
		for name, call := range map[string]func() error{
			"Close":            id.Close,
			"SetTOS":           func() error { return id.SetTOS(1) },
			"SetReuseAddr":     func() error { return id.SetReuseAddr(true) },
			"SetAFOnly":        func() error { return id.SetAFOnly(true) },
			"SetAckTimeout":    func() error { return id.SetAckTimeout(1) },
			"SetKeepAlive":     func() error { return id.SetKeepAlive(0) },
			"SetPathMTU":       func() error { return id.SetPathMTU(verbs.MTU1024) },
			"SetLocalECE":      func() error { return id.SetLocalECE(rdmacm.ECE{}) },
			"InitQPAttr":       func() error { _, err := id.InitQPAttr(&a); return err },
			"SetHalfOpenLimit": func() error { return id.SetHalfOpenLimit(1) },
			"BindAddr":         func() error { return id.BindAddr(at(addrA, 0)) },
			"Listen":           func() error { return id.Listen(0) },
			"ResolveAddr":      func() error { return id.ResolveAddr(bg, netip.AddrPort{}, at(addrB, 1), timeout) },
			"ResolveRoute":     func() error { return id.ResolveRoute(bg, timeout) },
			"Connect":          func() error { return id.Connect(bg, nil) },
			"Accept":           func() error { return id.Accept(bg, nil) },
			"Reject":           func() error { return id.Reject(nil) },
			"Disconnect":       func() error { return id.Disconnect(bg) },
			"CreateQP":         func() error { return id.CreateQP(nil, qpInit()) },
			"CreateSRQ":        func() error { return id.CreateSRQ(nil, &verbs.SRQInitAttr{}) },
			"Migrate":          func() error { return id.Migrate(nil) },
			"WriteEvent":       func() error { return id.WriteEvent(rdmacm.EventUser, 0, 0) },
			"GetRequest":       func() error { _, err := id.GetRequest(bg); return err },
			"GetEvent":         func() error { _, err := id.Channel().GetEvent(bg); return err },
			"Channel.Close":    id.Channel().Close,
			"Channel.FD":       func() error { _, err := id.Channel().FD(); return err },
			"CreateID":         func() error { _, err := w.a.CreateID(id.Channel(), rdmacm.PSTCP, nil); return err },
			"JoinMulticast":    func() error { return id.JoinMulticast(bg, at(group4, 0), nil) },
			"RegMsgs":          func() error { _, err := id.RegMsgs(make([]byte, 8)); return err },
			"PostRecvV":        func() error { return id.PostRecvV(0) },
			"PostSend":         func() error { return id.PostSend(0, nil, nil, verbs.SendInline) },
			"GetSendComp":      func() error { _, err := id.GetSendComp(bg); return err },
			"GetRecvComp":      func() error { _, err := id.GetRecvComp(bg); return err },
		} {
			if err := call(); !errors.Is(err, rdmacm.ErrClosed) || !errors.Is(err, syscall.EINVAL) {
				t.Errorf("%s: %v, want ErrClosed", name, err)
			}
		}
	})
}

// The errors of a missing device and of an unknown port space name each once.
func TestTextsOfRefusals(t *testing.T) {
	_, err := rdmacm.NewHost().Devices()
	if !errors.Is(err, syscall.ENODEV) || strings.Count(err.Error(), "get_devices") != 1 {
		t.Error(err)
	}
	_, err = rdmacm.GetAddrInfo(bg, "192.0.2.1", "1", &rdmacm.AddrInfo{PortSpace: 99})
	if !errors.Is(err, syscall.EINVAL) || strings.Count(err.Error(), "port space") != 1 {
		t.Error(err)
	}
}

// Objects of another host do not go together.
func TestRefusedOtherHost(t *testing.T) {
	in(t, func(w *world) {
		other := must(w.b.CreateEventChannel())(w)
		_, err := w.a.CreateID(other, rdmacm.PSTCP, nil)
		w.errno(err, syscall.EINVAL)
		for _, ps := range []rdmacm.PortSpace{0, 1, 3, 0x107} {
			_, err = w.a.CreateID(nil, ps, nil)
			w.errno(err, syscall.EINVAL)
		}
		e := w.newEnd(w.a, rdmacm.PSTCP)
		w.errno(e.Migrate(other), syscall.EINVAL)
		if e.Channel() != e.ch {
			t.Error("the ID has moved")
		}
		closed := must(w.a.CreateEventChannel())(w)
		w.ok(closed.Close())
		if err := e.Migrate(closed); !errors.Is(err, rdmacm.ErrClosed) {
			t.Errorf("to a closed channel: %v", err)
		}
		w.ok(e.BindAddr(at(addrA, 0)))
		s := must(w.b.CreateID(nil, rdmacm.PSTCP, nil))(w)
		w.ok(s.BindAddr(at(addrB, 0)))
		w.errno(e.CreateQP(s.PD(), qpInit()), syscall.EINVAL)
		w.errno(e.CreateSRQ(s.PD(), &verbs.SRQInitAttr{}), syscall.EINVAL)
		w.ok(s.Close())
		e.close()
		w.ok(other.Close())
		if err := rdmacm.DefaultHost().Close(); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("the default host: %v", err)
		}
	})
}

// What a group and its member must be.
func TestRefusedGroups(t *testing.T) {
	in(t, func(w *world) {
		to := at(group4, 0)
		tcp := w.newEnd(w.a, rdmacm.PSTCP)
		w.ok(tcp.BindAddr(at(addrA, 0)))
		w.errno(tcp.JoinMulticast(bg, to, nil), syscall.EINVAL)
		tcp.close()
		e := w.newEnd(w.a, rdmacm.PSUDP)
		w.errno(e.JoinMulticast(bg, to, nil), syscall.EINVAL) // not bound
		e.close()
		e = w.newEnd(w.a, rdmacm.PSUDP)
		w.ok(e.BindAddr(at(netip.IPv4Unspecified(), 0)))
		w.errno(e.JoinMulticast(bg, to, nil), syscall.EINVAL) // not bound to a device
		e.close()
		e = w.newEnd(w.a, rdmacm.PSUDP)
		w.ok(e.BindAddr(at(addrA, 0)))
		for name, c := range map[string]struct {
			attr  *rdmacm.JoinMCAttr
			errno syscall.Errno
		}{
			"no attributes":      {nil, syscall.EINVAL},
			"no address":         {&rdmacm.JoinMCAttr{CompMask: 2, Addr: to}, syscall.EINVAL},
			"no flags":           {&rdmacm.JoinMCAttr{CompMask: 1, Addr: to}, syscall.EINVAL},
			"unknown attributes": {&rdmacm.JoinMCAttr{CompMask: 7, Addr: to}, syscall.EOPNOTSUPP},
			"unknown flags":      {&rdmacm.JoinMCAttr{CompMask: 3, Addr: to, JoinFlags: 2}, syscall.EINVAL},
			"no group":           {&rdmacm.JoinMCAttr{CompMask: 3, Addr: at(addrB, 0)}, syscall.EINVAL},
			"another family":     {&rdmacm.JoinMCAttr{CompMask: 3, Addr: at(group6, 0)}, syscall.EINVAL},
		} {
			if err := e.JoinMulticastEx(bg, c.attr, nil); !errors.Is(err, c.errno) {
				t.Errorf("%s: %v, want %v", name, err, c.errno)
			}
		}
		w.errno(e.LeaveMulticast(to), syscall.EADDRNOTAVAIL)
		w.errno(e.LeaveMulticast(at(addrB, 0)), syscall.EINVAL)
		e.none()
		w.ok(e.JoinMulticast(bg, to, nil))
		w.errno(e.JoinMulticast(bg, to, nil), syscall.EINVAL)
		w.ok(e.LeaveMulticast(to))
		w.errno(e.LeaveMulticast(to), syscall.EADDRNOTAVAIL)
		w.ok(e.JoinMulticast(bg, to, nil))
		e.expect(rdmacm.EventMulticastJoin)
		other := at(netip.MustParseAddr("239.7.7.7"), 0)
		w.ok(e.JoinMulticastEx(bg, &rdmacm.JoinMCAttr{CompMask: 3, Addr: other,
			JoinFlags: rdmacm.JoinSendOnlyFullMember}, "mine"))
		if ev := e.expect(rdmacm.EventMulticastJoin); ev.UD.Context != "mine" || ev.UD.QPNum != rdmacm.MulticastQPN ||
			ev.UD.QKey != rdmacm.UDPQKey || ev.UD.AHAttr.GRH.DGID != verbs.GIDFromAddr(other.Addr()) {
			t.Errorf("%+v", ev.UD)
		}
		e.none()
		e.close()
	})
}

// A QP has one state that InitQPAttr knows, and CQs that fit the ID's.
func TestRefusedQPs(t *testing.T) {
	in(t, func(w *world) {
		e := w.newEnd(w.a, rdmacm.PSTCP)
		w.errno(e.PostRecv(1, make([]byte, 1), nil), syscall.EINVAL)
		w.errno(e.PostRecvV(1), syscall.EINVAL)
		w.errno(e.PostSendV(1, 0), syscall.EINVAL)
		_, err := e.RegMsgs(make([]byte, 1))
		w.errno(err, syscall.EINVAL)
		w.errno(e.CreateQP(nil, qpInit()), syscall.EINVAL)
		w.errno(e.DestroyQP(), syscall.EINVAL)
		_, err = e.InitQPAttr(&verbs.QPAttr{QPState: verbs.QPSInit})
		w.errno(err, syscall.EINVAL)
		w.ok(e.BindAddr(at(addrA, 0)))
		_, err = e.InitQPAttr(nil)
		w.errno(err, syscall.EINVAL)
		for _, s := range []verbs.QPState{verbs.QPSReset, verbs.QPSRTR, verbs.QPSRTS, verbs.QPSSQD, verbs.QPSErr} {
			_, err = e.InitQPAttr(&verbs.QPAttr{QPState: s})
			w.errno(err, syscall.EINVAL)
		}
		a := verbs.QPAttr{QPState: verbs.QPSInit}
		mask, err := e.InitQPAttr(&a)
		if want := verbs.QPAttrState | verbs.QPAttrPKeyIndex | verbs.QPAttrPort | verbs.QPAttrAccessFlags; err != nil ||
			mask != want || a.PortNum != 1 || a.QPAccessFlags != 0 {
			t.Errorf("%v, %+v, %v", mask, a, err)
		}
		w.errno(e.CreateQP(nil, nil), syscall.EINVAL)
		w.errno(e.CreateSRQ(nil, nil), syscall.EINVAL)
		w.errno(e.CreateQP(nil, &verbs.QPInitAttr{Type: verbs.QPTypeUD, Cap: caps}), syscall.EINVAL)
		cq := must(e.Verbs().CreateCQ(4, nil))(w)
		w.ok(e.CreateQP(nil, qpInit()))
		w.errno(e.CreateQP(nil, qpInit()), syscall.EINVAL)
		w.errno(e.Close(), syscall.EBUSY)
		w.ok(e.DestroyQP())
		for _, init := range []*verbs.QPInitAttr{{SendCQ: cq, Cap: caps}, {RecvCQ: cq, Cap: caps}} {
			w.ok(e.CreateQP(nil, init)) // own CQs have gone with the QP
			w.ok(e.DestroyQP())
		}
		w.ok(e.CreateSRQ(nil, &verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: 1, MaxSGE: 1}}))
		w.errno(e.CreateSRQ(nil, &verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: 1, MaxSGE: 1}}), syscall.EINVAL)
		w.errno(e.Close(), syscall.EBUSY)
		w.ok(e.DestroySRQ())
		w.errno(e.DestroySRQ(), syscall.EINVAL)
		w.ok(cq.Close())
		e.close()

		ud := w.newEnd(w.a, rdmacm.PSUDP)
		w.ok(ud.BindAddr(at(addrA, 0)))
		for s, want := range map[verbs.QPState]verbs.QPAttrMask{
			verbs.QPSInit: verbs.QPAttrState | verbs.QPAttrPKeyIndex | verbs.QPAttrPort | verbs.QPAttrQKey,
			verbs.QPSRTR:  verbs.QPAttrState, verbs.QPSRTS: verbs.QPAttrState | verbs.QPAttrSQPSN,
		} {
			a := verbs.QPAttr{QPState: s}
			if mask, err := ud.InitQPAttr(&a); err != nil || mask != want || s == verbs.QPSInit && a.QKey != rdmacm.UDPQKey {
				t.Errorf("%v: %v, %+v, %v", s, mask, a, err)
			}
		}
		_, err = ud.InitQPAttr(&verbs.QPAttr{QPState: verbs.QPSErr})
		w.errno(err, syscall.EINVAL)
		ud.close()
	})
}

// A look-up that the program refuses, and private data that does not fit.
func TestRefusedLookups(t *testing.T) {
	in(t, func(w *world) {
		l := w.newEnd(w.b, rdmacm.PSUDP)
		w.ok(l.BindAddr(at(addrB, port)))
		w.ok(l.Listen(0))
		for _, accept := range []bool{false, true} {
			c := w.resolved(rdmacm.PSUDP, at(addrB, port))
			w.errno(c.Disconnect(bg), syscall.EINVAL)
			w.errno(c.Connect(bg, &rdmacm.ConnParam{PrivateData: make([]byte, 181)}), syscall.EINVAL)
			w.ok(c.Connect(bg, &rdmacm.ConnParam{PrivateData: make([]byte, 180)}))
			ev := w.next(l.ch, rdmacm.EventConnectRequest)
			s := ev.ID
			w.errno(s.Accept(bg, &rdmacm.ConnParam{PrivateData: make([]byte, 137)}), syscall.EINVAL)
			w.errno(s.Reject(make([]byte, 137)), syscall.EINVAL)
			if accept {
				w.ok(s.Accept(bg, &rdmacm.ConnParam{PrivateData: make([]byte, 136), QPNum: 9}))
				if ev := c.expect(rdmacm.EventEstablished); ev.UD.QPNum != 9 || ev.UD.QKey != rdmacm.UDPQKey ||
					ev.UD.AHAttr.GRH.DGID != verbs.GIDFromAddr(addrB) || ev.UD.AHAttr.GRH.HopLimit != 64 {
					t.Errorf("%+v", ev.UD)
				}
			} else {
				w.ok(s.Reject([]byte("no")))
				if ev := c.expect(rdmacm.EventUnreachable); ev.Status != 2 || string(ev.UD.PrivateData[:2]) != "no" {
					t.Errorf("%+v", ev)
				}
			}
			w.errno(c.Notify(verbs.EventCommEst), syscall.EINVAL)
			w.errno(c.Disconnect(bg), syscall.EINVAL)
			w.ok(ev.Ack())
			w.ok(s.Close())
			c.close()
		}
		l.close()
	})
}

// A Listener's Accept ends with its context, and is for synchronous IDs.
func TestRefusedAccepts(t *testing.T) {
	in(t, func(w *world) {
		l := must(rdmacm.Listen(bg, ":0", &rdmacm.Options{Host: w.b}))(w)
		ctx, cancel := context.WithCancel(bg)
		cancel()
		if _, err := l.Accept(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		if l.ID().SrcPort() != l.Addr().Port() {
			t.Error("another port")
		}
		ch := must(w.b.CreateEventChannel())(w)
		w.ok(l.ID().Migrate(ch))
		_, err := l.Accept(bg)
		w.errno(err, syscall.EINVAL)
		_, err = l.Request(bg)
		w.errno(err, syscall.EINVAL)
		w.ok(l.Close())
		w.ok(ch.Close())
		if _, err := l.Accept(bg); !errors.Is(err, rdmacm.ErrClosed) {
			t.Errorf("%v", err)
		}
		for _, o := range []rdmacm.Options{{PathMTU: 9}, {KeepAlive: 1}, {AckTimeout: 32}} {
			o.Host = w.b
			_, err := rdmacm.Listen(bg, ":0", &o)
			w.errno(err, syscall.EINVAL)
		}
		_, err = rdmacm.Dial(bg, "198.18.0.2:1", &rdmacm.Options{Host: w.a, RetryCount: 8})
		w.errno(err, syscall.EINVAL)
		_, err = rdmacm.Dial(bg, "198.18.0.2", &rdmacm.Options{Host: w.a})
		w.errno(err, syscall.EINVAL)
	})
}

// A P_Key that no port has, in a path of the program, and an address of AF_IB that is refused.
func TestRefusedPaths(t *testing.T) {
	in(t, func(w *world) {
		c := w.newEnd(w.a, rdmacm.PSTCP)
		w.errno(c.SetOption(rdmacm.OptionIB, rdmacm.OptionIBPath, pathData()), syscall.EINVAL) // too early
		w.ok(c.ResolveAddr(bg, netip.AddrPort{}, at(addrB, port), timeout))
		c.expect(rdmacm.EventAddrResolved)
		path := pathData()
		path[72+8+50] = 0x12
		w.errno(c.SetOption(rdmacm.OptionIB, rdmacm.OptionIBPath, path), syscall.EINVAL)
		c.none()
		w.ok(c.SetOption(rdmacm.OptionIB, rdmacm.OptionIBPath, pathData()))
		c.expect(rdmacm.EventRouteResolved)
		c.close()

		e := w.newEnd(w.a, rdmacm.PSTCP)
		stranger := rdmacm.SockaddrIB{GID: verbs.GIDFromAddr(addrB), SID: rdmacm.ServiceID(rdmacm.PSTCP, 5)}
		w.errno(e.BindAddrIB(stranger), syscall.ENODEV)
		if e.IsAFIB() || e.LocalAddrIB() != (rdmacm.SockaddrIB{}) || e.PeerAddrIB() != (rdmacm.SockaddrIB{}) {
			t.Errorf("%v, %+v", e.IsAFIB(), e.LocalAddrIB())
		}
		other := stranger
		other.SID = rdmacm.ServiceID(rdmacm.PSUDP, 5)
		w.errno(e.BindAddrIB(other), syscall.EPROTONOSUPPORT)
		other.SID, other.PKey = stranger.SID, 0x1234
		w.errno(e.BindAddrIB(other), syscall.EINVAL)
		w.ok(e.BindAddr(at(addrA6, 0)))
		w.errno(e.ResolveAddrIB(bg, nil, stranger, timeout), syscall.EINVAL) // another family
		if e.IsAFIB() || e.PeerAddr().IsValid() {
			t.Errorf("AF_IB: %v, peer %v", e.IsAFIB(), e.PeerAddr())
		}
		e.close()
	})
}

// An address of AF_IB that is refused leaves nothing to the next one.
func TestRefusedPartition(t *testing.T) {
	inPartitions(t, func(w *world, _ *mailbox) {
		e := w.newEnd(w.a, rdmacm.PSTCP)
		w.errno(e.BindAddrIB(rdmacm.SockaddrIB{PKey: 0x8003, GID: verbs.GIDFromAddr(addrB),
			SID: rdmacm.ServiceID(rdmacm.PSTCP, 5)}), syscall.ENODEV)
		w.ok(e.BindAddr(at(addrA, 0)))
		w.ok(e.ResolveAddr(bg, netip.AddrPort{}, at(addrB, port), timeout))
		e.expect(rdmacm.EventAddrResolved)
		w.ok(e.ResolveRoute(bg, timeout))
		e.expect(rdmacm.EventRouteResolved)
		if p := e.Route().PathRec[0]; e.IsAFIB() || p.PKey != 0xFFFF {
			t.Errorf("addresses of AF_IB: %v, P_Key %#x of a refused address", e.IsAFIB(), p.PKey)
		}
		e.close()
	})
}
