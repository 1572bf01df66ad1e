package verbs

import (
	"errors"
	"fmt"
	"slices"
)

// check returns an error if the rule is invalid on every device.
func (a *FlowAttr) check() error {
	switch {
	case a.Type > FlowAttrSniffer:
		return fmt.Errorf("unknown rule type %v; must be NORMAL, ALL_DEFAULT, MC_DEFAULT or SNIFFER", a.Type)
	case a.Flags&^flowFlagsAll != 0:
		return fmt.Errorf("unknown flags %v; must be of %v", a.Flags&^flowFlagsAll, flowFlagsAll)
	case a.Flags&(FlowDontTrap|FlowEgress) != 0 && a.Type != FlowAttrNormal:
		return fmt.Errorf("%v on a rule of type %v: the type must be NORMAL", a.Flags&(FlowDontTrap|FlowEgress), a.Type)
	case a.Flags&FlowEgress != 0 && a.Flags&FlowAllowLoopBack != 0:
		return errors.New("EGRESS and ALLOW_LOOP_BACK exclude each other")
	case len(a.Specs) > 255:
		return fmt.Errorf("%d specifications: must be 0 to 255", len(a.Specs))
	}
	c := flowChecker{attr: a, seen: map[FlowSpecType]bool{}}
	for i, s := range a.Specs {
		if s == nil {
			return fmt.Errorf("specification %d is nil", i)
		}
		if err := c.add(s); err != nil {
			return fmt.Errorf("specification %d, %v: %w", i, s.Type(), err)
		}
	}
	return c.whole()
}

// flowChecker checks one specification after the other.
type flowChecker struct {
	attr  *FlowAttr
	seen  map[FlowSpecType]bool
	eth   [2]*FlowEthFilter // values of outer and inner Ethernet specification; masks has the masks
	masks [2]*FlowEthFilter

	counters []*Counters
	layer    int  // of the last inner specification
	disorder bool // an inner specification is of a lower layer than one before
}

// innerLayers holds the order of the inner headers.
var innerLayers = map[FlowSpecType]int{
	FlowSpecTypeEth: 1, FlowSpecTypeIPv4: 2, FlowSpecTypeIPv4Ext: 2, FlowSpecTypeIPv6: 2, FlowSpecTypeTCP: 3,
	FlowSpecTypeUDP: 3, FlowSpecTypeESP: 3,
}

// add checks the next specification.
func (c *flowChecker) add(s FlowSpec) error {
	t := s.Type()
	if !known(s) {
		return fmt.Errorf("unknown specification type %T; must be a FlowSpec value of package verbs, not a pointer", s)
	}
	if t >= FlowSpecTypeActionTag {
		return c.addAction(s)
	}
	if c.attr.Type != FlowAttrNormal {
		return fmt.Errorf("a rule of type %v takes action specifications only", c.attr.Type)
	}
	if c.seen[t] {
		return errors.New("the rule has one already")
	}
	c.seen[t] = true
	if t&FlowSpecInner != 0 && t != FlowSpecTypeMPLS|FlowSpecInner {
		layer := innerLayers[t&^FlowSpecInner]
		c.disorder = c.disorder || layer < c.layer
		c.layer = max(c.layer, layer)
	}
	if other, clash := c.clash(t); clash {
		return fmt.Errorf("no frame has both this and %v", other)
	}
	return c.values(s)
}

// known reports whether s has a type of this package.
func known(s FlowSpec) bool {
	switch s.(type) {
	case FlowSpecEth, FlowSpecIPv4, FlowSpecIPv4Ext, FlowSpecIPv6, FlowSpecESP, FlowSpecTCP, FlowSpecUDP, FlowSpecVXLAN,
		FlowSpecGRE,
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
			return errors.New("an EGRESS rule cannot tag frames")
		}
	case FlowSpecActionDrop:
		if c.attr.Flags&FlowDontTrap != 0 {
			return errors.New("a rule with DONT_TRAP cannot drop frames")
		}
		if c.attr.Type == FlowAttrSniffer {
			return errors.New("a rule of type SNIFFER cannot drop frames")
		}
	case FlowSpecActionHandle:
		if s.Action == nil {
			return errors.New("the action is nil")
		}
		if c.attr.Type == FlowAttrSniffer {
			return errors.New("a rule of type SNIFFER cannot change frames")
		}
	case FlowSpecActionCount:
		if s.Counters == nil {
			return errors.New("the counters are nil")
		}
		if slices.Contains(c.counters, s.Counters) {
			return errors.New("the rule has these counters already")
		}
		c.counters = append(c.counters, s.Counters)
	}
	return nil
}

// alternatives are sets of headers of which a frame has at most one at the same place.
var alternatives = [][]FlowSpecType{
	{FlowSpecTypeIPv4, FlowSpecTypeIPv4Ext, FlowSpecTypeIPv6},
	{FlowSpecTypeTCP, FlowSpecTypeUDP, FlowSpecTypeESP},
}

// outerOnly are alternatives of the outer headers: VXLAN is inside UDP, GRE is in none of TCP, UDP and ESP.
var outerOnly = [][]FlowSpecType{
	{FlowSpecTypeVXLANTunnel, FlowSpecTypeGRE},
	{FlowSpecTypeVXLANTunnel, FlowSpecTypeTCP},
	{FlowSpecTypeVXLANTunnel, FlowSpecTypeESP},
	{FlowSpecTypeGRE, FlowSpecTypeTCP},
	{FlowSpecTypeGRE, FlowSpecTypeUDP},
	{FlowSpecTypeGRE, FlowSpecTypeESP},
}

// clash returns an earlier specification that excludes one of type t.
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

// values checks the fields that use fewer bits than their Go type.
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
			return fmt.Errorf("flags %#x, mask %#x: must be 0 to 7", s.Val.Flags, s.Mask.Flags)
		}
	case FlowSpecIPv6:
		if (s.Val.FlowLabel|s.Mask.FlowLabel)>>20 != 0 {
			return fmt.Errorf("flow label %#x, mask %#x: must be 0 to 0xfffff", s.Val.FlowLabel, s.Mask.FlowLabel)
		}
	case FlowSpecVXLAN:
		if (s.Val.TunnelID|s.Mask.TunnelID)>>24 != 0 {
			return fmt.Errorf("tunnel ID %#x, mask %#x: must be 0 to 0xffffff", s.Val.TunnelID, s.Mask.TunnelID)
		}
	}
	return nil
}

// etherTypes holds the EtherType of the frames that a specification matches.
var etherTypes = map[FlowSpecType]uint16{
	FlowSpecTypeIPv4: 0x0800, FlowSpecTypeIPv4Ext: 0x0800, FlowSpecTypeIPv6: 0x86dd,
}

// whole checks the rule as a whole: an EtherType must be that of the IP version, and with an inner MPLS specification
// the inner ones must be in the order of the headers.
func (c *flowChecker) whole() error {
	if c.disorder && c.seen[FlowSpecTypeMPLS|FlowSpecInner] {
		return errors.New("with INNER_MPLS the inner specifications must be in the order of the headers")
	}
	for i, flag := range []FlowSpecType{0, FlowSpecInner} {
		if c.eth[i] == nil {
			continue
		}
		for t, ether := range etherTypes {
			if mask := c.masks[i].EtherType; c.seen[t|flag] && (c.eth[i].EtherType^ether)&mask != 0 {
				return fmt.Errorf("EtherType %#04x, mask %#04x: with %v it must match %#04x", c.eth[i].EtherType, mask, t|flag,
					ether)
			}
		}
	}
	return nil
}
