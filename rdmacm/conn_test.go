package rdmacm_test

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

func TestC_PARM_04_PrivateDataLimits(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		c := w.resolved(rdmacm.PSTCP, at(addrB, port))
		w.ok(c.CreateQP(nil, qpInit()))
		w.errno(c.Connect(bg, &rdmacm.ConnParam{PrivateData: make([]byte, 57)}), syscall.EINVAL)
		data := []byte("0123456789012345678901234567890123456789012345678901234!")
		w.ok(c.Connect(bg, &rdmacm.ConnParam{PrivateData: data}))
		copy(data, "changed") // C-PARM-01
		ev := w.next(l.ch, rdmacm.EventConnectRequest)
		if got := string(ev.Conn.PrivateData); got[:10] != "0123456789" || got[55] != '!' {
			t.Errorf("%q", got)
		}
		w.ok(ev.Ack())
		s := &end{ev.ID, w, l.ch}
		w.ok(s.CreateQP(nil, qpInit()))
		w.errno(s.Accept(bg, &rdmacm.ConnParam{PrivateData: make([]byte, 197)}), syscall.EINVAL)
		w.ok(s.Accept(bg, &rdmacm.ConnParam{PrivateData: make([]byte, 196)}))
		c.expect(rdmacm.EventEstablished)
		s.expect(rdmacm.EventEstablished)
		s.closeID()
		c.close()
		l.close()
	})
}

func TestC_PARM_08_Depths(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		c := w.resolved(rdmacm.PSTCP, at(addrB, port))
		w.ok(c.CreateQP(nil, qpInit()))
		w.errno(c.Connect(bg, &rdmacm.ConnParam{ResponderResources: 129}), syscall.EINVAL)
		w.errno(c.Connect(bg, &rdmacm.ConnParam{InitiatorDepth: 253}), syscall.EINVAL)
		// C-PARM-09
		w.ok(c.Connect(bg, &rdmacm.ConnParam{ResponderResources: rdmacm.MaxRespRes, InitiatorDepth: rdmacm.MaxInitDepth}))
		ev := w.next(l.ch, rdmacm.EventConnectRequest)
		if ev.Conn.ResponderResources != 128 || ev.Conn.InitiatorDepth != 128 {
			t.Errorf("%+v", ev.Conn)
		}
		w.ok(ev.Ack())
		s := &end{ev.ID, w, l.ch}
		w.ok(s.CreateQP(nil, qpInit()))
		// C-ACC-06
		w.ok(s.Accept(bg, &rdmacm.ConnParam{ResponderResources: 4, InitiatorDepth: rdmacm.MaxInitDepth}))
		// C-PARM-10
		if ev := c.expect(rdmacm.EventEstablished); ev.Conn.InitiatorDepth != 4 || ev.Conn.ResponderResources != 128 {
			t.Errorf("%+v", ev.Conn)
		}
		s.expect(rdmacm.EventEstablished)
		s.closeID()
		c.close()
		l.close()
	})
}

func TestC_CONN_05_WithoutQP(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		c := w.resolved(rdmacm.PSTCP, at(addrB, port))
		own := w.ownQP(c) // C-OVR-03, C-OVR-05
		attr := verbs.QPAttr{QPState: verbs.QPSRTR}
		_, err := c.InitQPAttr(&attr)
		w.errno(err, syscall.EINVAL) // C-QP-17
		attr.QPState = verbs.QPSInit
		mask, err := c.InitQPAttr(&attr)
		w.ok(err)
		// C-QP-18
		if attr.QPAccessFlags != 0 ||
			mask != verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags {
			t.Errorf("%+v %v", attr, mask)
		}
		w.ok(c.Connect(bg, &rdmacm.ConnParam{QPNum: own.QPN(), SRQ: true, ResponderResources: 1, InitiatorDepth: 1,
			RetryCount: 7}))
		ev := w.next(l.ch, rdmacm.EventConnectRequest)
		if ev.Conn.QPNum != own.QPN() || !ev.Conn.SRQ { // C-PARM-15: the program's, as the ID has no QP
			t.Errorf("%+v", ev.Conn)
		}
		w.ok(ev.Ack())
		s := &end{ev.ID, w, l.ch}
		w.ok(s.CreateQP(nil, qpInit()))
		w.ok(s.Accept(bg, nil))
		if ev := c.expect(rdmacm.EventConnectResponse); ev.Conn.QPNum != s.QP().QPN() { // C-CONN-05
			t.Errorf("%+v", ev.Conn)
		}
		s.none()
		for _, st := range []verbs.QPState{verbs.QPSInit, verbs.QPSRTR, verbs.QPSRTS} {
			a := verbs.QPAttr{QPState: st}
			mask, err := c.InitQPAttr(&a)
			w.ok(err)
			if st == verbs.QPSInit &&
				a.QPAccessFlags != verbs.AccessRemoteWrite|verbs.AccessRemoteRead|verbs.AccessRemoteAtomic|verbs.AccessFlushGlobal {
				t.Errorf("access %v", a.QPAccessFlags)
			}
			w.ok(own.Modify(&a, mask))
		}
		w.ok(c.Establish())               // C-EST-01, C-EST-02
		s.expect(rdmacm.EventEstablished) // C-EST-03
		c.none()
		w.ok(c.Disconnect(bg))
		s.expect(rdmacm.EventDisconnected)
		s.closeID()
		c.expect(rdmacm.EventDisconnected)
		w.ok(own.Close())
		w.ok(own.SendCQ().Close())
		c.close()
		l.close()
	})
}

// ownQP makes a QP that is not the ID's.
func (w *world) ownQP(e *end) *verbs.QP {
	w.Helper()
	cq := must(e.Verbs().CreateCQ(4, nil))(w)
	init := qpInit()
	init.Type, init.SendCQ, init.RecvCQ = verbs.QPTypeRC, cq, cq
	return must(e.PD().CreateQP(init))(w)
}

// The RTU is lost: data, or the repeated reply, completes the handshake.
func TestC_NTF_03_Notify(t *testing.T) {
	lost := false
	drop := func(p rdmatest.Packet) (rdmatest.Verdict, bool) {
		if !lost && isMessage(p, attrRTU) {
			lost = true
			return rdmatest.Verdict{Drop: true}, true
		}
		return rdmatest.Verdict{}, false
	}
	for _, notify := range []bool{true, false} {
		lost = false
		inFaulty(t, rdmatest.Faults{Script: drop}, func(w *world) {
			l := w.listen(at(addrB, port), 0)
			c, s := w.accepted(l, at(addrB, port))
			s.none() // C-ACC-08
			if notify {
				w.ok(s.Notify(verbs.EventCommEst)) // C-NTF-01, C-NTF-04, W-CM-14
			}
			start := time.Now()
			s.expect(rdmacm.EventEstablished)
			if took := time.Since(start); notify != (took < 400*time.Millisecond) || took > time.Second {
				t.Errorf("notify %v: established after %v", notify, took)
			}
			w.exchange(c, s)
			s.closeID()
			c.close()
			l.close()
		})
		if !lost {
			t.Error("no RTU was lost")
		}
	}
}

// The peer's DREQ comes without its RTU, which is lost or late. Only a peer with the reply sends one, so the program
// gets ESTABLISHED first, which Accept of a synchronous ID waits for.
func TestDisconnectWithoutRTU(t *testing.T) {
	for _, sync := range []bool{false, true} {
		lost := 0
		drop := func(p rdmatest.Packet) (rdmatest.Verdict, bool) {
			if !isMessage(p, attrRTU) {
				return rdmatest.Verdict{}, false
			}
			lost++
			return rdmatest.Verdict{Drop: true}, true
		}
		inFaulty(t, rdmatest.Faults{Script: drop}, func(w *world) {
			if !sync {
				l := w.listen(at(addrB, port), 0)
				c, s := w.accepted(l, at(addrB, port))
				w.ok(c.Disconnect(bg))
				s.expect(rdmacm.EventEstablished)
				s.expect(rdmacm.EventDisconnected)
				w.ok(s.Disconnect(bg))
				c.expect(rdmacm.EventDisconnected)
				s.none()
				s.closeID()
				c.close()
				l.close()
				return
			}
			c := w.resolved(rdmacm.PSTCP, at(addrB, port))
			w.ok(c.CreateQP(nil, qpInit()))
			lid := must(w.b.CreateID(nil, rdmacm.PSTCP, nil))(w)
			w.ok(lid.BindAddr(at(addrB, port)))
			w.ok(lid.Listen(1))
			w.ok(c.Connect(bg, nil))
			s := must(lid.GetRequest(bg))(w)
			w.ok(s.CreateQP(nil, qpInit()))
			left := make(chan error, 1)
			go func() {
				ev, err := c.ch.GetEvent(bg)
				if err == nil && ev.Type == rdmacm.EventEstablished {
					err = errors.Join(ev.Ack(), c.Disconnect(bg))
				}
				left <- err
			}()
			w.ok(s.Accept(bg, nil))
			w.ok(<-left)
			w.ok(w.next(s.Channel(), rdmacm.EventDisconnected).Ack())
			w.ok(s.Disconnect(bg))
			c.expect(rdmacm.EventDisconnected)
			w.ok(s.DestroyQP())
			w.ok(s.Close())
			w.ok(lid.Close())
			c.close()
		})
		if lost == 0 {
			t.Error("no RTU was lost")
		}
	}
}

// The network loses one packet of a handshake: the connection begins, and ends, within a second all the same.
func TestOneLostMessage(t *testing.T) {
	for name, attr := range map[string]byte{"REQ": 0x10, "REP": 0x13, "RTU": attrRTU, "DREQ": 0x15, "DREP": 0x16} {
		t.Run(name, func(t *testing.T) {
			lost := 0
			drop := func(p rdmatest.Packet) (rdmatest.Verdict, bool) {
				if lost > 0 || !isMessage(p, attr) {
					return rdmatest.Verdict{}, false
				}
				lost++
				return rdmatest.Verdict{Drop: true}, true
			}
			inFaulty(t, rdmatest.Faults{Script: drop}, func(w *world) {
				l := w.listen(at(addrB, port), 0)
				start := time.Now()
				c, s := w.connected(l, at(addrB, port))
				w.ok(c.Disconnect(bg))
				s.expect(rdmacm.EventDisconnected)
				w.ok(s.Disconnect(bg))
				c.expect(rdmacm.EventDisconnected)
				if took := time.Since(start); lost != 1 || took > time.Second {
					t.Errorf("%d packets were lost; it took %v", lost, took)
				}
				s.closeID()
				c.close()
				l.close()
			})
		})
	}
}

// Without an answer all repetitions take 16 x 4.6 s.
func TestC_CONN_09_Unreachable(t *testing.T) {
	in(t, func(w *world) {
		c := w.resolved(rdmacm.PSTCP, at(netip.MustParseAddr("198.18.0.77"), port))
		w.ok(c.CreateQP(nil, qpInit()))
		start := time.Now()
		w.ok(c.Connect(bg, nil))
		ev := c.expect(rdmacm.EventUnreachable)
		// C-OVR-07, W-CM-26
		if took := time.Since(start); ev.Status != -int(syscall.ETIMEDOUT) || !errors.Is(ev.Err(), syscall.ETIMEDOUT) ||
			took < 73*time.Second || took > 75*time.Second {
			t.Errorf("status %d after %v", ev.Status, took)
		}
		c.close()
	})
}

func TestC_DISC_05_NoAnswerToDisconnect(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		c, s := w.connected(l, at(addrB, port))
		w.ok(c.Disconnect(bg))
		s.expect(rdmacm.EventDisconnected) // C-DISC-04
		// The server's program does nothing: no DREP.
		if ev := c.expect(rdmacm.EventDisconnected); ev.Status != -int(syscall.ETIMEDOUT) { // W-CM-26, T-06
			t.Errorf("status %d", ev.Status)
		}
		c.expect(rdmacm.EventTimewaitExit)
		w.ok(s.Disconnect(bg)) // C-DISC-07
		s.expect(rdmacm.EventTimewaitExit)
		s.closeID()
		c.close()
		l.close()
	})
}

func TestC_DISC_06_BothAtOnce(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		c, s := w.connected(l, at(addrB, port))
		mr := must(c.RegMsgs(make([]byte, 8)))(w)
		w.ok(c.PostRecv(1, mr.Bytes(), mr))
		w.ok(c.Disconnect(bg)) // C-DISC-03, C-DISC-04, C-FLOW-05, C-EVT-22
		w.ok(s.Disconnect(bg))
		if wc := must(c.GetRecvComp(bg))(w); wc.Status != verbs.WCWRFlushErr { // C-DISC-02
			t.Errorf("%v", wc.Status)
		}
		w.ok(mr.Close())
		for _, e := range []*end{c, s} {
			e.expect(rdmacm.EventDisconnected)
			e.expect(rdmacm.EventTimewaitExit) // C-EVT-25
			w.ok(e.Disconnect(bg))
			e.none()
		}
		s.closeID()
		c.close()
		l.close()
	})
}

// TestC_LIS_08_ListenAgain checks that a request waits for a program that ends a listener and makes another, also a
// second later, and that it is refused if the program makes none.
func TestC_LIS_08_ListenAgain(t *testing.T) {
	in(t, func(w *world) {
		first := w.listen(at(addrB, port), 2)
		first.close()
		time.Sleep(time.Second)
		c := w.resolved(rdmacm.PSTCP, at(addrB, port))
		w.ok(c.CreateQP(nil, qpInit()))
		w.ok(c.Connect(bg, nil))
		time.Sleep(200 * time.Millisecond)
		l := w.listen(at(addrB, port), 2)
		start := time.Now()
		ev := w.next(l.ch, rdmacm.EventConnectRequest)
		if took := time.Since(start); took > 10*time.Millisecond {
			t.Errorf("the request came %v after the new listener", took)
		}
		w.ok(ev.Ack())
		w.ok(ev.ID.Close())
		c.expect(rdmacm.EventRejected)
		c.close()
		l.close()

		c = w.resolved(rdmacm.PSTCP, at(addrB, port))
		w.ok(c.CreateQP(nil, qpInit()))
		start = time.Now()
		w.ok(c.Connect(bg, nil))
		c.expect(rdmacm.EventRejected)
		if took := time.Since(start); took < 950*time.Millisecond || took > 1050*time.Millisecond {
			t.Errorf("the request was refused after %v, want 1 s", took)
		}
		c.close()
	})
}

func TestC_LIS_07_Backlog(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 2)
		var cs []*end
		for range 3 {
			c := w.resolved(rdmacm.PSTCP, at(addrB, port))
			w.ok(c.CreateQP(nil, qpInit()))
			w.ok(c.Connect(bg, nil))
			cs = append(cs, c)
		}
		time.Sleep(100 * time.Millisecond)
		if n := w.b.Counters(w.contexts(w.b)[0]).CM.BacklogFull; n != 1 { // T-19
			t.Errorf("%d requests were dropped, want 1", n)
		}
		for range 2 {
			ev := w.next(l.ch, rdmacm.EventConnectRequest)
			w.ok(ev.Ack())
			w.ok(ev.ID.Close())
		}
		start := time.Now()
		ev := w.next(l.ch, rdmacm.EventConnectRequest) // the third one tries again
		if took := time.Since(start); took < 100*time.Millisecond || took > time.Second {
			t.Errorf("it came after %v", took)
		}
		w.ok(ev.Ack())
		w.ok(ev.ID.Close())
		for _, c := range cs {
			c.expect(rdmacm.EventRejected)
			c.close()
		}
		l.close()
	})
}

func (w *world) contexts(h *rdmacm.Host) []*verbs.Context {
	w.Helper()
	return must(h.Devices())(w)
}

func TestC_LIS_04_AddressesAndFamilies(t *testing.T) {
	in(t, func(w *world) {
		l4 := w.listen(at(addrB, port), 0) // C-LIS-02
		c := w.resolved(rdmacm.PSTCP, at(addrB6, port))
		w.ok(c.CreateQP(nil, qpInit()))
		w.ok(c.Connect(bg, nil))
		if ev := c.expect(rdmacm.EventRejected); ev.Status != 28 { // C-LIS-08: the address does not match
			t.Errorf("status %d", ev.Status)
		}
		c.close()
		l4.close()
		only6 := w.newEnd(w.b, rdmacm.PSTCP)
		w.ok(only6.SetAFOnly(true))
		w.ok(only6.BindAddr(at(netip.IPv6Unspecified(), port)))
		w.ok(only6.Listen(0))
		only4 := w.newEnd(w.b, rdmacm.PSTCP)
		w.ok(only4.SetAFOnly(true)) // C-OPT-06
		w.ok(only4.BindAddr(at(netip.IPv4Unspecified(), port)))
		w.ok(only4.Listen(0))
		w.errno(only4.SetAFOnly(false), syscall.EINVAL)
		for dst, l := range map[netip.Addr]*end{addrB: only4, addrB6: only6} {
			c, s := w.connected(l, at(dst, port))
			s.closeID()
			c.close()
		}
		only4.close()
		only6.close()
	})
}

// The same device at both ends.
func TestSelfConnection(t *testing.T) {
	in(t, func(w *world) {
		l := w.newEnd(w.a, rdmacm.PSTCP)
		w.ok(l.BindAddr(at(addrA, port)))
		w.ok(l.Listen(0))
		c, s := w.connected(l, at(addrA, port))
		w.exchange(c, s)
		w.ok(c.Disconnect(bg))
		s.expect(rdmacm.EventDisconnected)
		w.ok(s.Disconnect(bg))
		c.expect(rdmacm.EventDisconnected)
		s.closeID()
		c.close()
		l.close()
	})
}

// Every tenth packet is lost each way, CM messages too.
func TestLoss(t *testing.T) {
	inFaulty(t, rdmatest.Faults{Loss: 0.1, Duplicate: 0.05, Reorder: 0.05, ReorderDelay: time.Millisecond},
		func(w *world) {
			l := w.listen(at(netip.IPv4Unspecified(), port), 0)
			for range 30 {
				c, s := w.connected(l, at(addrB, port))
				w.exchange(c, s)
				w.exchange(s, c)
				w.ok(c.Disconnect(bg))
				s.expect(rdmacm.EventDisconnected)
				w.ok(s.Disconnect(bg))
				c.expect(rdmacm.EventDisconnected)
				s.expect(rdmacm.EventTimewaitExit)
				s.closeID()
				c.close()
			}
			l.close()
		})
}

// Many connections at a time, on one listener.
func TestManyConnections(t *testing.T) {
	const n = 1000
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		ch := must(w.a.CreateEventChannel())(w)
		established := map[*rdmacm.ID]bool{}
		small := &verbs.QPInitAttr{Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}
		var ids []*rdmacm.ID
		for range n {
			id := must(w.a.CreateID(ch, rdmacm.PSTCP, nil))(w)
			w.ok(id.ResolveAddr(bg, netip.AddrPort{}, at(addrB, port), timeout))
			w.ok(id.ResolveRoute(bg, timeout))
			init := *small
			w.ok(id.CreateQP(nil, &init))
			w.ok(id.Connect(bg, nil))
			ids = append(ids, id)
		}
		for len(established) < n {
			ev := must(l.ch.GetEvent(bg))(w)
			w.ok(ev.Ack())
			switch ev.Type {
			case rdmacm.EventConnectRequest:
				init := *small
				w.ok(ev.ID.CreateQP(nil, &init))
				w.ok(ev.ID.Accept(bg, nil))
			case rdmacm.EventEstablished:
				established[ev.ID] = true
			default:
				t.Fatal(ev.Type)
			}
		}
		synctest.Wait()
		for id := range established {
			w.ok(id.DestroyQP())
			w.ok(id.Close())
		}
		for _, id := range ids {
			w.ok(id.DestroyQP())
			w.ok(id.Close())
		}
		w.ok(ch.Close())
		l.close()
	})
}

// A peer that asks for an alternate path gets the answer that there is none, and stops asking.
func TestAlternatePathIsRefused(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		c, s := w.connected(l, at(addrB, port))
		w.ok(c.LoadPath())
		synctest.Wait()
		if c := w.b.Counters(s.Verbs()); c.CM.Tx.Of(cmmsg.KindAPR) != 1 {
			t.Errorf("%+v", c.CM)
		}
		s.closeID()
		c.expect(rdmacm.EventDisconnected)
		c.close()
		l.close()
	})
}
