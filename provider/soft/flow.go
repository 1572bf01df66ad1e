package soft

import (
	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/raw"
	"github.com/verbena-rdma/verbena/verbs"
)

// flow is a DriverHandle.
type flow struct {
	dev  *raw.Device
	rule *raw.Rule
	end  func() // called after the rule was removed; may be nil
}

// CreateFlow adds a flow rule.
func (q *rawQP) CreateFlow(attr *verbs.FlowAttr) (verbs.DriverHandle, error) {
	if err := q.ctx.dev.checkFramePort(attr.Port); err != nil {
		return nil, err
	}
	return addRule(q.ctx.frames, attr, &q.QP, nil), nil
}

// CreateFlow adds a flow rule. The link of frames is open while a UD QP has rules.
func (q *qp) CreateFlow(attr *verbs.FlowAttr) (verbs.DriverHandle, error) {
	dev := q.ctx.dev
	if err := dev.checkFramePort(attr.Port); err != nil {
		return nil, err
	}
	if err := dev.openFrames(); err != nil {
		return nil, err
	}
	return addRule(q.ctx.frames, attr, &raw.Datagrams{Num: q.Num(), Deliver: q.Steer}, dev.closeFrames), nil
}

// addRule adds a flow rule that steers to a receiver.
func addRule(dev *raw.Device, attr *verbs.FlowAttr, to raw.Receiver, end func()) verbs.DriverHandle {
	r := &raw.Rule{
		Type: raw.RuleType(attr.Type), Priority: attr.Priority, Flags: raw.RuleFlags(attr.Flags), To: to,
	}
	for _, s := range attr.Specs {
		switch s := s.(type) {
		case verbs.FlowSpecActionTag:
			r.Tag = s.TagID
		case verbs.FlowSpecActionDrop:
			r.Drop = true
		case verbs.FlowSpecActionCount:
			r.Counters = append(r.Counters, &driver.Of[*counters](s.Counters).n)
		case verbs.FlowSpecActionHandle:
			r.ESP = driver.Of[*flowAction](s.Action).esp
		default:
			r.Specs = append(r.Specs, toSpec(s))
		}
	}
	r.Prepare()
	dev.AddRule(r)
	return &flow{dev, r, end}
}

// Destroy removes the flow rule.
func (f *flow) Destroy() error {
	f.dev.RemoveRule(f.rule)
	if f.end != nil {
		f.end()
	}
	return nil
}

// toSpec converts a specification of frames.
func toSpec(s verbs.FlowSpec) raw.Spec {
	out := raw.Spec{Type: raw.SpecType(s.Type())}
	switch s := s.(type) {
	case verbs.FlowSpecEth:
		out.Val, out.Mask = ethFields(&s.Val), ethFields(&s.Mask)
	case verbs.FlowSpecIPv4:
		out.Val, out.Mask = ipv4Fields(&s.Val), ipv4Fields(&s.Mask)
	case verbs.FlowSpecIPv4Ext:
		out.Val, out.Mask = ipv4ExtFields(&s.Val), ipv4ExtFields(&s.Mask)
	case verbs.FlowSpecIPv6:
		out.Val, out.Mask = ipv6Fields(&s.Val), ipv6Fields(&s.Mask)
	case verbs.FlowSpecESP:
		out.Val, out.Mask = raw.Fields{Number: s.Val.SPI, Number2: s.Val.Seq}, raw.Fields{Number: s.Mask.SPI,
			Number2: s.Mask.Seq}
	case verbs.FlowSpecTCP:
		out.Val, out.Mask = portFields(s.Val), portFields(s.Mask)
	case verbs.FlowSpecUDP:
		out.Val, out.Mask = portFields(s.Val), portFields(s.Mask)
	case verbs.FlowSpecVXLAN:
		out.Val.Number, out.Mask.Number = s.Val.TunnelID, s.Mask.TunnelID
	case verbs.FlowSpecGRE:
		out.Val, out.Mask = greFields(&s.Val), greFields(&s.Mask)
	case verbs.FlowSpecMPLS:
		out.Val.Number, out.Mask.Number = s.Val.Label, s.Mask.Label
	}
	return out
}

func ethFields(f *verbs.FlowEthFilter) raw.Fields {
	return raw.Fields{DstMAC: f.DstMAC, SrcMAC: f.SrcMAC, EtherType: f.EtherType, VLAN: f.VLANTag}
}

func ipv4Fields(f *verbs.FlowIPv4Filter) (r raw.Fields) {
	copy(r.Src[:], f.SrcIP[:])
	copy(r.Dst[:], f.DstIP[:])
	return r
}

func ipv4ExtFields(f *verbs.FlowIPv4ExtFilter) raw.Fields {
	r := raw.Fields{Proto: f.Proto, Class: f.TOS, TTL: f.TTL, Flags: f.Flags}
	copy(r.Src[:], f.SrcIP[:])
	copy(r.Dst[:], f.DstIP[:])
	return r
}

func ipv6Fields(f *verbs.FlowIPv6Filter) raw.Fields {
	return raw.Fields{Src: f.SrcIP, Dst: f.DstIP, FlowLabel: f.FlowLabel, Proto: f.NextHdr, Class: f.TrafficClass,
		TTL: f.HopLimit}
}

func portFields(f verbs.FlowPortFilter) raw.Fields {
	return raw.Fields{DstPort: f.DstPort, SrcPort: f.SrcPort}
}

func greFields(f *verbs.FlowGREFilter) raw.Fields {
	return raw.Fields{GREFlags: f.CKSRes0Ver, GREType: f.Protocol, Number: f.Key}
}

// counters is a DriverCounters.
type counters struct{ n raw.Counter }

// CreateCounters makes counters.
func (c *deviceContext) CreateCounters() (verbs.DriverCounters, error) {
	if !c.dev.hasFrames() {
		return nil, fail(verbs.ENOSYS, "the device has no flow rules")
	}
	return new(counters), nil
}

// Attach adds the counters to a rule.
func (c *counters) Attach(f verbs.DriverHandle) error {
	rule := f.(*flow)
	rule.dev.Count(rule.rule, &c.n)
	return nil
}

// Read returns the counters.
func (c *counters) Read() (packets, bytes uint64, err error) {
	return c.n.Packets.Load(), c.n.Bytes.Load(), nil
}

// Destroy does nothing: no rule uses the counters.
func (*counters) Destroy() error { return nil }
