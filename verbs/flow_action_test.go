package verbs

import (
	"bytes"
	"fmt"
	"strings"
	"syscall"
	"testing"
)

func espAttr() *FlowActionESPAttr {
	return &FlowActionESPAttr{
		ESP: &FlowActionESP{SPI: 1, Flags: FlowActionESPFullOffload},
		KeyMat: &FlowActionESPKeyMat{ICVLen: 16, Salt: [4]byte{0x5a, 0x5b, 0x5c, 0x5d},
			Key: []byte("0123456789abcdef")},
		Replay: &FlowActionESPReplay{FlowActionESPReplayBMP, 64},
		Encap:  []FlowSpec{FlowSpecIPv4{}},
	}
}

func TestV_FL_14_ESPAttributes(t *testing.T) {
	checkBits(t, map[int]FlowActionESPFlags{0: FlowActionESPFullOffload, 1: FlowActionESPTransport,
		2: FlowActionESPEncrypt, 3: FlowActionESPESNNewWindow})
	texts(t, FlowActionESPReplayProto(0), "NONE", "BMP", "FlowActionESPReplayProto(2)")
	vctx, drv := openSteering(t)
	ok(t, must(vctx.CreateFlowActionESP(espAttr()))(t).Close())
	drv.calls = nil
	const full, transport, encrypt = FlowActionESPFullOffload, FlowActionESPTransport, FlowActionESPEncrypt
	for part, change := range map[string]func(a *FlowActionESPAttr){
		"ESP is nil":             func(a *FlowActionESPAttr) { a.ESP = nil },
		"KeyMat is nil":          func(a *FlowActionESPAttr) { a.KeyMat = nil },
		"Replay NONE":            func(a *FlowActionESPAttr) { a.Replay.Proto = FlowActionESPReplayNone },
		"Protocol(2)":            nil,
		"unknown flags 0x10":     func(a *FlowActionESPAttr) { a.ESP.Flags |= 16 },
		"ESN_NEW_WINDOW with":    func(a *FlowActionESPAttr) { a.ESP.Flags |= FlowActionESPESNNewWindow },
		"must have an IP header": func(a *FlowActionESPAttr) { a.Encap = []FlowSpec{inUDP()} },
		"a key of 15 bytes":      func(a *FlowActionESPAttr) { a.KeyMat.Key = make([]byte, 15) },
		"a key of 33 bytes":      func(a *FlowActionESPAttr) { a.KeyMat.Key = make([]byte, 33) },
		"ICVLen 4":               func(a *FlowActionESPAttr) { a.KeyMat.ICVLen = 4 },
		"window of 0":            func(a *FlowActionESPAttr) { a.Replay.Size = 0 },
		"window of 4097":         func(a *FlowActionESPAttr) { a.Replay.Size = 4097 },
		"unknown replay":         func(a *FlowActionESPAttr) { a.Replay.Proto = 2 },
		"is for decryption":      func(a *FlowActionESPAttr) { a.ESP.Flags |= encrypt },
		"TFCPad 65536":           func(a *FlowActionESPAttr) { a.ESP.TFCPad = 65536 },
		"must be 0 in transport": func(a *FlowActionESPAttr) {
			a.ESP.TFCPad, a.ESP.Flags, a.Encap = 1, full|transport, nil
		},
		"header in transport mode": func(a *FlowActionESPAttr) { a.ESP.Flags |= transport },
		"must be 0 without":        func(a *FlowActionESPAttr) { a.ESP.Flags, a.Replay = 0, nil },
		"Encap without": func(a *FlowActionESPAttr) {
			a.ESP.Flags, a.ESP.SPI, a.Replay = 0, 0, nil
		},
		"flags 0x4": func(a *FlowActionESPAttr) { a.Encap = []FlowSpec{FlowSpecIPv4Ext{Val: FlowIPv4ExtFilter{Flags: 4}}} },
		"0x100000": func(a *FlowActionESPAttr) {
			a.Encap = []FlowSpec{FlowSpecIPv6{Val: FlowIPv6Filter{FlowLabel: 1 << 20}}}
		},
		"UDP port 0":              func(a *FlowActionESPAttr) { a.Encap = append(a.Encap, FlowSpecUDP{}) },
		"1 of Encap: must be one": func(a *FlowActionESPAttr) { a.Encap = append(a.Encap, FlowSpecIPv6{}) },
		"1 of Encap: must b":      func(a *FlowActionESPAttr) { a.Encap = []FlowSpec{inUDP(), FlowSpecIPv4{}} },
	} {
		if change == nil {
			continue
		}
		a := espAttr()
		change(a)
		_, err := vctx.CreateFlowActionESP(a)
		refused(t, err, EINVAL, "create_flow_action_esp", part)
	}
	_, err := vctx.CreateFlowActionESP(nil)
	refused(t, err, EINVAL, "the attributes are nil")
	a := espAttr()
	a.Encap = append(a.Encap, FlowSpecTCP{})
	_, err = vctx.CreateFlowActionESP(a)
	refused(t, err, EOPNOTSUPP, "FlowSpecTCP")
	a = &FlowActionESPAttr{ESP: &FlowActionESP{Flags: encrypt | transport}, KeyMat: espAttr().KeyMat}
	_, err = vctx.CreateFlowActionESP(a)
	refused(t, err, EOPNOTSUPP, "use FULL_OFFLOAD")
	if len(drv.calls) != 0 {
		t.Error(drv.calls)
	}
	drv.fail["CreateFlowActionESP"] = ENOMEM
	_, err = vctx.CreateFlowActionESP(espAttr())
	refused(t, err, ENOMEM)
}

// The headers around ESP: at most one IP header, with no more than the device fills in, then at most one UDP header.
func TestV_FL_14_HeadersAroundESP(t *testing.T) {
	vctx, _ := openSteering(t)
	ipv4, ipv6 := FlowSpecIPv4{}, FlowSpecIPv6{}
	ext := func(f FlowIPv4ExtFilter) FlowSpec { return FlowSpecIPv4Ext{Val: f} }
	six := func(f FlowIPv6Filter) FlowSpec { return FlowSpecIPv6{Val: f} }
	tests := map[string]struct {
		transport bool
		encap     []FlowSpec
		part      string // of the error; "" for none
	}{
		"UDP":                        {true, []FlowSpec{inUDP()}, ""},
		"none":                       {true, nil, ""},
		"IPv4, UDP":                  {false, []FlowSpec{ipv4, inUDP()}, ""},
		"IPv6, UDP":                  {false, []FlowSpec{six(FlowIPv6Filter{FlowLabel: 0xfffff}), inUDP()}, ""},
		"do not fragment":            {false, []FlowSpec{ext(FlowIPv4ExtFilter{Flags: 2})}, ""},
		"more fragments":             {false, []FlowSpec{ext(FlowIPv4ExtFilter{Flags: 1})}, "flags 0x1"},
		"protocol of IPv4":           {false, []FlowSpec{ext(FlowIPv4ExtFilter{Flags: 2, Proto: 50})}, "protocol 50"},
		"next header of IPv6":        {false, []FlowSpec{six(FlowIPv6Filter{NextHdr: 50})}, "next header 50"},
		"two UDP headers":            {false, []FlowSpec{ipv4, inUDP(), inUDP()}, "header 2 of Encap: must be one"},
		"two UDP headers, transport": {true, []FlowSpec{inUDP(), inUDP()}, "header 1 of Encap: must be one"},
		"IPv4, IPv6, UDP":            {false, []FlowSpec{ipv4, ipv6, inUDP()}, "header 1 of Encap: must be one"},
		"UDP, IPv6":                  {false, []FlowSpec{inUDP(), ipv6}, "header 1 of Encap: must be one"},
		"UDP, IPv6, transport":       {true, []FlowSpec{inUDP(), ipv6}, "in transport mode"},
	}
	for name, tt := range tests {
		a := espAttr()
		a.Encap = tt.encap
		if tt.transport {
			a.ESP.Flags |= FlowActionESPTransport
		}
		action, err := vctx.CreateFlowActionESP(a)
		if tt.part != "" {
			refused(t, err, EINVAL, tt.part)
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		ok(t, action.Close())
	}
}

func inUDP() FlowSpec { return FlowSpecUDP{Val: FlowPortFilter{DstPort: 4500}} }

func TestV_FL_14_RulesWithESPActions(t *testing.T) {
	qp, drv := rawQP(t)
	vctx := qp.Context()
	dec := must(vctx.CreateFlowActionESP(espAttr()))(t)
	out := espAttr()
	out.ESP.Flags |= FlowActionESPEncrypt
	out.Replay = nil
	enc := must(vctx.CreateFlowActionESP(out))(t)
	inline := must(vctx.CreateFlowActionESP(&FlowActionESPAttr{ESP: &FlowActionESP{}, KeyMat: espAttr().KeyMat}))(t)
	rule := func(flags FlowFlags, a *FlowAction, more ...FlowSpec) (*Flow, error) {
		return qp.CreateFlow(&FlowAttr{Port: 1, Flags: flags, Specs: append(more, FlowSpecActionHandle{a})})
	}
	f := must(rule(0, dec))(t)
	refused(t, dec.Close(), EBUSY, "still used by 1 flow")
	ok(t, f.Close())
	ok(t, must(rule(FlowEgress, enc))(t).Close())
	ok(t, must(rule(0, inline, FlowSpecIPv6{}, FlowSpecESP{}))(t).Close())
	other, _ := openSteering(t)
	foreign := must(other.CreateFlowActionESP(espAttr()))(t)
	for part, c := range map[string]func() (*Flow, error){
		"an EGRESS rule needs":           func() (*Flow, error) { return rule(FlowEgress, dec) },
		"another rule one that decrypts": func() (*Flow, error) { return rule(0, enc) },
		"outer IP and ESP headers":       func() (*Flow, error) { return rule(0, inline, FlowSpecESP{}) },
		"specifications of the outer":    func() (*Flow, error) { return rule(0, inline, FlowSpecIPv4{}) },
		"inline crypto action needs": func() (*Flow, error) {
			return rule(0, inline, FlowSpecIPv4{Inner: true}, FlowSpecESP{})
		},
		"another context":                  func() (*Flow, error) { return rule(0, foreign) },
		"SNIFFER cannot change frames":     func() (*Flow, error) { return sniffWith(qp, dec) },
		"the rule has one already (EINVAL": func() (*Flow, error) { return rule(0, dec, FlowSpecActionHandle{dec}) },
	} {
		_, err := c()
		refused(t, err, EINVAL, part)
	}
	refused(t, dec.ModifyESP(nil), EINVAL)
	refused(t, dec.ModifyESP(&FlowActionESPAttr{ESP: &FlowActionESP{Flags: FlowActionESPTransport |
		FlowActionESPFullOffload}}), EINVAL, "TRANSPORT cannot be changed")
	refused(t, dec.ModifyESP(&FlowActionESPAttr{Encap: []FlowSpec{inUDP()}}), EINVAL, "IP header")
	n := uint32(3)
	ok(t, inline.ModifyESP(&FlowActionESPAttr{ESN: &n, ESP: &FlowActionESP{Flags: FlowActionESPESNNewWindow}}))
	ok(t, dec.ModifyESP(&FlowActionESPAttr{Replay: &FlowActionESPReplay{}}))
	drv.fail["ModifyESP"] = syscall.EIO
	refused(t, dec.ModifyESP(&FlowActionESPAttr{}), syscall.EIO)
	drv.fail["DestroyFlowAction"] = syscall.EIO
	refused(t, dec.Close(), syscall.EIO)
	delete(drv.fail, "DestroyFlowAction")
	ok(t, dec.Close())
	refused(t, dec.Close(), EINVAL, "closed")
	refused(t, dec.ModifyESP(&FlowActionESPAttr{}), EINVAL, "closed")
	_, err := rule(0, dec)
	refused(t, err, EINVAL, "closed")
	refused(t, vctx.Close(), EBUSY, "2 flow actions")
}

func sniffWith(qp *QP, a *FlowAction) (*Flow, error) {
	return qp.CreateFlow(&FlowAttr{Port: 1, Type: FlowAttrSniffer, Specs: []FlowSpec{FlowSpecActionHandle{a}}})
}

// TestKeysAreNotPrinted: attributes in errors, logs and test failures do not show keys.
func TestKeysAreNotPrinted(t *testing.T) {
	a := espAttr()
	a.KeyMat.Key = bytes.Repeat([]byte{0xab}, 16)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%q", "%d"} {
		for _, v := range []any{a.KeyMat, *a.KeyMat, []any{a.KeyMat}, struct{ K FlowActionESPKeyMat }{*a.KeyMat}} {
			got := fmt.Sprintf(verb, v)
			for _, secret := range []string{"abab", "171", "0xab", "5a5b", "0x5a", "90 91"} {
				if strings.Contains(strings.ToLower(got), secret) {
					t.Errorf("%s: %s", verb, got)
				}
			}
		}
	}
}
