package verbs

import "syscall"

// FlowAttrType is the kind of a flow rule (enum ibv_flow_attr_type).
type FlowAttrType uint32

// The kinds (IBV_FLOW_ATTR_*).
const (
	FlowAttrNormal     FlowAttrType = 0 // frames that the specifications match; without any, all
	FlowAttrAllDefault FlowAttrType = 1 // frames that no other rule takes
	FlowAttrMCDefault  FlowAttrType = 2 // multicast frames that no normal rule takes
	FlowAttrSniffer    FlowAttrType = 3 // a copy of every frame of the port, received or sent
)

var flowAttrNames = []string{"NORMAL", "ALL_DEFAULT", "MC_DEFAULT", "SNIFFER"}

// String is the name without IBV_FLOW_ATTR_.
func (t FlowAttrType) String() string { return nameOf("FlowAttrType", flowAttrNames, int64(t)) }

// FlowFlags modify a flow rule (enum ibv_flow_flags).
type FlowFlags uint32

// The flags (IBV_FLOW_ATTR_FLAGS_*).
const (
	FlowAllowLoopBack FlowFlags = 1 << 0 // frames that QPs of the same device send match too
	FlowDontTrap      FlowFlags = 1 << 1 // rules of lower priority match as well; NORMAL only
	FlowEgress        FlowFlags = 1 << 2 // frames that QPs of the device send match, and only those; the QP just names the device

	flowFlagsAll = FlowAllowLoopBack | FlowDontTrap | FlowEgress
)

var flowFlagNames = []string{"ALLOW_LOOP_BACK", "DONT_TRAP", "EGRESS"}

// String joins the names of the flags without IBV_FLOW_ATTR_FLAGS_.
func (f FlowFlags) String() string { return flagsOf(flowFlagNames, uint64(f), "|") }

// FlowAttr is a flow rule (struct ibv_flow_attr). The C structure's size and num_of_specs are those of Specs;
// AppendFlowAttr writes it, ParseFlowAttr reads it.
type FlowAttr struct {
	CompMask uint32 // 0
	Type     FlowAttrType
	Priority uint16 // a smaller number goes first; of two rules with the same one the older
	Port     uint8  // from 1
	Flags    FlowFlags
	Specs    []FlowSpec // in any order, but see FlowSpecMPLS
}

// Flow is a flow rule in force (struct ibv_flow).
type Flow struct {
	qp       *QP
	drv      FlowDriver
	life     life
	counters []*Counters
}

// FlowAction is an action that rules share (struct ibv_flow_action). No device has any.
type FlowAction struct{ _ byte }

// FlowActionESPAttr describes an action that encrypts or decrypts ESP (struct ibv_flow_action_esp_attr).
type FlowActionESPAttr struct{ CompMask uint32 }

// CreateFlowActionESP makes an action for ESP (ibv_create_flow_action_esp). No device has it: it answers EOPNOTSUPP.
func (ctx *Context) CreateFlowActionESP(*FlowActionESPAttr) (*FlowAction, error) {
	return nil, newError("create_flow_action_esp", ctx.obj(), EOPNOTSUPP, "no device encrypts ESP")
}

// CreateFlow puts a rule in force that steers frames to the QP, of type RAW_PACKET or UD (ibv_create_flow). When a frame
// matches its actions run, and delivering the frame to the QP is the last of them, unless it is dropped.
//
// Sniffers see each frame before all other rules do. Of the others the first one that matches has the frame, unless it has
// FlowDontTrap: normal rules come first, in the order of their priorities, then those for the rest.
//
// EINVAL: a rule that is malformed, or contradicts itself, so that it could never match. ENXIO: the device has no flow
// steering (DeviceManagedFlowSteering). EPERM: the process may not. EOPNOTSUPP: something that the device lacks. ENOMEM without
// resources.
func (qp *QP) CreateFlow(attr *FlowAttr) (*Flow, error) {
	const op = "create_flow"
	if err := qp.checkFlow(op, attr); err != nil {
		return nil, err
	}
	drv, ok := qp.drv.(FlowCreator)
	if !ok {
		return nil, newError(op, qp.obj(), EOPNOTSUPP, "the device has no flow steering for %v QPs", qp.init.Type)
	}
	a := *attr
	a.Specs = append([]FlowSpec(nil), attr.Specs...)
	f := &Flow{qp: qp}
	for _, s := range a.Specs {
		if c, ok := s.(FlowSpecActionCount); ok {
			f.counters = append(f.counters, c.Counters)
		}
	}
	if err := use(op, kindFlow, f.parents()); err != nil {
		return nil, err
	}
	var err error
	if f.drv, err = drv.CreateFlow(&a); err != nil {
		drop(kindFlow, f.parents())
		return nil, driverError(op, qp.obj(), err)
	}
	return f, nil
}

// checkFlow looks at the QP and the rule.
func (qp *QP) checkFlow(op string, attr *FlowAttr) error {
	switch t := qp.init.Type; {
	case qp.life.closed.Load():
		return errClosed(op, qp.obj())
	case t != QPTypeRawPacket && t != QPTypeUD:
		return newError(op, qp.obj(), EINVAL, "a QP of type %v has no flows; RAW_PACKET and UD have", t)
	case qp.ctx.attr.DeviceCapFlags&DeviceManagedFlowSteering == 0:
		return newError(op, qp.obj(), syscall.ENXIO, "the device has no flow steering")
	case attr == nil:
		return newError(op, qp.obj(), EINVAL, "there are no attributes")
	case attr.Port < 1 || attr.Port > qp.ctx.attr.PhysPortCnt:
		return newError(op, qp.obj(), EINVAL, "port %d does not exist; ports are 1 to %d", attr.Port, qp.ctx.attr.PhysPortCnt)
	}
	if err := attr.check(); err != nil {
		return badInput(op, qp.obj(), err)
	}
	for _, s := range attr.Specs {
		if c, ok := s.(FlowSpecActionCount); ok {
			if err := c.Counters.countable(qp.ctx); err != nil {
				return badInput(op, qp.obj(), err)
			}
		}
	}
	return nil
}

// parents lists all that the rule is made of.
func (f *Flow) parents() []parent {
	list := []parent{{&f.qp.life, f.qp.obj()}}
	for _, c := range f.counters {
		list = append(list, parent{&c.life, c.obj()})
	}
	return list
}

// QP is the QP that the rule steers to.
func (f *Flow) QP() *QP { return f.qp }

// Driver gives providers the driver object of the flow.
func (f *Flow) Driver() FlowDriver { return f.drv }

func (f *Flow) obj() string { return "flow of " + f.qp.obj() }

// Close takes the rule out of force (ibv_destroy_flow). EINVAL if it is closed.
func (f *Flow) Close() error {
	const op = "destroy_flow"
	f.qp.mu.Lock()
	defer f.qp.mu.Unlock()
	if err := f.life.end(op, f.obj()); err != nil {
		return err
	}
	if err := destroyed(f.drv.Destroy()); err != nil {
		f.life.revive()
		return driverError(op, f.obj(), err)
	}
	drop(kindFlow, f.parents())
	return nil
}
