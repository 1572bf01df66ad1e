package soft_test

import (
	"bytes"
	"errors"
	"slices"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// specCase is a specification, a frame that matches it, and frames that differ from it in one field each.
type specCase struct {
	name  string
	specs []verbs.FlowSpec
	match []byte
	other [][]byte
}

func all16() (m [16]byte) {
	for i := range m {
		m[i] = 0xff
	}
	return m
}

var (
	allMAC = [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	allIP4 = [4]byte{0xff, 0xff, 0xff, 0xff}
	allIP6 = all16()
)

func sub16(b []byte) [6]byte { return [6]byte(b) }

// with returns a copy of b with byte i changed.
func with(b []byte, i int) []byte {
	b = bytes.Clone(b)
	b[i] ^= 1
	return b
}

// each returns copies of b, one changed at each of the places.
func each(b []byte, places ...int) (list [][]byte) {
	for _, i := range places {
		list = append(list, with(b, i))
	}
	return list
}

// specCases has every type of specification of the manual, with all of its fields.
func specCases() []specCase {
	plain := eth(macB, macA, 0x0800, ip4(17, hostA, hostB, udpOf(1000, 2000, []byte("data"))))
	tagged := cat(macB, macA, be16(0x8100), vlan(0x6123, 0x0800, ip4(17, hostA, hostB, udpOf(1, 2))))
	six := eth(macB, macA, 0x86dd, ip6(6, netA, netB, tcpOf(1000, 2000)))
	esp := eth(macB, macA, 0x0800, ip4(50, hostA, hostB, be16(0x1234, 0x5678, 0, 9), make([]byte, 16)))
	inside := eth(macA, macB, 0x0800, ip4(6, hostB, hostA, tcpOf(30, 40)))
	vxlan := eth(macB, macA, 0x0800, ip4(17, hostA, hostB,
		udpOf(5, 4789, []byte{8, 0, 0, 0, 0x12, 0x34, 0x56, 0}, inside)))
	gre := eth(macB, macA, 0x0800, ip4(47, hostA, hostB, be16(0x2000, 0x0800, 0xabcd, 0xef01),
		ip4(17, hostB, hostA, udpOf(7, 8))))
	greSequence := eth(macB, macA, 0x0800, ip4(47, hostA, hostB, be16(0x3000, 0x0800, 0xabcd, 0xef01, 0, 1),
		ip4(17, hostB, hostA, udpOf(7, 8)))) // another flag, and all else the same
	greMPLS := eth(macB, macA, 0x0800, ip4(47, hostA, hostB, be16(0, 0x8847), []byte{0x12, 0x34, 0x51, 0x40},
		ip4(17, hostB, hostA, udpOf(7, 8))))
	mpls := eth(macB, macA, 0x8847, []byte{0x12, 0x34, 0x50, 0x40, 0, 0, 0x11, 1}, ip4(17, hostA, hostB, udpOf(7, 8)))
	udpMPLS := eth(macB, macA, 0x0800, ip4(17, hostA, hostB,
		udpOf(5, 6635, []byte{0x12, 0x34, 0x51, 0x40}, ip4(17, hostB, hostA, udpOf(7, 8)))))
	innerMPLS := eth(macB, macA, 0x0800, ip4(17, hostA, hostB, udpOf(5, 4789, []byte{8, 0, 0, 0, 0, 0, 1, 0},
		eth(macA, macB, 0x8847, []byte{0x12, 0x34, 0x51, 0x40}, ip4(17, hostB, hostA)))))
	vxlanOf := func(inside []byte) []byte {
		return eth(macB, macA, 0x0800, ip4(17, hostA, hostB, udpOf(5, 4789, []byte{8, 0, 0, 0, 0, 0, 1, 0}, inside)))
	}
	innerIPMPLS := vxlanOf(eth(macA, macB, 0x0800, ip4(137, hostB, hostA, []byte{0x12, 0x34, 0x51, 0x40},
		ip4(17, hostB, hostA))))
	innerUDPMPLS := vxlanOf(eth(macA, macB, 0x0800, ip4(17, hostB, hostA, udpOf(5, 6635, []byte{0x12, 0x34, 0x51, 0x40},
		ip4(17, hostB, hostA)))))
	label := verbs.FlowMPLSFilter{Label: 0x12345140}
	allLabel := verbs.FlowMPLSFilter{Label: 0xffffffff}
	return []specCase{
		{"ETH", []verbs.FlowSpec{verbs.FlowSpecEth{
			Val:  verbs.FlowEthFilter{DstMAC: sub16(macB), SrcMAC: sub16(macA), EtherType: 0x0800, VLANTag: 0x6123},
			Mask: verbs.FlowEthFilter{DstMAC: allMAC, SrcMAC: allMAC, EtherType: 0xffff, VLANTag: 0xffff},
		}}, tagged, append(each(tagged, 0, 5, 6, 11, 14, 15, 16, 17), plain)},
		{"INNER_ETH", []verbs.FlowSpec{verbs.FlowSpecEth{
			Inner: true,
			Val:   verbs.FlowEthFilter{DstMAC: sub16(macA), SrcMAC: sub16(macB), EtherType: 0x0800},
			Mask:  verbs.FlowEthFilter{DstMAC: allMAC, SrcMAC: allMAC, EtherType: 0xffff},
		}}, vxlan, append(each(vxlan, 50, 55, 56, 61, 63), plain)},
		{"IPV4", []verbs.FlowSpec{verbs.FlowSpecIPv4{
			Val: verbs.FlowIPv4Filter{SrcIP: hostA, DstIP: hostB}, Mask: verbs.FlowIPv4Filter{SrcIP: allIP4, DstIP: allIP4},
		}}, plain, append(each(plain, 26, 29, 30, 33), six)},
		{"INNER_IPV4", []verbs.FlowSpec{verbs.FlowSpecIPv4{
			Inner: true, Val: verbs.FlowIPv4Filter{SrcIP: hostB, DstIP: hostA}, Mask: verbs.FlowIPv4Filter{SrcIP: allIP4,
				DstIP: allIP4},
		}}, vxlan, append(each(vxlan, 76, 79, 80, 83), plain)},
		{"IPV4_EXT", []verbs.FlowSpec{verbs.FlowSpecIPv4Ext{
			Val:  verbs.FlowIPv4ExtFilter{SrcIP: hostA, DstIP: hostB, Proto: 17, TOS: 0x20, TTL: 33, Flags: 2},
			Mask: verbs.FlowIPv4ExtFilter{SrcIP: allIP4, DstIP: allIP4, Proto: 0xff, TOS: 0xff, TTL: 0xff, Flags: 7},
		}}, plain, append(each(plain, 26, 33, 23, 15, 22), six, func() []byte {
			b := bytes.Clone(plain)
			b[20] = 0x20 // more fragments
			return b
		}())},
		{"IPV6", []verbs.FlowSpec{verbs.FlowSpecIPv6{
			Val: verbs.FlowIPv6Filter{SrcIP: netA, DstIP: netB, FlowLabel: 0xabcde, NextHdr: 6, TrafficClass: 0x12,
				HopLimit: 44},
			Mask: verbs.FlowIPv6Filter{SrcIP: allIP6, DstIP: allIP6, FlowLabel: 0xfffff, NextHdr: 0xff, TrafficClass: 0xff,
				HopLimit: 0xff},
		}}, six, append(each(six, 22, 37, 38, 53, 17, 20, 14, 21), plain)},
		{"ESP", []verbs.FlowSpec{verbs.FlowSpecESP{
			Val: verbs.FlowESPFilter{SPI: 0x12345678, Seq: 9}, Mask: verbs.FlowESPFilter{SPI: 0xffffffff, Seq: 0xffffffff},
		}}, esp, append(each(esp, 34, 37, 38, 41), plain)},
		{"TCP", []verbs.FlowSpec{verbs.FlowSpecTCP{
			Val: verbs.FlowPortFilter{DstPort: 2000, SrcPort: 1000}, Mask: verbs.FlowPortFilter{DstPort: 0xffff,
				SrcPort: 0xffff},
		}}, six, append(each(six, 54, 55, 56, 57), plain)},
		{"UDP", []verbs.FlowSpec{verbs.FlowSpecUDP{
			Val: verbs.FlowPortFilter{DstPort: 2000, SrcPort: 1000}, Mask: verbs.FlowPortFilter{DstPort: 0xffff,
				SrcPort: 0xffff},
		}}, plain, append(each(plain, 34, 35, 36, 37), six)},
		{"INNER_TCP", []verbs.FlowSpec{verbs.FlowSpecTCP{
			Inner: true, Val: verbs.FlowPortFilter{DstPort: 40, SrcPort: 30}, Mask: verbs.FlowPortFilter{DstPort: 0xffff,
				SrcPort: 0xffff},
		}}, vxlan, append(each(vxlan, 85, 87), six)},
		{"VXLAN_TUNNEL", []verbs.FlowSpec{verbs.FlowSpecVXLAN{
			Val: verbs.FlowTunnelFilter{TunnelID: 0x123456}, Mask: verbs.FlowTunnelFilter{TunnelID: 0xffffff},
		}}, vxlan, append(each(vxlan, 46, 47, 48, 37), plain, gre)},
		{"GRE", []verbs.FlowSpec{verbs.FlowSpecGRE{
			Val:  verbs.FlowGREFilter{CKSRes0Ver: 0x2000, Protocol: 0x0800, Key: 0xabcdef01},
			Mask: verbs.FlowGREFilter{CKSRes0Ver: 0xffff, Protocol: 0xffff, Key: 0xffffffff},
		}}, gre, append(each(gre, 35, 37, 38, 41), vxlan, greMPLS, greSequence)},
		{"GRE_INNER_UDP", []verbs.FlowSpec{verbs.FlowSpecGRE{}, verbs.FlowSpecUDP{
			Inner: true, Val: verbs.FlowPortFilter{DstPort: 8}, Mask: verbs.FlowPortFilter{DstPort: 0xffff},
		}}, gre, append(each(gre, 65), vxlan)},
		{"MPLS", []verbs.FlowSpec{verbs.FlowSpecMPLS{
			Val: verbs.FlowMPLSFilter{Label: 0x12345040}, Mask: allLabel,
		}}, mpls, append(each(mpls, 14, 15, 16, 17), greMPLS, udpMPLS)},
		{"MPLS_IN_GRE", []verbs.FlowSpec{verbs.FlowSpecGRE{}, verbs.FlowSpecMPLS{Val: label, Mask: allLabel}}, greMPLS,
			append(each(greMPLS, 38, 41), mpls, udpMPLS)},
		{"MPLS_IN_UDP", []verbs.FlowSpec{verbs.FlowSpecUDP{}, verbs.FlowSpecMPLS{Val: label, Mask: allLabel}}, udpMPLS,
			append(each(udpMPLS, 42, 45), mpls, greMPLS)},
		{"INNER_MPLS", []verbs.FlowSpec{verbs.FlowSpecMPLS{Inner: true, Val: label, Mask: allLabel}}, innerMPLS,
			append(each(innerMPLS, 64, 67), mpls, greMPLS, udpMPLS, innerIPMPLS, innerUDPMPLS)},
		{"INNER_MPLS_IN_ETH", []verbs.FlowSpec{verbs.FlowSpecUDP{}, verbs.FlowSpecVXLAN{}, verbs.FlowSpecEth{Inner: true},
			verbs.FlowSpecMPLS{Inner: true, Val: label, Mask: allLabel}, verbs.FlowSpecIPv4{Inner: true}}, innerMPLS,
			append(each(innerMPLS, 64, 67), mpls, greMPLS, udpMPLS, innerIPMPLS, innerUDPMPLS)},
		{"INNER_MPLS_IN_IP", []verbs.FlowSpec{verbs.FlowSpecEth{Inner: true}, verbs.FlowSpecIPv4{Inner: true},
			verbs.FlowSpecMPLS{Inner: true, Val: label, Mask: allLabel}}, innerIPMPLS,
			append(each(innerIPMPLS, 84, 87), mpls, greMPLS, udpMPLS, innerMPLS, innerUDPMPLS)},
		{"INNER_MPLS_IN_UDP", []verbs.FlowSpec{verbs.FlowSpecIPv4{Inner: true}, verbs.FlowSpecUDP{Inner: true},
			verbs.FlowSpecMPLS{Inner: true, Val: label, Mask: allLabel}}, innerUDPMPLS,
			append(each(innerUDPMPLS, 92, 95), mpls, greMPLS, udpMPLS, innerMPLS, innerIPMPLS)},
		{"INNER_MPLS_IN_GRE", []verbs.FlowSpec{verbs.FlowSpecGRE{},
			verbs.FlowSpecMPLS{Inner: true, Val: label, Mask: allLabel}}, greMPLS,
			append(each(greMPLS, 38, 41), mpls, udpMPLS, innerMPLS)},
		{"INNER_MPLS_IN_OUTER_UDP", []verbs.FlowSpec{verbs.FlowSpecUDP{},
			verbs.FlowSpecMPLS{Inner: true, Val: label, Mask: allLabel}}, udpMPLS,
			append(each(udpMPLS, 42, 45), mpls, greMPLS, innerMPLS)},
	}
}

func TestV_FL_14_EverySpecification(t *testing.T) {
	_, s := fabricOf(t, 2, nil)
	a, b := s[0], s[1]
	for _, c := range specCases() {
		f := b.rule(verbs.FlowAttr{Specs: c.specs})
		b.post(b.qp, 0, 1)
		for i, frame := range c.other {
			a.send(frame)
			if wc := b.next(); wc != nil {
				t.Fatalf("%s matches frame %d that differs: % x", c.name, i, frame)
			}
		}
		a.send(c.match)
		if got, _ := b.got(); !bytes.Equal(got, c.match) {
			t.Fatalf("%s: % x", c.name, got)
		}
		must(t, f.Close())
	}
}

// TestV_FL_11_OrderOfSpecifications: the order of specifications has no effect, except the position of MPLS labels.
func TestV_FL_11_OrderOfSpecifications(t *testing.T) {
	_, s := fabricOf(t, 2, nil)
	a, b := s[0], s[1]
	labels, packet := []byte{0x12, 0x34, 0x51, 0x40}, ip4(17, hostB, hostA, udpOf(7, 8))
	frames := map[string][]byte{
		"Ethernet": eth(macB, macA, 0x8847, labels, packet),
		"IP":       eth(macB, macA, 0x0800, ip4(137, hostA, hostB, labels, packet)),
		"UDP":      eth(macB, macA, 0x0800, ip4(17, hostA, hostB, udpOf(5, 6635, labels, packet))),
		"GRE":      eth(macB, macA, 0x0800, ip4(47, hostA, hostB, be16(0, 0x8847), labels, packet)),
	}
	mpls := verbs.FlowSpecMPLS{Val: verbs.FlowMPLSFilter{Label: 0x12345140}, Mask: verbs.FlowMPLSFilter{Label: 0xffffffff}}
	ether := verbs.FlowSpecEth{Val: verbs.FlowEthFilter{DstMAC: sub16(macB)}, Mask: verbs.FlowEthFilter{DstMAC: allMAC}}
	ip, udp, gre := verbs.FlowSpecIPv4{}, verbs.FlowSpecUDP{}, verbs.FlowSpecGRE{}
	b.post(b.qp, 0, 1)
	for _, c := range []struct {
		specs []verbs.FlowSpec
		in    string // what has the labels in the only frame that matches; none if empty
	}{
		{[]verbs.FlowSpec{mpls}, "Ethernet"},
		{[]verbs.FlowSpec{ether, mpls}, "Ethernet"},
		{[]verbs.FlowSpec{mpls, ether}, "Ethernet"},
		{[]verbs.FlowSpec{ip, mpls}, "IP"},
		{[]verbs.FlowSpec{mpls, ip}, ""}, // IP in front of labels behind Ethernet
		{[]verbs.FlowSpec{ether, ip, udp, mpls}, "UDP"},
		{[]verbs.FlowSpec{udp, mpls, ip, ether}, "UDP"},
		{[]verbs.FlowSpec{mpls, udp}, ""},
		{[]verbs.FlowSpec{ip, mpls, udp}, ""},
		{[]verbs.FlowSpec{ether, ip, gre, mpls}, "GRE"},
		{[]verbs.FlowSpec{gre, mpls, ether, ip}, "GRE"},
		{[]verbs.FlowSpec{mpls, gre}, ""},
		{[]verbs.FlowSpec{udp, ip, ether}, "UDP"},
		{[]verbs.FlowSpec{ether, udp, ip}, "UDP"},
	} {
		f := b.rule(verbs.FlowAttr{Specs: c.specs})
		for in, frame := range frames {
			a.send(frame)
			if in == c.in {
				if got, _ := b.got(); !bytes.Equal(got, frame) {
					t.Errorf("%v: labels in %s: % x", c.specs, in, got)
				}
				b.post(b.qp, 0, 1)
			} else if wc := b.next(); wc != nil {
				t.Fatalf("%v takes a frame with labels in %s", c.specs, in)
			}
		}
		must(t, f.Close())
	}
}

func TestV_FL_07_V_FL_08_Masks(t *testing.T) {
	_, s := fabricOf(t, 2, nil)
	a, b := s[0], s[1]
	b.post(b.qp, 0, 20)
	frame := func(port int) []byte {
		return eth(macB, macA, 0x0800, ip4(17, hostA, hostB, udpOf(1, port)))
	}
	// The mask is big-endian, as the field in the frame.
	b.rule(verbs.FlowAttr{Specs: []verbs.FlowSpec{verbs.FlowSpecUDP{
		Val: verbs.FlowPortFilter{DstPort: 0x1204, SrcPort: 0xffff}, Mask: verbs.FlowPortFilter{DstPort: 0xff0c},
	}}})
	for port, want := range map[int]bool{0x1204: true, 0x1207: true, 0x12f4: true, 0x1200: false, 0x120c: false,
		0x1304: false, 0x0412: false} {
		a.send(frame(port))
		if got := b.next() != nil; got != want {
			t.Errorf("port %#x: %v", port, got)
		}
	}
}

func TestV_FL_12_D_18_SampleOfTheManual(t *testing.T) {
	_, s := fabricOf(t, 2, nil)
	a, b := s[0], s[1]
	b.post(b.qp, 0, 4)
	b.rule(verbs.FlowAttr{Type: verbs.FlowAttrNormal, Priority: 0, Specs: []verbs.FlowSpec{
		verbs.FlowSpecEth{
			Val:  verbs.FlowEthFilter{DstMAC: [6]byte{0x66, 0x11, 0x22, 0x33, 0x44, 0x55}},
			Mask: verbs.FlowEthFilter{DstMAC: allMAC}, // without the source, as the manual's text
		},
		verbs.FlowSpecIPv4{Val: verbs.FlowIPv4Filter{SrcIP: [4]byte{0x0b, 0x86, 0xc8, 0x06}},
			Mask: verbs.FlowIPv4Filter{SrcIP: allIP4}},
	}})
	dst := []byte{0x66, 0x11, 0x22, 0x33, 0x44, 0x55}
	src := [4]byte{0x0b, 0x86, 0xc8, 0x06}
	a.send(eth(macB, macA, 0x0800, ip4(17, src, hostB)), eth(dst, macA, 0x0800, ip4(17, hostA, hostB)))
	b.nothing()
	a.send(eth(dst, macA, 0x0800, ip4(17, src, hostB)), eth(dst, macB, 0x0800, ip4(17, src, hostB)))
	b.got()
	b.got()
}

func TestV_FL_06_EtherTypeBehindAllTags(t *testing.T) {
	_, s := fabricOf(t, 2, nil)
	a, b := s[0], s[1]
	b.post(b.qp, 0, 4)
	b.rule(verbs.FlowAttr{Specs: []verbs.FlowSpec{verbs.FlowSpecEth{
		Val: verbs.FlowEthFilter{EtherType: 0x88b5}, Mask: verbs.FlowEthFilter{EtherType: 0xffff},
	}}})
	two := cat(macB, macA, be16(0x88a8), vlan(5, 0x8100, vlan(6, 0x88b5, make([]byte, 46))))
	a.send(two, cat(macB, macA, be16(0x8100), vlan(6, 0x88b6, make([]byte, 46))))
	if got, _ := b.got(); !bytes.Equal(got, two) {
		t.Errorf("% x", got)
	}
	b.nothing()
}

// TestV_FL_10_PriorityAndAge: of the rules that match a frame, the one with the lowest priority number receives it;
// of equal ones, the oldest.
func TestV_FL_10_PriorityAndAge(t *testing.T) {
	_, s := fabricOf(t, 2, nil)
	a, b := s[0], s[1]
	frame := eth(macB, macA, 0x0800, ip4(17, hostA, hostB, udpOf(1, 2)))
	tag := func(n uint32, prio uint16) *verbs.Flow {
		return b.rule(verbs.FlowAttr{Priority: prio, Specs: []verbs.FlowSpec{verbs.FlowSpecActionTag{TagID: n}}})
	}
	expect := func(want uint32) {
		t.Helper()
		b.post(b.qp, 0, 1)
		a.send(frame)
		if _, c := b.got(); c.FlowTag != want {
			t.Fatalf("the rule with tag %d, not %d", c.FlowTag, want)
		}
		b.nothing()
	}
	tag(1, 0xffff)
	expect(1)
	two := tag(2, 7)
	expect(2)
	tag(3, 7)
	expect(2)
	first := tag(4, 0)
	expect(4)
	must(t, first.Close())
	expect(2)
	must(t, two.Close())
	expect(3)
}

func TestV_FL_05_DontTrap(t *testing.T) {
	_, s := fabricOf(t, 2, nil)
	a, b := s[0], s[1]
	b.post(b.qp, 0, 4)
	frame := eth(macB, macA, 0x0800, ip4(17, hostA, hostB, udpOf(1, 2)))
	b.rule(verbs.FlowAttr{Priority: 1, Flags: verbs.FlowDontTrap,
		Specs: []verbs.FlowSpec{verbs.FlowSpecActionTag{TagID: 1}}})
	b.rule(verbs.FlowAttr{Priority: 2, Specs: []verbs.FlowSpec{verbs.FlowSpecActionTag{TagID: 2}}})
	b.rule(verbs.FlowAttr{Priority: 3, Specs: []verbs.FlowSpec{verbs.FlowSpecActionTag{TagID: 3}}})
	a.send(frame)
	for want := uint32(1); want <= 2; want++ {
		if _, c := b.got(); c.FlowTag != want {
			t.Errorf("tag %d, want %d", c.FlowTag, want)
		}
	}
	b.nothing()
}

func TestV_FL_05_D_27_LoopBack(t *testing.T) {
	_, s := fabricOf(t, 1, nil)
	a := s[0]
	frame := eth(macB, macA, 0x0800, ip4(17, hostA, hostB, udpOf(1, 2)))
	a.post(a.qp, 0, 2)
	f := a.rule(verbs.FlowAttr{})
	a.send(frame)
	a.nothing() // its own frames are not received
	must(t, f.Close())
	a.rule(verbs.FlowAttr{Flags: verbs.FlowAllowLoopBack})
	copy(a.buf[40*slotLen:], frame)
	must(t, a.qp.PostSend(verbs.SendWR{WRID: 1, Opcode: verbs.WRSend,
		SGList: []verbs.SGE{a.mr.SGE(40*slotLen, len(frame))}}))
	if got, _ := a.got(); !bytes.Equal(got, frame) { // received before the send completes
		t.Errorf("% x", got)
	}
	if c := a.next(); c == nil || c.Opcode != verbs.WCSend {
		t.Errorf("%+v", c)
	}
}

func TestV_FL_05_Egress(t *testing.T) {
	_, s := fabricOf(t, 2, nil)
	a, b := s[0], s[1]
	b.post(b.qp, 0, 8)
	b.rule(verbs.FlowAttr{})
	n := get(a.ctx.CreateCounters())(t)
	must(t, n.AttachPointFlow(&verbs.CounterAttachAttr{CounterDesc: verbs.CounterPackets}, nil))
	drop := a.rule(verbs.FlowAttr{Flags: verbs.FlowEgress, Specs: []verbs.FlowSpec{
		verbs.FlowSpecUDP{Val: verbs.FlowPortFilter{DstPort: 2}, Mask: verbs.FlowPortFilter{DstPort: 0xffff}},
		verbs.FlowSpecActionDrop{}, verbs.FlowSpecActionCount{Counters: n},
	}})
	stopped := eth(macB, macA, 0x0800, ip4(17, hostA, hostB, udpOf(1, 2)))
	passes := eth(macB, macA, 0x0800, ip4(17, hostA, hostB, udpOf(1, 3)))
	a.send(stopped, passes)
	if got, _ := b.got(); !bytes.Equal(got, passes) {
		t.Errorf("% x", got)
	}
	b.nothing()
	b.send(stopped) // a's egress rule does not apply to received frames
	var v [1]uint64
	must(t, n.Read(v[:], 0))
	if v[0] != 1 {
		t.Error(v)
	}
	must(t, drop.Close())
	a.send(stopped)
	b.got()
	must(t, n.Close())
}

// TestV_FL_05_EgressWithDontTrap: after an EGRESS rule without DONT_TRAP no later one sees the frame that is sent;
// after one with it the next one does.
func TestV_FL_05_EgressWithDontTrap(t *testing.T) {
	_, s := fabricOf(t, 2, nil)
	a, b := s[0], s[1]
	b.post(b.qp, 0, 8)
	b.rule(verbs.FlowAttr{})
	first := get(a.ctx.CreateCounters())(t)
	must(t, first.AttachPointFlow(&verbs.CounterAttachAttr{CounterDesc: verbs.CounterPackets}, nil))
	frame := eth(macB, macA, 0x0800, ip4(17, hostA, hostB, udpOf(1, 2)))
	a.rule(verbs.FlowAttr{Priority: 2, Flags: verbs.FlowEgress, Specs: []verbs.FlowSpec{verbs.FlowSpecActionDrop{}}})
	for i, c := range []struct {
		flags verbs.FlowFlags
		sent  bool
	}{{verbs.FlowEgress, true}, {verbs.FlowEgress | verbs.FlowDontTrap, false}} {
		rule := a.rule(verbs.FlowAttr{Priority: 1, Flags: c.flags, Specs: []verbs.FlowSpec{
			verbs.FlowSpecActionCount{Counters: first},
		}})
		a.send(frame)
		if got := b.next() != nil; got != c.sent {
			t.Errorf("%v before a rule that drops: sent %v, want %v", c.flags, got, c.sent)
		}
		var v [1]uint64
		if must(t, first.Read(v[:], 0)); v[0] != uint64(i+1) {
			t.Errorf("%v: %d frames counted, want %d", c.flags, v[0], i+1)
		}
		must(t, rule.Close())
	}
	must(t, first.Close())
}

func TestV_FL_04_TypesOfRules(t *testing.T) {
	_, s := fabricOf(t, 2, nil)
	a, b := s[0], s[1]
	uni, multi := eth(macB, macA, 0x88b5, make([]byte, 46)), eth(macM, macA, 0x88b5, make([]byte, 46))
	tag := func(typ verbs.FlowAttrType, n uint32, specs ...verbs.FlowSpec) *verbs.Flow {
		return b.rule(verbs.FlowAttr{Type: typ, Specs: append(specs, verbs.FlowSpecActionTag{TagID: n})})
	}
	tags := func(frame []byte) (got []uint32) {
		b.post(b.qp, 0, 4)
		a.send(frame)
		for c := b.next(); c != nil; c = b.next() {
			got = append(got, c.FlowTag)
		}
		reset(t, b.qp)
		return got
	}
	expect := func(what string, uniTags, multiTags []uint32) {
		t.Helper()
		if u, m := tags(uni), tags(multi); !slices.Equal(u, uniTags) || !slices.Equal(m, multiTags) {
			t.Fatalf("%s: unicast %v, multicast %v", what, u, m)
		}
	}
	mc := tag(verbs.FlowAttrMCDefault, 1)
	expect("MC_DEFAULT", nil, []uint32{1})
	def := tag(verbs.FlowAttrAllDefault, 2)
	expect("both", []uint32{2}, []uint32{1})
	must(t, mc.Close())
	expect("ALL_DEFAULT", []uint32{2}, []uint32{2})
	tag(verbs.FlowAttrNormal, 3, verbs.FlowSpecEth{Val: verbs.FlowEthFilter{DstMAC: sub16(macM)},
		Mask: verbs.FlowEthFilter{DstMAC: allMAC}})
	expect("a normal rule first", []uint32{2}, []uint32{3})
	tag(verbs.FlowAttrSniffer, 4)
	expect("a sniffer sees all", []uint32{4, 2}, []uint32{4, 3})
	must(t, def.Close())
	expect("a sniffer takes nothing", []uint32{4}, []uint32{4, 3})
}

// reset changes a QP to RESET and back to RTS.
func reset(t testing.TB, qp *verbs.QP) {
	t.Helper()
	must(t, qp.Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, verbs.QPAttrState))
	toRTS(t, qp)
}

func TestV_FL_04_SnifferReceivesSentFrames(t *testing.T) {
	_, s := fabricOf(t, 1, nil)
	a := s[0]
	sniffer := a.newQP(nil)
	f := a.ruleOf(sniffer, verbs.FlowAttr{Type: verbs.FlowAttrSniffer})
	a.post(sniffer, 0, 1)
	frame := eth(macB, macA, 0x88b5, make([]byte, 46))
	copy(a.buf[40*slotLen:], frame)
	must(t, a.qp.PostSend(verbs.SendWR{Opcode: verbs.WRSend, SGList: []verbs.SGE{a.mr.SGE(40*slotLen, len(frame))}}))
	if got, c := a.got(); !bytes.Equal(got, frame) || c.QPNum != sniffer.QPN() {
		t.Errorf("% x", got)
	}
	a.next()
	if err := sniffer.Close(); !errors.Is(err, verbs.EBUSY) {
		t.Errorf("closing a QP with flows: %v", err)
	}
	must(t, f.Close())
	if err := f.Close(); !errors.Is(err, verbs.EINVAL) {
		t.Errorf("a second destroy_flow: %v", err)
	}
	must(t, sniffer.Close())
}

func TestV_CNT_01_V_CNT_02_X_CNT_01_Counters(t *testing.T) {
	_, s := fabricOf(t, 2, nil)
	a, b := s[0], s[1]
	b.post(b.qp, 0, 8)
	n := get(b.ctx.CreateCounters())(t)
	must(t, n.AttachPointFlow(&verbs.CounterAttachAttr{CounterDesc: verbs.CounterBytes, Index: 3}, nil))
	must(t, n.AttachPointFlow(&verbs.CounterAttachAttr{CounterDesc: verbs.CounterPackets, Index: 1}, nil))
	read := func() (v [5]uint64) {
		v = [5]uint64{9, 9, 9, 9, 9}
		must(t, n.Read(v[:], verbs.ReadCountersPreferCached))
		return v
	}
	if v := read(); v != [5]uint64{} {
		t.Errorf("new counters: %v", v)
	}
	f := b.rule(verbs.FlowAttr{Specs: []verbs.FlowSpec{
		verbs.FlowSpecActionCount{Counters: n},
		verbs.FlowSpecUDP{Val: verbs.FlowPortFilter{DstPort: 2}, Mask: verbs.FlowPortFilter{DstPort: 0xffff}},
	}})
	frame := eth(macB, macA, 0x0800, ip4(17, hostA, hostB, udpOf(1, 2, make([]byte, 22))))
	a.send(frame, frame, eth(macB, macA, 0x0800, ip4(17, hostA, hostB, udpOf(1, 3))), frame)
	if v := read(); v != [5]uint64{1: 3, 3: 3 * 64} {
		t.Errorf("after three frames of 64 bytes: %v", v)
	}
	// An existing rule counts into the same counters.
	other := b.rule(verbs.FlowAttr{Priority: 9})
	must(t, n.AttachPointFlow(&verbs.CounterAttachAttr{CounterDesc: verbs.CounterPackets, Index: 0}, other))
	a.send(eth(macB, macA, 0x0800, ip4(17, hostA, hostB, udpOf(1, 3, make([]byte, 22)))))
	if v := read(); v != [5]uint64{0: 4, 1: 4, 3: 4 * 64} {
		t.Errorf("after one more: %v", v)
	}
	if err := n.Close(); !errors.Is(err, verbs.EBUSY) {
		t.Errorf("closing counters in use: %v", err)
	}
	must(t, f.Close())
	must(t, other.Close())
	must(t, n.Close())
}

func TestV_FL_01_QPsAndDevicesWithoutFlows(t *testing.T) {
	_, s := fabricOf(t, 1, nil)
	a := s[0]
	rc := get(a.pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: a.cq.CQ, RecvCQ: a.cq.CQ}))(t)
	if _, err := rc.CreateFlow(&verbs.FlowAttr{Port: 1}); !errors.Is(err, verbs.EINVAL) {
		t.Errorf("RC: %v", err)
	}
	must(t, rc.Close())
	e := newEnds(t, &networks[0], 1, nil)[0]
	for dev, want := range map[*verbs.Context]bool{a.ctx: true, e.ctx: false} {
		flags := get(dev.QueryDevice())(t).DeviceCapFlags
		if has := flags&verbs.DeviceManagedFlowSteering != 0; has != want {
			t.Errorf("MANAGED_FLOW_STEERING %v, want %v", has, want)
		}
	}
	_, err := e.qp(verbs.QPTypeUD, nil).CreateFlow(&verbs.FlowAttr{Port: 1})
	if !errors.Is(err, syscall.ENXIO) {
		t.Errorf("a device without flow steering: %v", err)
	}
	if _, err = e.ctx.CreateCounters(); !errors.Is(err, verbs.ENOSYS) {
		t.Errorf("create_counters of a device without flow steering: %v", err)
	}
	attr := espCases()[0].attr(true)
	if _, err = e.ctx.CreateFlowActionESP(attr); !errors.Is(err, verbs.EOPNOTSUPP) {
		t.Errorf("create_flow_action_esp of a device without flow steering: %v", err)
	}
}
