package verbs

import (
	"errors"
	"fmt"
	"slices"
)

// check says what is wrong with a rule, whatever the device.
func (a *FlowAttr) check() error {
	switch {
	case a.CompMask != 0:
		return fmt.Errorf("unknown attributes %#x; there are none", a.CompMask)
	case a.Type > FlowAttrSniffer:
		return fmt.Errorf("%v is not a type of rule; NORMAL, ALL_DEFAULT, MC_DEFAULT and SNIFFER are", a.Type)
	case a.Flags&^flowFlagsAll != 0:
		return fmt.Errorf("unknown flags %v; there are %v", a.Flags&^flowFlagsAll, flowFlagsAll)
	case a.Flags&(FlowDontTrap|FlowEgress) != 0 && a.Type != FlowAttrNormal:
		return fmt.Errorf("%v goes with NORMAL rules only, not with %v", a.Flags&(FlowDontTrap|FlowEgress), a.Type)
	case a.Flags&FlowEgress != 0 && a.Flags&FlowAllowLoopBack != 0:
		return errors.New("a rule matches frames that are sent (EGRESS) or received (ALLOW_LOOP_BACK), not both")
	case len(a.Specs) > 255:
		return fmt.Errorf("%d specifications are too many; 0 to 255 are possible", len(a.Specs))
	}
	c := flowChecker{attr: a, seen: map[FlowSpecType]bool{}}
	for i, s := range a.Specs {
		if s == nil {
			return fmt.Errorf("specification %d is missing", i)
		}
		if err := c.add(s); err != nil {
			return fmt.Errorf("specification %d, %v: %w", i, s.Type(), err)
		}
	}
	return c.whole()
}

// flowChecker looks at one specification after the other.
type flowChecker struct {
	attr  *FlowAttr
	seen  map[FlowSpecType]bool
	eth   [2]*FlowEthFilter // mask and value belong together
	masks [2]*FlowEthFilter

	counters []*Counters
}

// add says why a specification is not possible.
func (c *flowChecker) add(s FlowSpec) error {
	t := s.Type()
	if !known(s) {
		return fmt.Errorf("a %T is not a specification; those of this package are, not as pointers", s)
	}
	if t >= FlowSpecTypeActionTag {
		return c.addAction(s)
	}
	if c.attr.Type != FlowAttrNormal {
		return fmt.Errorf("a rule of type %v matches by itself; only actions go with it", c.attr.Type)
	}
	if c.seen[t] {
		return errors.New("the rule has one already")
	}
	c.seen[t] = true
	if other, clash := c.clash(t); clash {
		return fmt.Errorf("no frame has both this and %v", other)
	}
	return c.values(s)
}

// known tells whether s is one of this package's.
func known(s FlowSpec) bool {
	switch s.(type) {
	case FlowSpecEth, FlowSpecIPv4, FlowSpecIPv4Ext, FlowSpecIPv6, FlowSpecESP, FlowSpecTCP, FlowSpecUDP, FlowSpecVXLAN, FlowSpecGRE,
		FlowSpecMPLS, FlowSpecActionTag, FlowSpecActionDrop, FlowSpecActionHandle, FlowSpecActionCount:
		return true
	}
	return false
}

func (c *flowChecker) addAction(s FlowSpec) error {
	if c.seen[s.Type()] && s.Type() != FlowSpecTypeActionCount {
		return errors.New("the rule has one already")
	}
	c.seen[s.Type()] = true
	switch s := s.(type) {
	case FlowSpecActionTag:
		if c.attr.Flags&FlowEgress != 0 {
			return errors.New("frames that are sent have no tag")
		}
	case FlowSpecActionDrop:
		if c.attr.Flags&FlowDontTrap != 0 {
			return errors.New("DONT_TRAP lets the frame go on, so that it cannot be dropped")
		}
		if c.attr.Type == FlowAttrSniffer {
			return errors.New("a sniffer has copies; it cannot drop frames")
		}
	case FlowSpecActionHandle:
		if s.Action == nil {
			return errors.New("the action is missing")
		}
	case FlowSpecActionCount:
		if s.Counters == nil {
			return errors.New("the counters are missing")
		}
		if slices.Contains(c.counters, s.Counters) {
			return errors.New("the rule counts into them already")
		}
		c.counters = append(c.counters, s.Counters)
	}
	return nil
}

// alternatives are specifications of which a frame has one at most at the same place.
var alternatives = [][]FlowSpecType{
	{FlowSpecTypeIPv4, FlowSpecTypeIPv4Ext, FlowSpecTypeIPv6},
	{FlowSpecTypeTCP, FlowSpecTypeUDP, FlowSpecTypeESP},
}

// outerOnly are alternatives of the outer headers: VXLAN is in UDP, and GRE is in neither.
var outerOnly = [][]FlowSpecType{
	{FlowSpecTypeVXLANTunnel, FlowSpecTypeGRE},
	{FlowSpecTypeVXLANTunnel, FlowSpecTypeTCP},
	{FlowSpecTypeVXLANTunnel, FlowSpecTypeESP},
	{FlowSpecTypeGRE, FlowSpecTypeTCP},
	{FlowSpecTypeGRE, FlowSpecTypeUDP},
	{FlowSpecTypeGRE, FlowSpecTypeESP},
}

// clash finds a specification that goes before and cannot be together with one of type t.
func (c *flowChecker) clash(t FlowSpecType) (FlowSpecType, bool) {
	sets, flag := alternatives, t&FlowSpecInner
	if flag == 0 {
		sets = append(sets[:len(sets):len(sets)], outerOnly...)
	}
	for _, set := range sets {
		for _, member := range set {
			if member|flag != t {
				continue
			}
			for _, other := range set {
				if other != member && c.seen[other|flag] {
					return other | flag, true
				}
			}
		}
	}
	return 0, false
}

// values looks at what has less bits than its field.
func (c *flowChecker) values(s FlowSpec) error {
	switch s := s.(type) {
	case FlowSpecEth:
		i := 0
		if s.Inner {
			i = 1
		}
		c.eth[i], c.masks[i] = &s.Val, &s.Mask
	case FlowSpecIPv4Ext:
		if (s.Val.Flags|s.Mask.Flags)&^7 != 0 {
			return fmt.Errorf("flags %#x, mask %#x: there are 3 bits", s.Val.Flags, s.Mask.Flags)
		}
	case FlowSpecIPv6:
		if (s.Val.FlowLabel|s.Mask.FlowLabel)>>20 != 0 {
			return fmt.Errorf("flow label %#x, mask %#x: it has 20 bits", s.Val.FlowLabel, s.Mask.FlowLabel)
		}
	case FlowSpecVXLAN:
		if (s.Val.TunnelID|s.Mask.TunnelID)>>24 != 0 {
			return fmt.Errorf("tunnel ID %#x, mask %#x: it has 24 bits", s.Val.TunnelID, s.Mask.TunnelID)
		}
	}
	return nil
}

// etherTypes are the EtherTypes that specifications ask for.
var etherTypes = map[FlowSpecType]uint16{
	FlowSpecTypeIPv4: 0x0800, FlowSpecTypeIPv4Ext: 0x0800, FlowSpecTypeIPv6: 0x86dd,
}

// whole looks at all of the rule: an EtherType must be that of the IP version.
func (c *flowChecker) whole() error {
	for i, flag := range []FlowSpecType{0, FlowSpecInner} {
		if c.eth[i] == nil {
			continue
		}
		for t, ether := range etherTypes {
			if mask := c.masks[i].EtherType; c.seen[t|flag] && (c.eth[i].EtherType^ether)&mask != 0 {
				return fmt.Errorf("EtherType %#04x, mask %#04x, is not that of %v, %#04x", c.eth[i].EtherType, mask, t|flag, ether)
			}
		}
	}
	return nil
}
