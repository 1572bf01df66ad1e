package soft

import (
	"github.com/verbena-rdma/verbena/internal/raw"
	"github.com/verbena-rdma/verbena/verbs"
)

// flowAction is a DriverFlowAction.
type flowAction struct {
	dev *raw.Device
	esp *raw.ESP
}

// CreateFlowActionESP makes an ESP action.
func (c *deviceContext) CreateFlowActionESP(attr *verbs.FlowActionESPAttr) (verbs.DriverFlowAction, error) {
	if !c.dev.hasFrames() {
		return nil, fail(verbs.EOPNOTSUPP, "the device has no flow rules")
	}
	a := &flowAction{c.frames, new(raw.ESP)}
	if err := a.ModifyESP(attr); err != nil {
		return nil, err
	}
	return a, nil
}

// ModifyESP changes the action for the next frame of all of its rules.
func (a *flowAction) ModifyESP(attr *verbs.FlowActionESPAttr) (err error) {
	a.dev.ChangeESP(func() { err = a.modify(attr) })
	if err != nil {
		return fail(verbs.EINVAL, "%v", err)
	}
	return nil
}

func (a *flowAction) modify(attr *verbs.FlowActionESPAttr) error {
	e := a.esp
	mode := e.Mode
	if attr.ESP != nil {
		mode = raw.ESPMode(attr.ESP.Flags)
	}
	if k := attr.KeyMat; k != nil {
		key := &raw.ESPKey{Key: k.Key, Salt: k.Salt, IV: k.IV, ICVLen: int(k.ICVLen)}
		if err := e.SetKey(mode, key); err != nil {
			return err
		}
	}
	low, high := e.Seq()
	if s := attr.ESP; s != nil {
		e.Mode, e.SPI, e.TFCPad, e.Limit = mode, s.SPI, int(s.TFCPad), s.HardLimitPkts
		low = s.Seq
		e.ResetLimit()
	}
	if attr.ESN != nil {
		e.ESN, high = true, *attr.ESN
	}
	if attr.ESP != nil || attr.ESN != nil {
		e.SetSeq(low, high)
	}
	if r := attr.Replay; r != nil {
		e.SetReplay(r.Size)
		if r.Proto == verbs.FlowActionESPReplayNone {
			e.SetReplay(0)
		}
	}
	if attr.Encap != nil {
		e.Encap = toEncap(attr.Encap)
	}
	return nil
}

// toEncap converts the headers around ESP.
func toEncap(list []verbs.FlowSpec) (c raw.ESPEncap) {
	for _, s := range list {
		switch s := s.(type) {
		case verbs.FlowSpecIPv4:
			c.IP = 4
			copy(c.Src[:], s.Val.SrcIP[:])
			copy(c.Dst[:], s.Val.DstIP[:])
		case verbs.FlowSpecIPv4Ext:
			c.IP, c.Class, c.TTL, c.Flags = 4, s.Val.TOS, s.Val.TTL, s.Val.Flags
			copy(c.Src[:], s.Val.SrcIP[:])
			copy(c.Dst[:], s.Val.DstIP[:])
		case verbs.FlowSpecIPv6:
			c.IP, c.Class, c.TTL, c.FlowLabel = 6, s.Val.TrafficClass, s.Val.HopLimit, s.Val.FlowLabel
			c.Src, c.Dst = s.Val.SrcIP, s.Val.DstIP
		case verbs.FlowSpecUDP:
			c.UDP, c.SrcPort, c.DstPort = true, s.Val.SrcPort, s.Val.DstPort
		}
	}
	return c
}

// Destroy does nothing: no rule uses the action.
func (*flowAction) Destroy() error { return nil }
