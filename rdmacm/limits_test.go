package rdmacm_test

import (
	"bytes"
	"net/netip"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// The private data of each message has its own limit, and arrives.
func TestLimitsOfPrivateData(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		full := func(n int) []byte { return bytes.Repeat([]byte{0xAB}, n) }
		request := func() (*end, *rdmacm.Event) {
			c := w.resolved(rdmacm.PSTCP, at(addrB, port))
			w.ok(c.CreateQP(nil, qpInit()))
			w.errno(c.Connect(bg, &rdmacm.ConnParam{PrivateData: full(57)}), syscall.EINVAL)
			w.ok(c.Connect(bg, &rdmacm.ConnParam{PrivateData: full(56)}))
			ev := w.next(l.ch, rdmacm.EventConnectRequest)
			if !bytes.Equal(ev.Conn.PrivateData, full(56)) {
				t.Errorf("a request with %x", ev.Conn.PrivateData)
			}
			return c, ev
		}
		c, ev := request()
		w.errno(ev.ID.Reject(full(149)), syscall.EINVAL)
		w.ok(ev.ID.Reject(full(148)))
		if got := c.expect(rdmacm.EventRejected); got.Status != 28 || !bytes.Equal(got.Conn.PrivateData, full(148)) {
			t.Errorf("%+v", got)
		}
		w.ok(ev.Ack())
		w.ok(ev.ID.Close())
		c.close()

		c, ev = request()
		w.ok(ev.ID.RejectECE(nil))
		if got := c.expect(rdmacm.EventRejected); got.Status != 35 {
			t.Errorf("%+v", got)
		}
		w.ok(ev.Ack())
		w.ok(ev.ID.Close())
		c.close()

		c, ev = request()
		s := &end{ev.ID, w, l.ch}
		w.ok(s.CreateQP(nil, qpInit()))
		w.errno(s.Accept(bg, &rdmacm.ConnParam{PrivateData: full(197)}), syscall.EINVAL)
		w.ok(s.Accept(bg, &rdmacm.ConnParam{PrivateData: full(196)}))
		if got := c.expect(rdmacm.EventEstablished); !bytes.Equal(got.Conn.PrivateData, full(196)) {
			t.Errorf("%+v", got)
		}
		w.ok(ev.Ack())
		s.expect(rdmacm.EventEstablished)
		s.closeID()
		c.expect(rdmacm.EventDisconnected)
		c.close()
		l.close()
	})
}

// Messages without bytes, in a region, inline and without either, and buffers at the ends of a region.
func TestLimitsOfMessages(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		c, s := w.connected(l, at(addrB, port))
		from, to := must(c.RegMsgs([]byte("12345678")))(w), must(s.RegMsgs(make([]byte, 8)))(w)
		outside := make([]byte, 9)
		w.errno(c.PostSend(1, outside, from, 0), syscall.EINVAL)
		w.errno(c.PostSend(1, outside[:1], from, 0), syscall.EINVAL)
		both := make([]byte, 16)
		half := must(c.RegMsgs(both[:8]))(w)
		w.errno(c.PostSend(1, both[4:12], half, 0), syscall.EINVAL) // it begins inside
		w.errno(c.PostSend(1, both[8:], half, 0), syscall.EINVAL)
		w.ok(half.Close())
		w.errno(c.PostSend(1, from.Bytes(), nil, 0), syscall.EINVAL)
		w.errno(s.PostRecv(1, outside, to), syscall.EINVAL)
		for _, m := range []struct {
			send  []byte
			mr    *verbs.MR
			flags verbs.SendFlags
			recv  []byte
			want  string
		}{
			{nil, nil, verbs.SendInline, to.Bytes(), ""}, {[]byte{}, nil, verbs.SendInline, to.Bytes()[:0], ""},
			{nil, from, 0, to.Bytes(), ""}, {from.Bytes()[8:], from, 0, to.Bytes()[8:], ""},
			{from.Bytes(), from, 0, to.Bytes(), "12345678"}, {from.Bytes()[7:], from, 0, to.Bytes()[7:], "8"},
			{[]byte("inline"), nil, verbs.SendInline, to.Bytes()[:6], "inline"},
		} {
			w.ok(s.PostRecv(7, m.recv, to))
			w.ok(c.PostSend(8, m.send, m.mr, m.flags|verbs.SendSignaled))
			wc := must(c.GetSendComp(bg))(w)
			if wc.WRID != 8 || wc.Err() != nil {
				t.Errorf("%q: %+v", m.want, wc)
			}
			wc = must(s.GetRecvComp(bg))(w)
			if wc.WRID != 7 || wc.Err() != nil || string(m.recv[:wc.ByteLen]) != m.want {
				t.Errorf("%q: %+v, %q", m.want, wc, m.recv)
			}
		}
		w.ok(from.Close())
		w.ok(to.Close())
		s.closeID()
		c.expect(rdmacm.EventDisconnected)
		c.close()
		l.close()
	})
}

// Completions of CQs that the program has made come too, if they have a channel.
func TestCompletionsOfOtherCQs(t *testing.T) {
	in(t, func(w *world) {
		l := w.listen(at(addrB, port), 0)
		c := w.resolved(rdmacm.PSTCP, at(addrB, port))
		ch := must(c.Verbs().CreateCompChannel())(w)
		cq := must(c.Verbs().CreateCQ(8, &verbs.CQOptions{Channel: ch}))(w)
		bare := must(c.Verbs().CreateCQ(8, nil))(w)
		w.ok(c.CreateQP(nil, &verbs.QPInitAttr{Cap: caps, SendCQ: cq, RecvCQ: bare}))
		w.ok(c.Connect(bg, nil))
		ev := w.next(l.ch, rdmacm.EventConnectRequest)
		s := &end{ev.ID, w, l.ch}
		w.ok(s.CreateQP(nil, qpInit()))
		mr := must(s.RegMsgs(make([]byte, 8)))(w)
		w.ok(s.PostRecv(1, mr.Bytes(), mr))
		w.ok(s.Accept(bg, nil))
		w.ok(ev.Ack())
		c.expect(rdmacm.EventEstablished)
		s.expect(rdmacm.EventEstablished)
		w.ok(c.PostSend(5, []byte("x"), nil, verbs.SendInline|verbs.SendSignaled))
		if wc := must(c.GetSendComp(bg))(w); wc.WRID != 5 || wc.Err() != nil {
			t.Errorf("%+v", wc)
		}
		_, err := c.GetRecvComp(bg)
		w.errno(err, syscall.EINVAL) // no channel
		if wc := must(s.GetRecvComp(bg))(w); wc.WRID != 1 || wc.ByteLen != 1 {
			t.Errorf("%+v", wc)
		}
		w.ok(mr.Close())
		s.closeID()
		c.expect(rdmacm.EventDisconnected)
		w.ok(c.DestroyQP())
		w.ok(cq.Close())
		w.ok(bare.Close())
		w.ok(ch.Close())
		c.close()
		l.close()
	})
}

// Without a node the address is that of the hints, a wildcard for a server, and this host for a client.
func TestAddrInfoWithoutANode(t *testing.T) {
	src, dst := at(addrA, 5), at(addrB6, 6)
	none, any4, any6 := netip.AddrPort{}, at(netip.IPv4Unspecified(), 7), at(netip.IPv6Unspecified(), 7)
	const passive = rdmacm.RAIPassive
	for name, c := range map[string]struct {
		service string
		hints   rdmacm.AddrInfo
		src     netip.AddrPort
		dst     netip.AddrPort
		family  rdmacm.Family
	}{
		"client":          {"7", rdmacm.AddrInfo{}, none, at(netip.MustParseAddr("127.0.0.1"), 7), rdmacm.AFInet},
		"to the hints":    {"7", rdmacm.AddrInfo{DstAddr: dst}, none, at(addrB6, 7), rdmacm.AFInet6},
		"to their port":   {"", rdmacm.AddrInfo{DstAddr: dst}, none, dst, rdmacm.AFInet6},
		"from the hints":  {"7", rdmacm.AddrInfo{SrcAddr: src}, src, none, rdmacm.AFInet},
		"server":          {"7", rdmacm.AddrInfo{Flags: passive}, any4, none, rdmacm.AFInet},
		"at the hints":    {"7", rdmacm.AddrInfo{Flags: passive, SrcAddr: src}, at(addrA, 7), none, rdmacm.AFInet},
		"at their port":   {"", rdmacm.AddrInfo{Flags: passive, SrcAddr: src}, src, none, rdmacm.AFInet},
		"server of IPv6":  {"7", rdmacm.AddrInfo{Flags: passive, Family: rdmacm.AFInet6}, any6, none, rdmacm.AFInet6},
		"not of the hint": {"7", rdmacm.AddrInfo{Flags: passive, DstAddr: dst}, any4, none, rdmacm.AFInet},
	} {
		res, err := rdmacm.GetAddrInfo(bg, "", c.service, &c.hints)
		if err != nil || res.SrcAddr != c.src || res.DstAddr != c.dst || res.Family != c.family {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
	}
	for qpType, want := range map[verbs.QPType]rdmacm.PortSpace{
		verbs.QPTypeRC: rdmacm.PSTCP, verbs.QPTypeUD: rdmacm.PSUDP, verbs.QPTypeUC: rdmacm.PSIB,
		verbs.QPTypeXRCSend: rdmacm.PSIB,
	} {
		res, err := rdmacm.GetAddrInfo(bg, "", "1", &rdmacm.AddrInfo{QPType: qpType})
		if err != nil || res.PortSpace != want || res.QPType != qpType {
			t.Errorf("%v: %+v, %v", qpType, res, err)
		}
	}
}
