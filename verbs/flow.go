package verbs

import "syscall"

// FlowAttrType is the kind of a flow rule (enum ibv_flow_attr_type).
type FlowAttrType uint32

// The kinds (IBV_FLOW_ATTR_*).
const (
	FlowAttrNormal     FlowAttrType = 0 // frames that the specifications match; without any, all
	FlowAttrAllDefault FlowAttrType = 1 // frames that no other rule matches
	FlowAttrMCDefault  FlowAttrType = 2 // multicast frames that no normal rule matches
	FlowAttrSniffer    FlowAttrType = 3 // a copy of every frame that the port receives or a RAW_PACKET QP sends
)

var flowAttrNames = []string{"NORMAL", "ALL_DEFAULT", "MC_DEFAULT", "SNIFFER"}

// String returns the name without IBV_FLOW_ATTR_.
func (t FlowAttrType) String() string { return nameOf("FlowAttrType", flowAttrNames, int64(t)) }

// FlowFlags modify a flow rule (enum ibv_flow_flags).
type FlowFlags uint32

// The flags (IBV_FLOW_ATTR_FLAGS_*).
const (
	FlowAllowLoopBack FlowFlags = 1 << 0 // also match frames sent by QPs of the same device
	FlowDontTrap      FlowFlags = 1 << 1 // the following rules match too; NORMAL only
	// match only frames sent by QPs of the device; the QP of the rule only names the device
	FlowEgress FlowFlags = 1 << 2

	flowFlagsAll = FlowAllowLoopBack | FlowDontTrap | FlowEgress
)

var flowFlagNames = []string{"ALLOW_LOOP_BACK", "DONT_TRAP", "EGRESS"}

// String joins the names of the flags without IBV_FLOW_ATTR_FLAGS_.
func (f FlowFlags) String() string { return flagsOf(flowFlagNames, uint64(f), "|") }

// FlowAttr is a flow rule (struct ibv_flow_attr). AppendFlowAttr writes the C structure, ParseFlowAttr reads it; its
// size and num_of_specs follow from Specs.
type FlowAttr struct {
	Type     FlowAttrType
	Priority uint16 // a smaller number goes first; of two equal numbers the older rule
	Port     uint8  // from 1
	Flags    FlowFlags
	Specs    []FlowSpec // in any order, but see FlowSpecMPLS
}

// Flow is an active flow rule (struct ibv_flow). It is safe for concurrent use.
type Flow struct {
	qp       *QP
	drv      DriverHandle
	lifetime lifetime
	counters []*Counters
	action   *FlowAction
}

// CreateFlow activates a rule that steers frames to the QP, of type RAW_PACKET or UD (ibv_create_flow). When a frame
// matches, the actions of the rule run; the last one delivers the frame to the QP, unless a drop action is among
// them. attr is copied.
//
// A UD QP receives RoCE datagrams without their headers, whatever QP they name, with the Q_Key as always; a QP with
// SourceQPN needs a rule to receive. It receives other frames whole, from byte 40 of the receive on, and their
// completions lack WCGRH.
//
// A sniffer sees each received frame before all other rules, and each frame that a RAW_PACKET QP of the device sends
// after the EGRESS rules. Of the others the first rule that matches gets the frame, and the following ones too if it
// has FlowDontTrap: normal rules in the order of their priorities, then the default rules, those of multicast first.
//
// Errors: EINVAL for another type of QP, a malformed rule, or one that could never match. ENXIO if the device has no
// flow steering (DeviceManagedFlowSteering). EPERM if the process lacks the permission. EOPNOTSUPP for features that
// the device lacks. ENOMEM without resources.
func (qp *QP) CreateFlow(attr *FlowAttr) (*Flow, error) {
	const op = "create_flow"
	if err := qp.checkFlow(op, attr); err != nil {
		return nil, err
	}
	a := *attr
	a.Specs = append([]FlowSpec(nil), attr.Specs...)
	f := &Flow{qp: qp}
	for _, s := range a.Specs {
		switch s := s.(type) {
		case FlowSpecActionCount:
			f.counters = append(f.counters, s.Counters)
		case FlowSpecActionHandle:
			f.action = s.Action
		}
	}
	if err := use(op, kindFlow, f.parents()); err != nil {
		return nil, err
	}
	var err error
	if f.drv, err = qp.drv.CreateFlow(&a); err != nil {
		drop(kindFlow, f.parents())
		return nil, driverError(op, qp.obj(), err)
	}
	return f, nil
}

// checkFlow checks the QP and the rule.
func (qp *QP) checkFlow(op string, attr *FlowAttr) error {
	switch t := qp.init.Type; {
	case qp.lifetime.closed.Load():
		return errClosed(op, qp.obj())
	case qp.ctx.isRemoved():
		return errRemoved(op, qp)
	case t != QPTypeRawPacket && t != QPTypeUD:
		return newError(op, qp.obj(), EINVAL, "QP type %v has no flows: must be RAW_PACKET or UD", t)
	case qp.ctx.attr.DeviceCapFlags&DeviceManagedFlowSteering == 0:
		return newError(op, qp.obj(), syscall.ENXIO, "the device has no flow steering")
	case attr == nil:
		return newError(op, qp.obj(), EINVAL, "the attributes are nil")
	case attr.Port < 1 || attr.Port > qp.ctx.attr.PhysPortCnt:
		return newError(op, qp.obj(), EINVAL, "port %d: must be 1 to %d", attr.Port, qp.ctx.attr.PhysPortCnt)
	}
	if err := attr.check(); err != nil {
		return badInput(op, qp.obj(), err)
	}
	for _, s := range attr.Specs {
		var err error
		switch s := s.(type) {
		case FlowSpecActionCount:
			err = s.Counters.countable(qp.ctx)
		case FlowSpecActionHandle:
			err = s.Action.usable(qp.ctx, attr)
		}
		if err != nil {
			return badInput(op, qp.obj(), err)
		}
	}
	return nil
}

// parents lists the objects that the rule uses.
func (f *Flow) parents() []parent {
	list := []parent{{&f.qp.lifetime, f.qp}}
	for _, c := range f.counters {
		list = append(list, parent{&c.lifetime, c})
	}
	if f.action != nil {
		list = append(list, parent{&f.action.lifetime, f.action})
	}
	return list
}

// QP returns the QP that the rule steers to.
func (f *Flow) QP() *QP { return f.qp }

func (f *Flow) obj() string { return "flow of " + f.qp.obj() }

// Close removes the rule (ibv_destroy_flow). EINVAL if it is closed.
func (f *Flow) Close() error {
	const op = "destroy_flow"
	f.qp.mu.Lock()
	defer f.qp.mu.Unlock()
	if err := f.lifetime.close(op, f); err != nil {
		return err
	}
	if err := destroyed(f.drv.Destroy()); err != nil {
		f.lifetime.reopen()
		return driverError(op, f.obj(), err)
	}
	drop(kindFlow, f.parents())
	return f.qp.ctx.ended(op, f)
}
