package rdmacm_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/umad"
	"github.com/verbena-rdma/verbena/verbs"
)

// refusedPartition is the reason of a REJ for a partition that the port is not in.
const refusedPartition = 12

var addrC = netip.MustParseAddr("198.18.0.3")

// inPartitions runs a test on devices whose ports are in the default partition. Those of a and c are in partition 3,
// too, that of b in partition 5.
func inPartitions(t *testing.T, f func(w *world, c *mailbox)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, fab: rdmatest.New(rdmatest.Config{RealTime: true, PKeys: []uint16{0xffff, 0x8003}})}
		w.a, w.b = w.host("a", addrA), w.host("b", addrB)
		w.ok(w.fab.SetPKeys(w.contexts(w.b)[0], 1, 0xffff, 0x8005))
		p := must(umad.Open(must(w.fab.NewDevice("c", addrC))(w)))(w)
		agent := must(p.Register(umad.Registration{Class: umad.ClassCM, Methods: []uint8{umad.MethodSend}}))(w)
		f(w, &mailbox{w, agent})
		w.ok(agent.Close())
		w.ok(p.Close())
		w.ok(w.a.Close())
		w.ok(w.b.Close())
	})
}

// mailbox is QP 1 of a device without connection manager: the test composes its messages.
type mailbox struct {
	w     *world
	agent *umad.Agent
}

// message begins a message of connection management.
func message(k cmmsg.Kind, tid uint64) (umad.MAD, cmmsg.Msg) {
	mad := make(umad.MAD, umad.Size)
	return mad, cmmsg.Make(mad, k, tid)
}

// send sends a message in the default partition.
func (m *mailbox) send(to netip.Addr, mad umad.MAD) {
	m.w.Helper()
	m.w.ok(m.agent.Send(&umad.Address{Local: addrC, Remote: to}, mad))
}

// next waits for a message.
func (m *mailbox) next(want cmmsg.Kind) cmmsg.Msg {
	m.w.Helper()
	r := must(m.agent.Recv(bg))(m.w)
	msg := must(cmmsg.Parse(r.MAD))(m.w)
	if msg.Kind() != want {
		m.w.Fatalf("%v came instead of %v", msg, want)
	}
	return msg
}

// TestV_PKEY_05_PartitionOfARequest: a request or a look-up that comes in a partition that both ports are in, and names
// another one, is refused if the listener's port is not in that.
func TestV_PKEY_05_PartitionOfARequest(t *testing.T) {
	inPartitions(t, func(w *world, c *mailbox) {
		l := w.listen(at(addrB, port), 0)
		u := w.newEnd(w.b, rdmacm.PSUDP)
		w.ok(u.BindAddr(at(addrB, port)))
		w.ok(u.Listen(0))
		private := cmmsg.AppendIPHeader(nil, at(addrC, 4000), addrB)
		request := func(n uint32, pkey uint16) umad.MAD {
			mad, m := message(cmmsg.KindREQ, uint64(n))
			cmmsg.REQ(m.Data()).Put(cmmsg.REQFields{
				LocalID: n, ServiceID: cmmsg.PSTCP.Service(port), LocalGUID: 0x3333, LocalQPN: n, RemoteTimeout: 20,
				LocalTimeout: 20, MaxRetries: 15, PKey: pkey, MTU: 3, RetryCount: 7, RNRRetry: 7,
				Primary: cmmsg.PathFields{LocalGID: cmmsg.GID(addrC), RemoteGID: cmmsg.GID(addrB), HopLimit: 64, AckTimeout: 17},
			})
			m.SetPrivate(private)
			return mad
		}
		c.send(addrB, request(101, 0x8003))
		if r := cmmsg.REJ(c.next(cmmsg.KindREJ).Data()); r.Reason() != refusedPartition || r.RemoteID() != 101 ||
			r.About() != cmmsg.AboutREQ {
			t.Errorf("refused with reason %v, for %v of %d", r.Reason(), r.About(), r.RemoteID())
		}
		c.send(addrB, request(102, 0x8005)) // the port of b is in this one
		ev := w.next(l.ch, rdmacm.EventConnectRequest)
		w.ok(ev.Ack())
		s := &end{ev.ID, w, l.ch}
		w.ok(s.CreateQP(nil, qpInit()))
		if attr, _, err := s.QP().Query(verbs.QPAttrPKeyIndex); err != nil || attr.PKeyIndex != 1 {
			t.Errorf("P_Key index %d, %v; want 1", attr.PKeyIndex, err)
		}
		w.ok(s.Reject(nil))
		s.closeID()

		lookup := func(n uint32, pkey uint16) umad.MAD {
			mad, m := message(cmmsg.KindSIDRREQ, uint64(n))
			cmmsg.SIDRREQ(m.Data()).Put(n, pkey, cmmsg.PSUDP.Service(port))
			m.SetPrivate(private)
			return mad
		}
		c.send(addrB, lookup(103, 0x8003))
		if r := cmmsg.SIDRREP(c.next(cmmsg.KindSIDRREP).Data()); r.Status() != cmmsg.SIDRReject || r.RequestID() != 103 {
			t.Errorf("status %v for %d", r.Status(), r.RequestID())
		}
		c.send(addrB, lookup(104, wire.DefaultPKey))
		ev = w.next(u.ch, rdmacm.EventConnectRequest)
		w.ok(ev.Ack())
		w.ok(ev.ID.Close())
		u.none()
		u.close()
		l.none()
		l.close()
	})
}

// TestV_PKEY_05_RefusedPartition: the error of a REJ with this reason names both of its causes.
func TestV_PKEY_05_RefusedPartition(t *testing.T) {
	inPartitions(t, func(w *world, c *mailbox) {
		e := w.resolved(rdmacm.PSTCP, at(addrC, port))
		w.ok(e.CreateQP(nil, qpInit()))
		w.ok(e.Connect(bg, nil))
		asked := c.next(cmmsg.KindREQ)
		mad, m := message(cmmsg.KindREJ, asked.TID())
		cmmsg.REJ(m.Data()).Put(0, asked.LocalID(), cmmsg.AboutREQ, refusedPartition, nil)
		c.send(addrA, mad)
		ev := e.expect(rdmacm.EventRejected)
		if text := ev.Err().Error(); ev.Status != refusedPartition || !strings.Contains(text, "address") ||
			!strings.Contains(text, "P_Key") {
			t.Errorf("status %d: %v", ev.Status, ev.Err())
		}
		e.close()
	})
}

// TestV_PKEY_05_LostPartition: a connection whose partition the port has left is not asked for in another one.
func TestV_PKEY_05_LostPartition(t *testing.T) {
	inPartitions(t, func(w *world, c *mailbox) {
		to := rdmacm.SockaddrIB{GID: verbs.GIDFromAddr(addrC), SID: rdmacm.ServiceID(rdmacm.PSTCP, port), PKey: 0x8003}
		e := w.newEnd(w.a, rdmacm.PSTCP)
		w.ok(e.ResolveAddrIB(bg, nil, to, timeout))
		e.expect(rdmacm.EventAddrResolved)
		w.ok(e.ResolveRoute(bg, timeout))
		e.expect(rdmacm.EventRouteResolved)
		vctx := w.contexts(w.a)[0]
		w.ok(w.fab.SetPKeys(vctx, 1, 0xffff))
		w.errno(e.CreateQP(nil, qpInit()), syscall.EINVAL)
		w.errno(e.Connect(bg, &rdmacm.ConnParam{QPNum: 0x77}), syscall.EINVAL)
		w.ok(w.fab.SetPKeys(vctx, 1, 0xffff, 0x8003))
		w.ok(e.CreateQP(nil, qpInit()))
		w.ok(e.Connect(bg, nil))
		asked := c.next(cmmsg.KindREQ)
		if cmmsg.REQ(asked.Data()).PKey() != 0x8003 {
			t.Errorf("%v", asked)
		}
		w.ok(w.fab.SetPKeys(vctx, 1, 0xffff))
		mad, m := message(cmmsg.KindREP, asked.TID())
		cmmsg.REP(m.Data()).Put(cmmsg.REPFields{LocalID: 7, RemoteID: asked.LocalID(), LocalQPN: 9, LocalGUID: 0x3333})
		c.send(addrA, mad)
		if ev := e.expect(rdmacm.EventConnectError); !errors.Is(ev.Err(), syscall.EINVAL) {
			t.Errorf("%v", ev.Err())
		}
		e.close()
		ctx, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		if r, err := c.agent.Recv(ctx); err == nil {
			t.Errorf("%v came in partition %d of the table", cmmsg.Msg(r.MAD), r.From.PKeyIndex)
		}
	})
}
