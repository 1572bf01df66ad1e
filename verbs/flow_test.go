package verbs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"slices"
	"syscall"
	"testing"
)

func rawQP(t testing.TB) (*QP, *fakeContext) {
	t.Helper()
	vctx, drv := openSteering(t)
	qp, _ := newQP(t, newPD(t, vctx), QPTypeRawPacket)
	return qp, drv
}

func TestV_FL_04_V_FL_05_V_FL_14_Values(t *testing.T) {
	values(t, 0, FlowAttrNormal, FlowAttrAllDefault, FlowAttrMCDefault, FlowAttrSniffer)
	texts(t, FlowAttrType(0), "NORMAL", "ALL_DEFAULT", "MC_DEFAULT", "SNIFFER", "FlowAttrType(4)")
	checkBits(t, map[int]FlowFlags{0: FlowAllowLoopBack, 1: FlowDontTrap, 2: FlowEgress})
	for want, s := range map[FlowSpecType]FlowSpec{
		0x20: FlowSpecEth{}, 0x30: FlowSpecIPv4{}, 0x31: FlowSpecIPv6{}, 0x32: FlowSpecIPv4Ext{}, 0x34: FlowSpecESP{},
		0x40: FlowSpecTCP{},
		0x41: FlowSpecUDP{}, 0x50: FlowSpecVXLAN{}, 0x51: FlowSpecGRE{}, 0x60: FlowSpecMPLS{},
		0x120: FlowSpecEth{Inner: true},
		0x130: FlowSpecIPv4{Inner: true}, 0x131: FlowSpecIPv6{Inner: true}, 0x132: FlowSpecIPv4Ext{Inner: true},
		0x134: FlowSpecESP{Inner: true},
		0x140: FlowSpecTCP{Inner: true}, 0x141: FlowSpecUDP{Inner: true}, 0x160: FlowSpecMPLS{Inner: true},
		0x1000: FlowSpecActionTag{},
		0x1001: FlowSpecActionDrop{}, 0x1002: FlowSpecActionHandle{}, 0x1003: FlowSpecActionCount{},
	} {
		if s.Type() != want {
			t.Errorf("%T has type %#x, want %#x", s, uint32(s.Type()), uint32(want))
		}
	}
	for v, want := range map[FlowSpecType]string{0x20: "ETH", 0x150: "INNER_VXLAN_TUNNEL", 0x1003: "ACTION_COUNT",
		0x33: "FlowSpecType(51)"} {
		if v.String() != want {
			t.Errorf("%v, want %v", v, want)
		}
	}
}

// TestV_FL_03_Ranges tries the limits of each parameter and the values beyond them.
func TestV_FL_03_Ranges(t *testing.T) {
	qp, drv := rawQP(t)
	for _, port := range []uint8{1, 2} {
		ok(t, must(qp.CreateFlow(&FlowAttr{Port: port}))(t).Close())
	}
	ok(t, must(qp.CreateFlow(&FlowAttr{Port: 1, Priority: 0xffff}))(t).Close())
	drv.calls = nil
	for _, c := range []struct {
		attr *FlowAttr
		part string
	}{
		{nil, "the attributes are nil"},
		{&FlowAttr{}, "port 0: must be 1 to 2"},
		{&FlowAttr{Port: 3}, "port 3"},
		{&FlowAttr{Port: 1, Type: 4}, "FlowAttrType(4)"},
		{&FlowAttr{Port: 1, Flags: 8}, "unknown flags 0x8"},
		{&FlowAttr{Port: 1, Type: FlowAttrSniffer, Flags: FlowDontTrap}, "the type must be NORMAL"},
		{&FlowAttr{Port: 1, Type: FlowAttrAllDefault, Flags: FlowDontTrap}, "NORMAL"},
		{&FlowAttr{Port: 1, Type: FlowAttrMCDefault, Flags: FlowEgress}, "NORMAL"},
		{&FlowAttr{Port: 1, Flags: FlowEgress | FlowAllowLoopBack}, "exclude each other"},
		{&FlowAttr{Port: 1, Specs: make([]FlowSpec, 256)}, "256 specifications: must be 0 to 255"},
		{&FlowAttr{Port: 1, Specs: make([]FlowSpec, 1)}, "specification 0 is nil"},
	} {
		_, err := qp.CreateFlow(c.attr)
		refused(t, err, EINVAL, "create_flow", c.part)
	}
	if len(drv.calls) != 0 {
		t.Error(drv.calls)
	}
}

func TestV_FL_11_MalformedRules(t *testing.T) {
	qp, drv := rawQP(t)
	ether := func(inner bool, v, m uint16) FlowSpec {
		return FlowSpecEth{Inner: inner, Val: FlowEthFilter{EtherType: v}, Mask: FlowEthFilter{EtherType: m}}
	}
	list := func(s ...FlowSpec) []FlowSpec { return s }
	drv.calls = nil
	for _, c := range []struct {
		name  string
		attr  FlowAttr
		specs []FlowSpec
	}{
		{"twice the same", FlowAttr{}, list(FlowSpecTCP{}, FlowSpecTCP{})},
		{"two IP versions", FlowAttr{}, list(FlowSpecIPv4{}, FlowSpecIPv6{})},
		{"IPv4 in two forms", FlowAttr{}, list(FlowSpecIPv4Ext{}, FlowSpecIPv4{})},
		{"two IP versions inside", FlowAttr{}, list(FlowSpecIPv6{Inner: true}, FlowSpecIPv4{Inner: true})},
		{"two transports", FlowAttr{}, list(FlowSpecUDP{}, FlowSpecTCP{})},
		{"ESP and UDP", FlowAttr{}, list(FlowSpecUDP{}, FlowSpecESP{})},
		{"two tunnels", FlowAttr{}, list(FlowSpecGRE{}, FlowSpecVXLAN{})},
		{"VXLAN in TCP", FlowAttr{}, list(FlowSpecVXLAN{}, FlowSpecTCP{})},
		{"GRE in UDP", FlowAttr{}, list(FlowSpecGRE{}, FlowSpecUDP{})},
		{"EtherType and IPv4", FlowAttr{}, list(ether(false, 0x86dd, 0xffff), FlowSpecIPv4{})},
		{"EtherType and IPv6", FlowAttr{}, list(FlowSpecIPv6{}, ether(false, 0x0800, 0xffff))},
		{"inner EtherType", FlowAttr{}, list(FlowSpecIPv4{Inner: true}, ether(true, 0x0806, 0xffff))},
		{"inner MPLS after IP and Ethernet", FlowAttr{}, list(FlowSpecIPv4{Inner: true}, FlowSpecEth{Inner: true},
			FlowSpecMPLS{Inner: true})},
		{"Ethernet after inner MPLS in UDP", FlowAttr{}, list(FlowSpecUDP{Inner: true}, FlowSpecMPLS{Inner: true},
			FlowSpecEth{Inner: true})},
		{"flow label", FlowAttr{}, list(FlowSpecIPv6{Mask: FlowIPv6Filter{FlowLabel: 1 << 20}})},
		{"tunnel ID", FlowAttr{}, list(FlowSpecVXLAN{Val: FlowTunnelFilter{TunnelID: 1 << 24}})},
		{"fragment flags", FlowAttr{}, list(FlowSpecIPv4Ext{Val: FlowIPv4ExtFilter{Flags: 8}})},
		{"a pointer", FlowAttr{}, list(&FlowSpecEth{})},
		{"two tags", FlowAttr{}, list(FlowSpecActionTag{}, FlowSpecActionTag{})},
		{"two drops", FlowAttr{}, list(FlowSpecActionDrop{}, FlowSpecActionDrop{})},
		{"no action", FlowAttr{}, list(FlowSpecActionHandle{})},
		{"no counters", FlowAttr{}, list(FlowSpecActionCount{})},
		{"drop what goes on", FlowAttr{Flags: FlowDontTrap}, list(FlowSpecActionDrop{})},
		{"tag of what is sent", FlowAttr{Flags: FlowEgress}, list(FlowSpecActionTag{})},
		{"a sniffer that drops", FlowAttr{Type: FlowAttrSniffer}, list(FlowSpecActionDrop{})},
		{"a sniffer that matches", FlowAttr{Type: FlowAttrSniffer}, list(FlowSpecEth{})},
		{"a default that matches", FlowAttr{Type: FlowAttrAllDefault}, list(FlowSpecEth{})},
		{"a multicast default that matches", FlowAttr{Type: FlowAttrMCDefault}, list(FlowSpecEth{})},
	} {
		c.attr.Port, c.attr.Specs = 1, c.specs
		if _, err := qp.CreateFlow(&c.attr); !errors.Is(err, EINVAL) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if len(drv.calls) != 0 {
		t.Error(drv.calls)
	}
	for _, c := range []struct {
		attr  FlowAttr
		specs []FlowSpec
	}{
		{FlowAttr{}, list(ether(false, 0x0800, 0xffff), FlowSpecIPv4{})},
		{FlowAttr{}, list(ether(false, 0x0806, 0xf000), FlowSpecIPv4{})}, // only the masked bits count
		{FlowAttr{}, list(FlowSpecTCP{}, FlowSpecIPv4{}, FlowSpecEth{})}, // any order
		{FlowAttr{}, list(FlowSpecVXLAN{Val: FlowTunnelFilter{TunnelID: 1<<24 - 1}}, FlowSpecUDP{},
			FlowSpecTCP{Inner: true}, FlowSpecIPv4{}, FlowSpecIPv6{Inner: true})},
		{FlowAttr{}, list(FlowSpecIPv6{Val: FlowIPv6Filter{FlowLabel: 1<<20 - 1}}, FlowSpecActionDrop{},
			FlowSpecActionTag{1})},
		{FlowAttr{}, list(FlowSpecIPv4Ext{Val: FlowIPv4ExtFilter{Flags: 5}, Mask: FlowIPv4ExtFilter{Flags: 7}})},
		{FlowAttr{Type: FlowAttrSniffer}, list(FlowSpecActionTag{1})},
		{FlowAttr{}, list(FlowSpecEth{Inner: true}, FlowSpecIPv4{Inner: true}, FlowSpecUDP{Inner: true},
			FlowSpecMPLS{Inner: true})},
		{FlowAttr{Flags: FlowEgress | FlowDontTrap}, nil},
	} {
		c.attr.Port, c.attr.Specs = 1, c.specs
		f := must(qp.CreateFlow(&c.attr))(t)
		if got := f.drv.(*fakeFlow).attr; !reflect.DeepEqual(got.Specs, c.specs) || f.QP() != qp {
			t.Errorf("%+v", got)
		}
		ok(t, f.Close())
	}
}

func TestV_FL_01_QPsWithFlows(t *testing.T) {
	vctx, drv := openSteering(t)
	pd := newPD(t, vctx)
	for _, typ := range []QPType{QPTypeRC, QPTypeUC, QPTypeUD, QPTypeXRCSend, QPTypeXRCRecv, QPTypeRawPacket} {
		qp, _ := newQP(t, pd, typ)
		f, err := qp.CreateFlow(&FlowAttr{Port: 1})
		if typ != QPTypeUD && typ != QPTypeRawPacket {
			refused(t, err, EINVAL, "QP type "+typ.String()+" has no flows")
			continue
		}
		ok(t, err)
		refused(t, qp.Close(), EBUSY, "still used by 1 flow")
		ok(t, f.Close())
		refused(t, f.Close(), EINVAL, "destroy_flow")
		for _, errno := range []Errno{syscall.EPERM, ENOMEM} {
			drv.fail["CreateFlow"] = errno
			_, err = qp.CreateFlow(&FlowAttr{Port: 1})
			refused(t, err, errno)
		}
		delete(drv.fail, "CreateFlow")
		drv.fail["DestroyFlow"] = EBUSY
		f = must(qp.CreateFlow(&FlowAttr{Port: 1}))(t)
		refused(t, f.Close(), EBUSY)
		delete(drv.fail, "DestroyFlow")
		ok(t, f.Close())
		ok(t, qp.Close())
		_, err = qp.CreateFlow(&FlowAttr{Port: 1})
		refused(t, err, EINVAL, "closed")
	}
	plain, _ := openFake(t)
	qp, _ := newQP(t, newPD(t, plain), QPTypeRawPacket)
	_, err := qp.CreateFlow(&FlowAttr{Port: 1})
	refused(t, err, syscall.ENXIO, "no flow steering")
}

// Counters may be attached to a rule that exists. The rule counts into them until it is closed.
func TestCountersOfAnExistingFlow(t *testing.T) {
	qp, drv := rawQP(t)
	c := must(qp.Context().CreateCounters())(t)
	f := must(qp.CreateFlow(&FlowAttr{Port: 1}))(t)
	drv.fail["AttachCounters"] = ENOMEM
	refused(t, c.AttachPointFlow(&CounterAttachAttr{Index: 3}, f), ENOMEM, "attach_counters_point_flow")
	refused(t, c.Read(make([]uint64, 4), 0), EINVAL, "no counter is described")
	delete(drv.fail, "AttachCounters")
	drv.calls = nil
	ok(t, c.AttachPointFlow(&CounterAttachAttr{Index: 3}, f))
	ok(t, c.AttachPointFlow(&CounterAttachAttr{Index: 1, CounterDesc: CounterBytes}, f))
	if n := len(drv.calls); n != 1 { // the rule counts into them already
		t.Errorf("%v", drv.calls)
	}
	c.drv.(*fakeCounters).packets, c.drv.(*fakeCounters).bytes = 3, 180
	v := []uint64{9, 9, 9, 9, 9}
	ok(t, c.Read(v, 0))
	if !slices.Equal(v, []uint64{0, 180, 0, 3, 0}) {
		t.Error(v)
	}
	refused(t, c.Close(), EBUSY, "still used by 1 flow")
	ok(t, f.Close())
	refused(t, c.AttachPointFlow(&CounterAttachAttr{Index: 5}, f), EINVAL, "closed")
	ok(t, c.Close())
}

func TestV_CNT_03_V_CNT_04_X_CNT_01_Rules(t *testing.T) {
	qp, drv := rawQP(t)
	vctx := qp.Context()
	drv.fail["CreateCounters"] = ENOMEM
	_, err := vctx.CreateCounters()
	refused(t, err, ENOMEM)
	unused, unusedDrv := openSteering(t)
	unusedDrv.fail["CreateCounters"] = ENOMEM
	_, err = unused.CreateCounters()
	refused(t, err, ENOMEM)
	ok(t, unused.Close()) // nothing is left of what failed
	delete(drv.fail, "CreateCounters")
	c := must(vctx.CreateCounters())(t)
	refused(t, c.Read(make([]uint64, 1), 0), EINVAL, "no counter is described")
	_, err = qp.CreateFlow(&FlowAttr{Port: 1, Specs: []FlowSpec{FlowSpecActionCount{c}}})
	refused(t, err, EINVAL, "no counter is described")
	for _, bad := range []*CounterAttachAttr{nil, {CounterDesc: 2}, {Index: MaxCounters}} {
		refused(t, c.AttachPointFlow(bad, nil), EINVAL, "attach_counters_point_flow")
	}
	ok(t, c.AttachPointFlow(&CounterAttachAttr{CounterDesc: CounterBytes, Index: MaxCounters - 1}, nil))
	refused(t, c.AttachPointFlow(&CounterAttachAttr{Index: MaxCounters - 1}, nil), EINVAL, "has BYTES already")
	refused(t, c.Read(make([]uint64, MaxCounters-1), 0), EINVAL, "63 values: must be 64 or more")
	refused(t, c.Read(make([]uint64, MaxCounters), 2), EINVAL, "unknown flags 0x2")
	_, err = qp.CreateFlow(&FlowAttr{Port: 1, Specs: []FlowSpec{FlowSpecActionCount{c}, FlowSpecActionCount{c}}})
	refused(t, err, EINVAL, "already")
	f := must(qp.CreateFlow(&FlowAttr{Port: 1, Specs: []FlowSpec{FlowSpecActionCount{c}}}))(t)
	refused(t, c.AttachPointFlow(&CounterAttachAttr{Index: 1}, nil), EBUSY)
	refused(t, c.Close(), EBUSY, "still used by 1 flow")
	c.drv.(*fakeCounters).packets, c.drv.(*fakeCounters).bytes = 3, 180
	v := make([]uint64, MaxCounters+1)
	ok(t, c.Read(v, 0))
	if v[MaxCounters-1] != 180 || v[0] != 0 {
		t.Error(v)
	}
	other, _ := openSteering(t)
	foreign := must(other.CreateCounters())(t)
	refused(t, foreign.AttachPointFlow(&CounterAttachAttr{}, f), EINVAL, "another context")
	ok(t, foreign.AttachPointFlow(&CounterAttachAttr{}, nil))
	_, err = qp.CreateFlow(&FlowAttr{Port: 1, Specs: []FlowSpec{FlowSpecActionCount{foreign}}})
	refused(t, err, EINVAL, "another context")
	ok(t, f.Close())
	refused(t, foreign.AttachPointFlow(&CounterAttachAttr{Index: 5}, f), EINVAL)
	ok(t, c.Close())
	refused(t, c.Close(), EINVAL, "closed")
	refused(t, c.Read(v, 0), EINVAL, "closed")
	_, err = qp.CreateFlow(&FlowAttr{Port: 1, Specs: []FlowSpec{FlowSpecActionCount{c}}})
	refused(t, err, EINVAL, "closed")
	values(t, 0, CounterPackets, CounterBytes)
	if s := CounterBytes.String() + ReadCountersPreferCached.String(); s != "BYTESPREFER_CACHED" {
		t.Error(s)
	}
}

// flowSamples are rules that together have every type of specification.
func flowSamples(c *Counters, a *FlowAction) []FlowAttr {
	var ones [16]byte
	for i := range ones {
		ones[i] = byte(i + 1)
	}
	return []FlowAttr{
		{},
		{Type: FlowAttrSniffer, Priority: 0x1234, Port: 7, Flags: FlowEgress, Specs: []FlowSpec{
			FlowSpecEth{true, FlowEthFilter{[6]byte(ones[:]), [6]byte(ones[6:]), 0x0800, 0x6123},
				FlowEthFilter{[6]byte(ones[1:]), [6]byte(ones[7:]), 1, 2}},
			FlowSpecIPv4{false, FlowIPv4Filter{[4]byte(ones[:]), [4]byte(ones[4:])},
				FlowIPv4Filter{[4]byte(ones[8:]), [4]byte(ones[12:])}},
			FlowSpecIPv4Ext{true, FlowIPv4ExtFilter{[4]byte(ones[:]), [4]byte(ones[4:]), 1, 2, 3, 4},
				FlowIPv4ExtFilter{[4]byte(ones[8:]), [4]byte(ones[12:]), 5, 6, 7, 8}},
			FlowSpecIPv6{false, FlowIPv6Filter{ones, ones, 0x12345, 1, 2, 3},
				FlowIPv6Filter{FlowLabel: 0xfffff, NextHdr: 4, TrafficClass: 5, HopLimit: 6}},
			FlowSpecESP{false, FlowESPFilter{1, 2}, FlowESPFilter{3, 4}},
			FlowSpecTCP{true, FlowPortFilter{1, 2}, FlowPortFilter{3, 4}},
			FlowSpecUDP{false, FlowPortFilter{5, 6}, FlowPortFilter{7, 8}},
			FlowSpecVXLAN{FlowTunnelFilter{0x123456}, FlowTunnelFilter{0xffffff}},
			FlowSpecGRE{FlowGREFilter{0x2000, 0x0800, 9}, FlowGREFilter{1, 2, 3}},
			FlowSpecMPLS{true, FlowMPLSFilter{0x12345678}, FlowMPLSFilter{9}},
			FlowSpecActionTag{0x11223344}, FlowSpecActionDrop{}, FlowSpecActionHandle{a}, FlowSpecActionCount{c},
		}},
	}
}

// handles returns one object per handle.
type handles struct {
	c *Counters
	a *FlowAction
}

func (h handles) Counters(n uint64) *Counters {
	if n == 8 {
		return h.c
	}
	return nil
}

func (h handles) Action(n uint64) *FlowAction {
	if n == 9 {
		return h.a
	}
	return nil
}

func (h handles) number(object any) uint64 {
	if object == h.c {
		return 8
	}
	return 9
}

func TestV_FL_03_V_FL_07_V_FL_08_LayoutOfTheCStructures(t *testing.T) {
	h := handles{new(Counters), new(FlowAction)}
	for _, a := range flowSamples(h.c, h.a) {
		b := must(AppendFlowAttr([]byte("front"), &a, h.number))(t)[5:]
		got := must(ParseFlowAttr(b, h))(t)
		if !reflect.DeepEqual(*got, a) {
			t.Errorf("%+v\nwant %+v", *got, a)
		}
		if int(binary.NativeEndian.Uint16(b[8:])) != len(b) || int(b[12]) != len(a.Specs) {
			t.Errorf("size and number of specifications: % x", b[:20])
		}
	}
	drop := FlowAttr{Specs: []FlowSpec{FlowSpecActionDrop{}}} // the shortest specification, at the end
	if got := must(ParseFlowAttr(must(AppendFlowAttr(nil, &drop, nil))(t), nil))(t); !reflect.DeepEqual(*got, drop) {
		t.Errorf("%+v", got)
	}
	b := must(AppendFlowAttr(nil, &FlowAttr{Port: 1, Specs: []FlowSpec{
		FlowSpecUDP{Val: FlowPortFilter{DstPort: 0x0102, SrcPort: 0x0304}, Mask: FlowPortFilter{DstPort: 0xffff}},
	}}, nil))(t)
	count := must(AppendFlowAttr(nil, &FlowAttr{Specs: []FlowSpec{FlowSpecActionCount{h.c}}}, nil))(t)
	if len(count) != 36 || !bytes.Equal(count[28:], make([]byte, 8)) {
		t.Errorf("without handles: % x", count)
	}
	if want := []byte{1, 2, 3, 4, 0xff, 0xff, 0, 0, 0, 0}; !bytes.Equal(b[20+6:], want) { // big endian: destination first
		t.Errorf("% x", b[20:])
	}
}

func TestV_FL_03_BadLayouts(t *testing.T) {
	h := handles{new(Counters), new(FlowAction)}
	a := flowSamples(h.c, h.a)[1]
	good := must(AppendFlowAttr(nil, &a, h.number))(t)
	for n := range good { // truncated at each length
		if _, err := ParseFlowAttr(good[:n], h); !errors.Is(err, EINVAL) {
			t.Fatalf("%d of %d bytes: %v", n, len(good), err)
		}
		short := bytes.Clone(good[:n])
		if n >= 20 {
			binary.NativeEndian.PutUint16(short[8:], uint16(n))
			if _, err := ParseFlowAttr(short, h); !errors.Is(err, EINVAL) {
				t.Fatalf("%d of %d bytes, with this size in the header: %v", n, len(good), err)
			}
		}
	}
	for name, change := range map[string]func(b []byte){
		"size":                   func(b []byte) { b[8]++ },
		"one specification less": func(b []byte) { b[12]-- },
		"one specification more": func(b []byte) { b[12]++ },
		"a size one above":       func(b []byte) { b[24]++ },
		"a size one below":       func(b []byte) { b[24]-- },
		"a size of 0":            func(b []byte) { binary.NativeEndian.PutUint16(b[24:], 0) },
		"an unknown type":        func(b []byte) { b[20] = 0x33 },
		"an unknown flag": func(b []byte) {
			binary.NativeEndian.PutUint32(b[20:], binary.NativeEndian.Uint32(b[20:])|1<<16)
		},
		"undefined counters":       func(b []byte) { b[len(b)-8] = 7 },
		"an undefined action":      func(b []byte) { b[len(b)-24] = 7 },
		"a flag of the drop":       func(b []byte) { b[len(b)-40+1] |= 1 },
		"the inner VXLAN's header": func(b []byte) { binary.NativeEndian.PutUint32(b[20:], 0x150) },
	} {
		b := bytes.Clone(good)
		change(b)
		if _, err := ParseFlowAttr(b, h); !errors.Is(err, EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ParseFlowAttr(good, nil); !errors.Is(err, EINVAL) {
		t.Errorf("handles without objects: %v", err)
	}
	for _, specs := range [][]FlowSpec{make([]FlowSpec, 256), {nil}, {&FlowSpecEth{}}} {
		if b, err := AppendFlowAttr([]byte{1}, &FlowAttr{Specs: specs}, nil); !errors.Is(err, EINVAL) || len(b) != 1 {
			t.Errorf("%d specifications: %v", len(specs), err)
		}
	}
}

func FuzzParseFlowAttr(f *testing.F) {
	h := handles{new(Counters), new(FlowAction)}
	for _, a := range flowSamples(h.c, h.a) {
		b, _ := AppendFlowAttr(nil, &a, h.number)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := ParseFlowAttr(b, h)
		if err != nil {
			return
		}
		_ = a.check()
		again, err := AppendFlowAttr(nil, a, h.number)
		if err != nil || len(again) != len(b) {
			t.Fatalf("%d bytes encode again as %d, %v", len(b), len(again), err)
		}
		back, err := ParseFlowAttr(again, h)
		if err != nil || !reflect.DeepEqual(a, back) {
			t.Fatalf("%+v decodes again as %+v, %v", a, back, err)
		}
	})
}
