package rdmacm_test

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// Counts of more than 3 bits are 7, in the request and in the reply.
func TestC_PARM_14_RNRRetryCountOfTheReply(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		for _, n := range []uint8{9, 8, 200} {
			c := w.resolved(rdmacm.PSTCP, at(addrB, port))
			w.ok(c.CreateQP(nil, qpInit()))
			w.ok(c.Connect(bg, &rdmacm.ConnParam{RetryCount: n, RNRRetryCount: n}))
			ev := w.next(l.ch, rdmacm.EventConnectRequest)
			if ev.Conn.RNRRetryCount != 7 || ev.Conn.RetryCount != 7 {
				t.Errorf("%d: the request's counts are %d and %d", n, ev.Conn.RetryCount, ev.Conn.RNRRetryCount)
			}
			w.ok(ev.Ack())
			s := &end{ev.ID, w, l.ch}
			w.ok(s.CreateQP(nil, qpInit()))
			w.ok(s.Accept(bg, &rdmacm.ConnParam{RNRRetryCount: n}))
			if est := c.expect(rdmacm.EventEstablished); est.Conn.RNRRetryCount != 7 {
				t.Errorf("%d: the reply's count is %d", n, est.Conn.RNRRetryCount)
			}
			s.expect(rdmacm.EventEstablished)
			if a, _, err := c.QP().Query(0); err != nil || a.RNRRetry != 7 {
				t.Errorf("%d: the QP's count is %d, %v", n, a.RNRRetry, err)
			}
			s.closeID()
			c.close()
		}
		l.close()
	})
}

// 0xFF of Accept is what the request asks for, which is less than the device's maximum.
func TestC_PARM_09_MaximumOfAccept(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		c := w.resolved(rdmacm.PSTCP, at(addrB, port))
		w.ok(c.CreateQP(nil, qpInit()))
		w.ok(c.Connect(bg, &rdmacm.ConnParam{ResponderResources: 5, InitiatorDepth: 3}))
		ev := w.next(l.ch, rdmacm.EventConnectRequest)
		w.ok(ev.Ack())
		s := &end{ev.ID, w, l.ch}
		w.ok(s.CreateQP(nil, qpInit()))
		w.ok(s.Accept(bg, &rdmacm.ConnParam{ResponderResources: rdmacm.MaxRespRes, InitiatorDepth: rdmacm.MaxInitDepth}))
		if p := c.expect(rdmacm.EventEstablished).Conn; p.ResponderResources != 5 || p.InitiatorDepth != 3 {
			t.Errorf("the client's parameters %+v", p)
		}
		s.expect(rdmacm.EventEstablished)
		ca, _, _ := c.QP().Query(0)
		sa, _, _ := s.QP().Query(0)
		if sa.MaxDestRdAtomic != 3 || sa.MaxRdAtomic != 5 || ca.MaxDestRdAtomic != 5 || ca.MaxRdAtomic != 3 {
			t.Errorf("client %d and %d, server %d and %d", ca.MaxRdAtomic, ca.MaxDestRdAtomic, sa.MaxRdAtomic,
				sa.MaxDestRdAtomic)
		}
		s.closeID()
		c.close()
		l.close()
	})
}

// An ID whose QP cannot be connected reports CONNECT_ERROR, and then nothing more of this connection: neither the
// peer's answer to its refusal nor the peer's disconnection.
func TestC_CONN_11_NothingAfterConnectError(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		c := w.resolved(rdmacm.PSTCP, at(addrB, port))
		w.ok(c.CreateQP(nil, qpInit()))
		w.ok(c.Connect(bg, nil))
		ev := w.next(l.ch, rdmacm.EventConnectRequest)
		w.ok(ev.Ack())
		s := &end{ev.ID, w, l.ch}
		w.ok(s.CreateQP(nil, qpInit()))
		w.ok(c.QP().Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, verbs.QPAttrState))
		w.ok(s.Accept(bg, nil))
		c.expect(rdmacm.EventConnectError)
		for _, in := range rdmacm.PeerInputs {
			c.Report(in)
			c.none()
		}
		s.expect(rdmacm.EventRejected)
		s.closeID()
		c.close()
		l.close()
	})
}

// Without a device the status is ENODEV. With one, but no route, it is the errno of the system's look-up.
func TestC_ADDR_09_ErrnoOfTheRoute(t *testing.T) {
	to := netip.MustParseAddr("fe80::1") // needs a zone
	_, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(at(to, 4791)))
	var errno syscall.Errno
	if !errors.As(err, &errno) || errno == syscall.ENODEV {
		t.Skipf("the system routes link-local addresses without zone: %v", err)
	}
	if errno == 10022 { // WSAEINVAL of Windows
		errno = syscall.EINVAL
	}
	in(t, func(w *world) {
		v4 := w.host("v4", netip.MustParseAddr("198.18.0.9"))
		e := w.newEnd(v4, rdmacm.PSTCP)
		w.ok(e.ResolveAddr(bg, netip.AddrPort{}, at(to, port), timeout))
		if ev := e.expect(rdmacm.EventAddrError); ev.Status != -int(errno) {
			t.Errorf("status %d, %v: want -%d", ev.Status, ev.Err(), errno)
		}
		e.close()
		w.ok(v4.Close())
	})
}

// The type of service is also that of datagrams: of the path to the peer, in both directions, and of groups.
func TestC_OPT_03_TrafficClassOfDatagrams(t *testing.T) {
	const tos = 0x68
	in(t, func(w *world) {
		l := w.newEnd(w.b, rdmacm.PSUDP)
		w.ok(l.BindAddr(at(addrB6, port)))
		w.ok(l.Listen(0))
		c := w.newEnd(w.a, rdmacm.PSUDP)
		w.ok(c.SetTOS(tos))
		w.ok(c.ResolveAddr(bg, netip.AddrPort{}, at(addrB6, port), timeout))
		c.expect(rdmacm.EventAddrResolved)
		w.ok(c.ResolveRoute(bg, timeout))
		c.expect(rdmacm.EventRouteResolved)
		w.ok(c.CreateQP(nil, udInit()))
		w.ok(c.Connect(bg, nil))
		ev := w.next(l.ch, rdmacm.EventConnectRequest)
		s := &end{ev.ID, w, l.ch}
		w.ok(s.CreateQP(nil, udInit()))
		buf := make([]byte, 64)
		mr := must(s.RegMsgs(buf))(w)
		w.ok(s.PostRecv(3, buf, mr))
		w.ok(s.Accept(bg, nil))
		w.ok(ev.Ack())
		est := c.expect(rdmacm.EventEstablished)
		if got := est.UD.AHAttr.GRH.TrafficClass; got != tos {
			t.Errorf("the path to the peer has traffic class %#x", got)
		}
		ah := must(c.PD().CreateAH(&est.UD.AHAttr))(w)
		w.ok(c.PostUDSend(4, []byte("hello"), nil, verbs.SendInline|verbs.SendSignaled, ah, est.UD.QPNum))
		must(s.GetRecvComp(bg))(w)
		if got := buf[0]<<4 | buf[1]>>4; got != tos { // of the header that the receiver gets
			t.Errorf("the datagram came with traffic class %#x", got)
		}
		w.ok(ah.Close())
		w.ok(mr.Close())
		member := w.newEnd(w.a, rdmacm.PSUDP)
		w.ok(member.SetTOS(tos))
		w.ok(member.BindAddr(at(addrA6, 0)))
		w.ok(member.JoinMulticast(bg, at(group6, 0), nil))
		if got := member.expect(rdmacm.EventMulticastJoin).UD.AHAttr.GRH.TrafficClass; got != tos {
			t.Errorf("the path to the group has traffic class %#x", got)
		}
		member.close()
		s.closeID()
		c.close()
		l.close()
	})
}
