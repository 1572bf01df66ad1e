package transport

import (
	"maps"
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// twoPorts is a device with port 1 at srcAddr and port 2 at otherAddr.
type twoPorts struct {
	keys       map[uint8][]uint16
	badP, badQ map[uint8]int
}

var (
	otherAddr = netip.MustParseAddr("192.0.2.9")
	groupAddr = netip.MustParseAddr("239.1.2.3")
)

func newPorts() *twoPorts {
	return &twoPorts{
		keys: map[uint8][]uint16{1: {0xFFFF, 0x8001}, 2: {0xFFFF, 0x8002, 0x0003}},
		badP: map[uint8]int{}, badQ: map[uint8]int{},
	}
}

func (p *twoPorts) PKey(port uint8, index uint16) uint16 {
	if int(index) >= len(p.keys[port]) {
		return 0
	}
	return p.keys[port][index]
}

func (p *twoPorts) PortOf(local netip.Addr) uint8 {
	return map[netip.Addr]uint8{srcAddr: 1, otherAddr: 2}[local]
}
func (p *twoPorts) BadPKey(port uint8) { p.badP[port]++ }
func (p *twoPorts) BadQKey(port uint8) { p.badQ[port]++ }

func (p *twoPorts) FindPKey(local netip.Addr, key uint16) (uint16, bool) {
	for i, k := range p.keys[p.PortOf(local)] {
		if PKeyMatch(k, key) {
			return uint16(i), true
		}
	}
	return 0, false
}

// newAt returns a QP at port 2 with P_Key index 1, and its completions.
func newAt(t *testing.T, typ Type, num uint32) (s *sender, p *twoPorts, cqes *[]CQE) {
	t.Helper()
	p, cqes = newPorts(), new([]CQE)
	s = newSender(t, typ, func(c *Config, a *Attr) {
		c.Ports, c.Num, c.RecvCQ = p, num, pushFunc(func(e *CQE) { *cqes = append(*cqes, *e) })
		a.Path.Src, a.Port, a.PKeyIndex, a.PKey = otherAddr, 2, 1, 0
	})
	s.modify(Reset, Attr{}, 0)
	a := rtsAttr()
	a.Path.Src, a.Port, a.PKeyIndex, a.PKey = otherAddr, 2, 1, 0
	for _, st := range []State{Init, RTR, RTS} {
		s.modify(st, a, everyMask|MaskPort)
	}
	for range 4 {
		if err := s.qp.RQ.Post(1, s.sges(0, 100)); err != nil {
			t.Fatal(err)
		}
	}
	return s, p, cqes
}

// The P_Key of a QP is that of its index in the table of its port, and is read again when either changes.
func TestV_PKEY_04_KeyComesFromTheTableOfThePort(t *testing.T) {
	s, p, _ := newAt(t, RC, 0x11)
	key := func() uint16 { s.send(1); return s.out()[0].BTH().PKey() }
	if got := key(); got != 0x8002 {
		t.Errorf("P_Key %#x, want that of index 1 of port 2", got)
	}
	p.keys[2][1] = 0x8005
	s.qp.LoadPKeys()
	if got := key(); got != 0x8005 {
		t.Errorf("P_Key %#x after a change of the table", got)
	}
	change := func(m Mask, a Attr) {
		t.Helper()
		if err := s.qp.Modify(s.now, &a, m); err != nil {
			t.Fatal(err)
		}
	}
	change(MaskPKeyIndex, Attr{})
	if got := key(); got != 0xFFFF {
		t.Errorf("P_Key %#x after a change of the index", got)
	}
	change(MaskPort|MaskPKeyIndex, Attr{Port: 1, PKeyIndex: 1})
	if got := key(); got != 0x8001 {
		t.Errorf("P_Key %#x after a change of the port", got)
	}
	change(MaskPort, Attr{Port: 2})
	if got := key(); got != 0x8005 {
		t.Errorf("P_Key %#x after a change of the port alone", got)
	}
	change(MaskAltPath, Attr{Alt: link.Path{Src: srcAddr, Dst: dstAddr}, AltPort: 1, AltPKeyIdx: 1})
	if got := s.qp.Attr().AltPKey; got != 0x8001 {
		t.Errorf("P_Key %#x of the alternate path", got)
	}
	p.keys[2][1], p.keys[1][1] = 0x8006, 0x8007
	change(MaskMinRNRTimer, Attr{})
	if a := s.qp.Attr(); a.PKey != 0x8005 || a.AltPKey != 0x8001 {
		t.Errorf("P_Keys %#x and %#x changed with an attribute that is none of them", a.PKey, a.AltPKey)
	}
}

// A packet over the alternate path has the P_Key of that path. A packet over the other path does not.
func TestPKeyOfTheAlternatePath(t *testing.T) {
	for _, c := range []struct {
		name     string
		key      uint16
		src, dst netip.Addr
		alt, ok  bool
	}{
		{"primary", 0x8002, dstAddr, otherAddr, true, true},
		{"alternate", 0x8001, dstAddr, srcAddr, true, true},
		{"key of the primary over the alternate path", 0x8002, dstAddr, srcAddr, true, true},
		{"key of the alternate over the primary path", 0x8001, dstAddr, otherAddr, true, false},
		{"no alternate path", 0x8001, dstAddr, srcAddr, false, false},
		{"neither", 0x8009, dstAddr, srcAddr, true, false},
	} {
		s, p, _ := newAt(t, RC, 0x11)
		if c.alt {
			a := Attr{Alt: link.Path{Src: srcAddr, Dst: dstAddr}, AltPort: 1, AltPKeyIdx: 1}
			if err := s.qp.Modify(s.now, &a, MaskAltPath); err != nil {
				t.Fatal(err)
			}
		} else {
			s.qp.attr.AltPKey = 0x8001
		}
		f := wire.Fields{Opcode: wire.RC | wire.SendOnly, PKey: c.key, DestQPN: s.qp.Num, PSN: 5000}
		s.qp.OnPacket(s.now, &link.RxPacket{Data: f.Build(), Src: c.src, Dst: c.dst})
		if got := s.qp.Counters.BadPKey == 0; got != c.ok || (len(p.badP) == 0) != c.ok {
			t.Errorf("%s: accepted %v, counted by the ports %v", c.name, got, p.badP)
		}
	}
}

// Packets with a wrong key count for the port: that of the QP, or for QP 1 the one that they came to.
func TestWrongKeysCountForThePort(t *testing.T) {
	const none = 0x80EE
	for _, c := range []struct {
		name       string
		num        uint32
		dst        netip.Addr
		pkey       uint16
		qkey       uint32
		badP, badQ map[uint8]int
	}{
		{"P_Key", 0x11, otherAddr, none, 0x11111111, map[uint8]int{2: 1}, nil},
		{"Q_Key", 0x11, otherAddr, 0x8002, 5, nil, map[uint8]int{2: 1}},
		{"P_Key, QP 1, port 1", 1, srcAddr, none, 0x11111111, map[uint8]int{1: 1}, nil},
		{"Q_Key, QP 1, port 1", 1, srcAddr, 0x8001, 5, nil, map[uint8]int{1: 1}},
		{"Q_Key, QP 1, port 2", 1, otherAddr, 0x8002, 5, nil, map[uint8]int{2: 1}},
		{"none", 0x11, otherAddr, 0x8002, 0x11111111, nil, nil},
	} {
		s, p, cqes := newAt(t, UD, c.num)
		f := wire.Fields{
			Opcode: wire.UD | wire.SendOnly, PKey: c.pkey, DestQPN: c.num, QKey: c.qkey, Payload: []byte("x"),
		}
		s.qp.OnPacket(s.now, &link.RxPacket{Data: f.Build(), Src: dstAddr, Dst: c.dst})
		if !maps.Equal(p.badP, c.badP) || !maps.Equal(p.badQ, c.badQ) {
			t.Errorf("%s: wrong P_Keys %v, wrong Q_Keys %v", c.name, p.badP, p.badQ)
		}
		if n := s.qp.Counters; n.BadPKey != uint64(len(c.badP)) || n.BadQKey != uint64(len(c.badQ)) {
			t.Errorf("%s: the QP counts %d and %d", c.name, n.BadPKey, n.BadQKey)
		}
		if want := c.badP == nil && c.badQ == nil; (len(*cqes) == 1) != want {
			t.Errorf("%s: completions %+v", c.name, *cqes)
		}
	}
}

// QP 1 belongs to all ports and partitions. Its completion has the index of the datagram's P_Key; that of another QP
// has the index of the QP.
func TestQP1ReportsThePKeyOfTheDatagram(t *testing.T) {
	for _, c := range []struct {
		num   uint32
		dst   netip.Addr
		key   uint16
		index uint16
	}{
		{1, srcAddr, 0xFFFF, 0}, {1, srcAddr, 0x8001, 1}, {1, otherAddr, 0x8002, 1}, {1, otherAddr, 0x8003, 2},
		{0x11, otherAddr, 0x8002, 1},
	} {
		s, _, cqes := newAt(t, UD, c.num)
		s.qp.resp.pkeyIndex = 7
		f := wire.Fields{
			Opcode: wire.UD | wire.SendOnly, PKey: c.key, DestQPN: c.num, QKey: 0x11111111, Payload: []byte("x"),
		}
		s.qp.OnPacket(s.now, &link.RxPacket{Data: f.Build(), Src: dstAddr, Dst: c.dst})
		if e := *cqes; len(e) != 1 || e[0].PKeyIndex != c.index {
			t.Errorf("%+v: %+v", c, e)
		}
	}
}

// A UD QP sends and receives at its port only, but for groups, which belong to all ports. QP 1 does at each.
func TestDatagramsOfAnotherPort(t *testing.T) {
	for _, c := range []struct {
		num  uint32
		addr netip.Addr
		ok   bool
	}{
		{0x11, otherAddr, true}, {0x11, srcAddr, false}, {0x11, groupAddr, true}, {1, srcAddr, true}, {1, otherAddr, true},
	} {
		s, _, cqes := newAt(t, UD, c.num)
		f := wire.Fields{
			Opcode: wire.UD | wire.SendOnly, PKey: 0xFFFF, DestQPN: c.num, QKey: 0x11111111, Payload: []byte("x"),
		}
		if c.num != wire.GSIQPN {
			f.PKey = 0x8002
		}
		s.qp.OnPacket(s.now, &link.RxPacket{Data: f.Build(), Src: dstAddr, Dst: c.addr})
		if (len(*cqes) == 1) != c.ok || (s.qp.Counters.BadSource == 0) != c.ok {
			t.Errorf("%+v: received %+v, %d from elsewhere", c, *cqes, s.qp.Counters.BadSource)
		}
		if c.addr == groupAddr {
			continue
		}
		s.post(OpSend, s.sges(0, 1), func(w *SendWQE) { w.Path = &link.Path{Src: c.addr, Dst: dstAddr} })
		if got := len(s.out()) == 1; got != c.ok {
			t.Errorf("%+v: sent %v, want %v", c, got, c.ok)
		}
		if !c.ok {
			s.completes("wr 1 status 2")
		}
	}
}

// A datagram of QP 1 may have a P_Key of its own.
func TestPKeyOfADatagramOfQP1(t *testing.T) {
	s, _, _ := newAt(t, UD, 1)
	s.post(OpSend, s.sges(0, 1), nil)
	s.post(OpSend, s.sges(0, 1), func(w *SendWQE) { w.PKey = 0x8123 })
	p := s.out()
	if a, b := p[0].BTH().PKey(), p[1].BTH().PKey(); a != 0x8002 || b != 0x8123 {
		t.Errorf("P_Keys %#x and %#x, want that of the QP and that of the request", a, b)
	}
}
