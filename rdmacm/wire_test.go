package rdmacm_test

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
)

// seen is a message on the wire.
type seen struct {
	src, dst netip.Addr
	packet   []byte
	msg      cmmsg.Msg
}

// recorder records the packets to QP 1.
type recorder struct {
	mu   sync.Mutex
	list []seen
}

func (r *recorder) script(p rdmatest.Packet) (rdmatest.Verdict, bool) {
	if wire.BTH(p.Data).DestQPN() == wire.GSIQPN {
		r.mu.Lock()
		b := slices.Clone(p.Data)
		r.list = append(r.list, seen{p.Src, p.Dst, b, cmmsg.Msg(b[wire.BTHLen+wire.DETHLen:])})
		r.mu.Unlock()
	}
	return rdmatest.Verdict{}, false
}

// of lists the messages of a kind.
func (r *recorder) of(k cmmsg.Kind) (list []seen) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.list {
		if s.msg.Kind() == k {
			list = append(list, s)
		}
	}
	return list
}

// session is a connection that is made, rejected, and ended, and a look-up, with private data in each message.
func (w *world) session() {
	w.Helper()
	l := w.listen(at(addrB, port), 0)
	c := w.resolved(rdmacm.PSTCP, at(addrB, port))
	w.ok(c.CreateQP(nil, qpInit()))
	w.ok(c.Connect(bg, &rdmacm.ConnParam{PrivateData: []byte("req"), RetryCount: 5, RNRRetryCount: 6}))
	ev := w.next(l.ch, rdmacm.EventConnectRequest)
	w.ok(ev.Ack())
	s := &end{ev.ID, w, l.ch}
	w.ok(s.CreateQP(nil, qpInit()))
	time.Sleep(6 * time.Second) // the request comes again, so the program is said to be slow
	w.ok(s.Accept(bg, &rdmacm.ConnParam{PrivateData: []byte("rep")}))
	c.expect(rdmacm.EventEstablished)
	s.expect(rdmacm.EventEstablished)
	w.ok(c.Disconnect(bg))
	s.expect(rdmacm.EventDisconnected)
	w.ok(s.Disconnect(bg))
	c.expect(rdmacm.EventDisconnected)
	s.closeID()
	c.close()
	r := w.resolved(rdmacm.PSTCP, at(addrB, port))
	w.ok(r.CreateQP(nil, qpInit()))
	w.ok(r.Connect(bg, nil))
	ev = w.next(l.ch, rdmacm.EventConnectRequest)
	w.ok(ev.ID.Reject([]byte("rej")))
	w.ok(ev.Ack())
	w.ok(ev.ID.Close())
	r.expect(rdmacm.EventRejected)
	r.close()
	l.close()
	u := w.newEnd(w.b, rdmacm.PSUDP)
	w.ok(u.BindAddr(at(addrB, port)))
	w.ok(u.Listen(0))
	d := w.resolved(rdmacm.PSUDP, at(addrB, port))
	w.ok(d.Connect(bg, &rdmacm.ConnParam{PrivateData: []byte("sidr")}))
	ev = w.next(u.ch, rdmacm.EventConnectRequest)
	w.ok(ev.ID.Accept(bg, &rdmacm.ConnParam{QPNum: 99, PrivateData: []byte("answer")}))
	w.ok(ev.Ack())
	w.ok(ev.ID.Close())
	d.expect(rdmacm.EventEstablished)
	d.close()
	u.close()
}

func TestW_MAD_01_02_04_05_07_OnTheWire(t *testing.T) {
	var rec recorder
	inFaulty(t, rdmatest.Faults{Script: rec.script}, func(w *world) { w.session() })
	numbers := map[uint16]int{}
	for _, s := range rec.list {
		m := wire.MAD(s.msg)
		numbers[m.AttrID()]++
		if len(s.packet) != 12+8+256 { // W-MAD-01: and 4 of the ICRC
			t.Errorf("%v: %d bytes", s.msg.Kind(), len(s.packet))
		}
		if bth, deth := wire.BTH(s.packet), wire.DETH(s.packet[wire.BTHLen:]); bth.Opcode() != 0x64 ||
			bth.PKey() != 0xFFFF || deth.QKey() != 0x80010000 || deth.SrcQPN() != 1 {
			t.Errorf("%v: headers %x", s.msg.Kind(), s.packet[:20])
		}
		if h := m.Header(); m[0] != 1 || h.Class != 7 || h.ClassVersion != 2 || h.Method != 3 || h.Status != 0 ||
			h.AttrMod != 0 ||
			binary.BigEndian.Uint16(m[6:]) != 0 || binary.BigEndian.Uint16(m[18:]) != 0 { // W-MAD-02
			t.Errorf("%v: %+v", s.msg.Kind(), h)
		}
		if forward := s.src == addrA && s.dst == addrB; !forward && (s.src != addrB || s.dst != addrA) { // W-MAD-07
			t.Errorf("%v from %v to %v", s.msg.Kind(), s.src, s.dst)
		}
	}
	// W-MAD-04
	for attr, n := range map[uint16]int{0x10: 3, 0x11: 1, 0x12: 1, 0x13: 1, 0x14: 1, 0x15: 1, 0x16: 1, 0x17: 1, 0x18: 1} {
		if numbers[attr] != n {
			t.Errorf("%d messages with attribute %#x, want %d", numbers[attr], attr, n)
		}
	}
	tid := func(k cmmsg.Kind, i int) uint64 { return rec.of(k)[i].msg.TID() }
	req, dreq, sidr := tid(cmmsg.KindREQ, 0), tid(cmmsg.KindDREQ, 0), tid(cmmsg.KindSIDRREQ, 0)
	for _, k := range []cmmsg.Kind{cmmsg.KindMRA, cmmsg.KindREP, cmmsg.KindRTU} { // W-MAD-05
		if tid(k, 0) != req {
			t.Errorf("%v: transaction %#x, want %#x", k, tid(k, 0), req)
		}
	}
	if tid(cmmsg.KindREJ, 0) != tid(cmmsg.KindREQ, 2) || tid(cmmsg.KindDREP, 0) != dreq || tid(cmmsg.KindSIDRREP,
		0) != sidr {
		t.Error("an answer with another transaction ID than the question")
	}
}

func TestW_CM_03_10_W_CMA_03_10_T_03_04_07_Fields(t *testing.T) {
	var rec recorder
	var local netip.AddrPort
	inFaulty(t, rdmatest.Faults{Script: rec.script}, func(w *world) {
		w.session()
		e := w.resolved(rdmacm.PSTCP, at(addrB, port))
		local = e.LocalAddr()
		w.ok(e.Connect(bg, &rdmacm.ConnParam{QPNum: 5}))
		e.expect(rdmacm.EventRejected)
		e.close()
	})
	zero := func(k cmmsg.Kind, from int, b []byte) {
		t.Helper()
		if slices.ContainsFunc(b, func(x byte) bool { return x != 0 }) {
			t.Errorf("%v: bytes behind %d are %x", k, from, b)
		}
	}
	req := rec.of(cmmsg.KindREQ)[0]
	r := cmmsg.REQ(req.msg.Data())
	if r.RemoteTimeout() != 20 || r.LocalTimeout() != 20 || r.MaxRetries() != 15 || r.RetryCount() != 5 ||
		r.RNRRetry() != 6 || r.PKey() != 0xFFFF || r.LocalQKey() != 0 {
		t.Errorf("%v", req.msg) // W-CMA-10, T-03
	}
	zero(cmmsg.KindREQ, 96, r[96:140]) // W-CM-10, T-04
	p := r.Primary()
	if p.LocalGID() != cmmsg.GID(addrA) || p.RemoteGID() != cmmsg.GID(addrB) || p.Fields().LocalLID != 0xFFFF { // T-07
		t.Errorf("%v", req.msg)
	}
	h := cmmsg.IPHeader(r.Private())
	if h.Version() != 0 || h.IPVersion() != 4 || h.Src() != req.src || h.Dst() != req.dst {
		t.Errorf("IP header %x", h[:36])
	}
	last := rec.of(cmmsg.KindREQ)
	if h := cmmsg.IPHeader(last[len(last)-1].msg.Private()); h.SrcPort() != local.Port() {
		t.Errorf("source port %d of %v", h.SrcPort(), local)
	}
	for _, c := range []struct {
		k    cmmsg.Kind
		room int
		data string
	}{{cmmsg.KindREQ, 56, "req"}, {cmmsg.KindREP, 196, "rep"}, {cmmsg.KindREJ, 148, "rej"}, {cmmsg.KindSIDRREQ, 180,
		"sidr"}, {cmmsg.KindSIDRREP, 136, "answer"},
		// W-CMA-03, W-CM-03
		{cmmsg.KindMRA, 222, ""}, {cmmsg.KindRTU, 224, ""}, {cmmsg.KindDREQ, 220, ""}, {cmmsg.KindDREP, 224, ""}} {
		private := rec.of(c.k)[0].msg.Private()
		private = private[len(private)-c.room:]
		if string(private[:len(c.data)]) != c.data {
			t.Errorf("%v: private data begins with %q", c.k, private[:8])
		}
		zero(c.k, len(c.data), private[len(c.data):])
	}
	if mra := cmmsg.MRA(rec.of(cmmsg.KindMRA)[0].msg.Data()); mra.ServiceTimeout() != 24 {
		t.Errorf("the MRA asks for time code %d", mra.ServiceTimeout())
	}
}

// The server learns addresses and ports from the header and the service ID.
func TestW_CMA_04_AddressesOfARequest(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(netip.IPv6Unspecified(), port), 0)
		for _, dst := range []netip.Addr{addrB, addrB6} {
			c, s := w.connected(l, at(dst, port))
			if s.LocalAddr() != at(dst, port) || s.PeerAddr() != c.LocalAddr() {
				t.Errorf("%v from %v, want %v from %v", s.LocalAddr(), s.PeerAddr(), at(dst, port), c.LocalAddr())
			}
			s.closeID()
			c.close()
		}
		l.close()
	})
}

// The counters of a session, by the kernel's names.
func TestCountersByName(t *testing.T) {
	in(t, func(w *world) {
		vctx := w.contexts(w.b)[0]
		w.session()
		c := w.b.Counters(vctx)
		m := c.Map()
		for name, want := range map[string]uint64{
			"cm_rx_msgs/req": 3, "cm_rx_duplicates/req": 1, "cm_tx_msgs/mra": 1, "cm_tx_msgs/rep": 1, "cm_tx_msgs/rej": 1,
			"cm_rx_msgs/dreq": 1,
			"cm_tx_msgs/drep": 1, "cm_tx_msgs/sidr_rep": 1, "cm_tx_retries/req": 0, "rx_spoofed": 0, "ids": 0, "mad_received": 6,
		} {
			if got, there := m[name]; got != want || !there {
				t.Errorf("%s is %d, want %d", name, got, want)
			}
		}
	})
}
