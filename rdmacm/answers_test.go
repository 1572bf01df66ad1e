package rdmacm_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// A lookup fails if its answer has no Q_Key, or another Q_Key than the ID's QP has.
func TestW_CMA_13_QKeyOfAnAnswer(t *testing.T) {
	in(t, func(w *world) {
		l := w.newEnd(w.b, rdmacm.PSUDP)
		w.ok(l.BindAddr(at(addrB, port)))
		w.ok(l.Listen(0))
		ask := func(withQP bool, qkey uint32, want rdmacm.EventType) *rdmacm.Event {
			t.Helper()
			c := w.resolved(rdmacm.PSUDP, at(addrB, port))
			if withQP { // its Q_Key is UDPQKey
				w.ok(c.CreateQP(nil, udInit()))
			}
			w.ok(c.Connect(bg, nil))
			ev := w.next(l.ch, rdmacm.EventConnectRequest)
			w.ok(ev.ID.AnswerLookup(77, qkey))
			w.ok(ev.Ack())
			w.ok(ev.ID.Close())
			ev = c.expect(want)
			c.close()
			return ev
		}
		for _, ev := range []*rdmacm.Event{ask(false, 0, rdmacm.EventAddrError), ask(true, 5, rdmacm.EventAddrError)} {
			if ev.Status != -int(syscall.EINVAL) || !errors.Is(ev.Err(), syscall.EINVAL) {
				t.Errorf("status %d", ev.Status)
			}
		}
		if ev := ask(false, 5, rdmacm.EventEstablished); ev.UD.QKey != 5 || ev.UD.QPNum != 77 {
			t.Errorf("%+v", ev.UD)
		}
		ask(true, rdmacm.UDPQKey, rdmacm.EventEstablished)
		l.close()
	})
}

// The ID's QP is attached to the group when the program retrieves the event. If the ID has no QP, the program attaches
// one. Messages that arrived before LeaveMulticast can be polled afterwards.
func TestC_MC_03_04_05_20_21_Attach(t *testing.T) {
	in(t, func(w *world) {
		a := w.newEnd(w.a, rdmacm.PSUDP)
		w.ok(a.ResolveAddr(bg, at(addrA, 0), at(group4, 0), timeout)) // the source address replaces a route
		a.expect(rdmacm.EventAddrResolved)
		w.ok(a.CreateQP(nil, udInit()))
		w.ok(a.JoinMulticastEx(bg, &rdmacm.JoinMCAttr{CompMask: 3, JoinFlags: rdmacm.JoinSendOnlyFullMember,
			Addr: at(group4, 0)}, nil))
		to := a.expect(rdmacm.EventMulticastJoin).UD
		ah := must(a.PD().CreateAH(&to.AHAttr))(w)
		send := func() {
			w.ok(a.PostUDSend(2, []byte("all"), nil, verbs.SendInline|verbs.SendSignaled, ah, to.QPNum))
			must(a.GetSendComp(bg))(w)
			time.Sleep(time.Second) // the other end is idle
		}
		b := w.newEnd(w.b, rdmacm.PSUDP)
		w.ok(b.BindAddr(at(addrB, 0)))
		w.ok(b.CreateQP(nil, udInit()))
		mr := must(b.RegMsgs(make([]byte, 64)))(w)
		w.ok(b.PostRecv(1, mr.Bytes(), mr))
		w.ok(b.JoinMulticast(bg, at(group4, 0), nil))
		send()
		var wcs [2]verbs.WC
		if n, _ := b.RecvCQ().Poll(wcs[:]); n != 0 {
			t.Error("a message came before the event was retrieved")
		}
		ev := w.next(b.ch, rdmacm.EventMulticastJoin)
		send()
		left := make(chan struct{})
		go func() {
			w.ok(b.LeaveMulticast(at(group4, 0)))
			close(left)
		}()
		synctest.Wait()
		select {
		case <-left:
			t.Error("LeaveMulticast did not wait for the Ack")
		default:
		}
		w.ok(ev.Ack())
		<-left
		if n, _ := b.RecvCQ().Poll(wcs[:]); n != 1 {
			t.Errorf("%d messages after leaving", n)
		}
		w.ok(mr.Close())

		own := w.newEnd(w.b, rdmacm.PSUDP)
		w.ok(own.BindAddr(at(addrB, 0)))
		w.ok(own.JoinMulticast(bg, at(group4, 0), nil))
		own.expect(rdmacm.EventMulticastJoin)
		w.ok(b.QP().AttachMcast(verbs.GIDFromAddr(group4), 0))
		w.ok(b.QP().DetachMcast(verbs.GIDFromAddr(group4), 0))
		own.close()
		w.ok(ah.Close())
		a.close()
		b.close()
	})
}

// A QP that cannot be attached turns the event into an error; the group may be joined again.
func TestC_MC_09_C_EVT_24_CannotAttach(t *testing.T) {
	in(t, func(w *world) {
		e := w.newEnd(w.b, rdmacm.PSUDP)
		w.ok(e.BindAddr(at(addrB, 0)))
		w.ok(e.CreateQP(nil, udInit()))
		w.ok(e.JoinMulticast(bg, at(group4, 0), "mine"))
		w.ok(e.QP().Close()) // not through the ID
		if ev := e.expect(rdmacm.EventMulticastError); ev.Status >= 0 || ev.UD.Context != "mine" {
			t.Errorf("%+v", ev)
		}
		w.errno(e.LeaveMulticast(at(group4, 0)), syscall.EADDRNOTAVAIL)
		w.ok(e.JoinMulticast(bg, at(group4, 0), nil))
		w.ok(e.LeaveMulticast(at(group4, 0)))
		_ = e.DestroyQP()
		_ = e.Close()
		w.ok(e.ch.Close())
	})
}

// If their context has ended, the helpers do not wait. They return a present completion, or else the context's error.
func TestV_CMP_06_NotWaiting(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		c, s := w.connected(l, at(addrB, port))
		mr := must(s.RegMsgs(make([]byte, 8)))(w)
		w.ok(s.PostRecv(7, mr.Bytes(), mr))
		for _, get := range []func(context.Context) (verbs.WC, error){c.GetSendComp, s.GetRecvComp} {
			if _, err := get(nowhere); !errors.Is(err, context.Canceled) {
				t.Errorf("without a completion: %v", err)
			}
		}
		w.ok(c.PostSend(6, []byte("x"), nil, verbs.SendInline|verbs.SendSignaled))
		time.Sleep(time.Second)
		for want, get := range map[uint64]func(context.Context) (verbs.WC, error){6: c.GetSendComp, 7: s.GetRecvComp} {
			if wc, err := get(nowhere); err != nil || wc.WRID != want {
				t.Errorf("with a completion: %+v, %v", wc, err)
			}
		}
		w.ok(mr.Close())
		s.closeID()
		c.close()
		l.close()
	})
}

// The path MTU is the largest that fits the network's packets, and both ends use it.
func TestW_CMA_11_PathMTU(t *testing.T) {
	for _, c := range []struct {
		packet int // from BTH to ICRC
		want   verbs.MTU
	}{{1500 - 28, verbs.MTU1024}, {9000 - 28, verbs.MTU4096}, {4180 - 28, verbs.MTU4096}, {4095, verbs.MTU2048}, {600,
		verbs.MTU512}, {400, verbs.MTU256}} {
		synctest.Test(t, func(t *testing.T) {
			w := &world{T: t, fab: rdmatest.New(rdmatest.Config{RealTime: true, MTU: c.packet})}
			w.a, w.b = w.host("a", addrA), w.host("b", addrB)
			l := w.listen(at(addrB, port), 0)
			a, b := w.connected(l, at(addrB, port))
			for _, e := range []*end{a, b} {
				attr, _, err := e.QP().Query(0)
				if p := e.Route().PathRec[0]; err != nil || p.MTU != c.want || attr.PathMTU != c.want {
					t.Errorf("packets of %d bytes: %v has path MTU %v, its QP %v, %v; want %v", c.packet, e.LocalAddr(), p.MTU,
						attr.PathMTU, err, c.want)
				}
			}
			w.exchange(a, b)
			b.closeID()
			a.close()
			l.close()
			w.ok(w.a.Close())
			w.ok(w.b.Close())
		})
	}
}
