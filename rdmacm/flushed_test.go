package rdmacm_test

import (
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// After DISCONNECTED, which both ends get, both QPs are in ERR and all their requests are flushed. A QP works again
// only through RESET.
func TestC_EVT_22_RequestsAreFlushed(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		c, s := w.connected(l, at(addrB, port))
		for _, e := range []*end{c, s} {
			buf := make([]byte, 8)
			mr := must(e.RegMsgs(buf))(w)
			defer func() { w.ok(mr.Close()) }()
			for i := range 3 {
				w.ok(e.PostRecv(uint64(i), buf, mr))
			}
		}
		w.ok(c.Disconnect(bg))
		c.expect(rdmacm.EventDisconnected)
		s.expect(rdmacm.EventDisconnected)
		w.ok(s.Disconnect(bg))
		for _, e := range []*end{c, s} {
			for i := range uint64(3) {
				if wc := must(e.GetRecvComp(bg))(w); wc.WRID != i || wc.Status != verbs.WCWRFlushErr {
					t.Errorf("%v: request %d completes with %v, not %d", e.LocalAddr(), wc.WRID, wc.Status, i)
				}
			}
			if st := e.QP().State(); st != verbs.QPSErr {
				t.Errorf("%v: the QP is in %v", e.LocalAddr(), st)
			}
			again := verbs.QPAttr{QPState: verbs.QPSInit, PortNum: 1}
			mask := verbs.QPAttrState | verbs.QPAttrPKeyIndex | verbs.QPAttrPort | verbs.QPAttrAccessFlags
			w.errno(e.QP().Modify(&again, mask), syscall.EINVAL)
			w.ok(e.QP().Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, verbs.QPAttrState))
			w.ok(e.QP().Modify(&again, mask))
		}
		s.closeID()
		c.close()
		l.close()
	})
}

// Datagrams of the port space IB, made from results of GetAddrInfo.
func TestC_PS_04_DatagramsOfPSIB(t *testing.T) {
	in(t, func(w *world) {
		hints := rdmacm.AddrInfo{Flags: rdmacm.RAIPassive, PortSpace: rdmacm.PSIB, QPType: verbs.QPTypeUD}
		l := must(w.b.CreateEP(bg, must(rdmacm.GetAddrInfo(bg, addrB.String(), "7471", &hints))(w), nil, udInit()))(w)
		w.ok(l.Listen(0))
		got := make(chan *rdmacm.ID)
		go func() {
			s := must(l.GetRequest(bg))(w)
			w.ok(s.Accept(bg, nil))
			got <- s
		}()
		hints.Flags = 0
		c := must(w.a.CreateEP(bg, must(rdmacm.GetAddrInfo(bg, addrB.String(), "7471", &hints))(w), nil, udInit()))(w)
		w.ok(c.Connect(bg, nil))
		s := <-got
		if c.QPType() != verbs.QPTypeUD || s.QPType() != verbs.QPTypeUD || c.PS() != rdmacm.PSIB || s.PS() != rdmacm.PSIB ||
			c.Event().UD.QPNum != s.QP().QPN() {
			t.Errorf("%v %v, %v %v, QP %#x", c.QPType(), c.PS(), s.QPType(), s.PS(), c.Event().UD.QPNum)
		}
		buf := make([]byte, 64)
		mr := must(s.RegMsgs(buf))(w)
		w.ok(s.PostRecv(3, buf, mr))
		ah := must(c.PD().CreateAH(&c.Event().UD.AHAttr))(w)
		w.ok(c.PostUDSend(4, []byte("hello"), nil, verbs.SendInline|verbs.SendSignaled, ah, c.Event().UD.QPNum))
		if wc := must(s.GetRecvComp(bg))(w); string(buf[40:wc.ByteLen]) != "hello" {
			t.Errorf("%+v", wc)
		}
		must(c.GetSendComp(bg))(w)
		w.ok(ah.Close())
		w.ok(mr.Close())
		for _, id := range []*rdmacm.ID{c, s, l} {
			w.ok(id.Close())
		}
	})
}
