package rdmacm

import (
	"context"
	"net/netip"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// JoinFlags say what a member of a multicast group may do (enum rdma_cm_join_mc_attr_flags).
type JoinFlags uint32

// The join flags (RDMA_MC_JOIN_FLAG_*).
const (
	JoinFullMember         JoinFlags = 0 // sends and receives
	JoinSendOnlyFullMember JoinFlags = 1 // only sends: the network is not told, and the QP not attached
)

// The attributes that a JoinMCAttr has (RDMA_CM_JOIN_MC_ATTR_*).
const (
	JoinMCAttrAddress   = 1
	JoinMCAttrJoinFlags = 2
)

// JoinMCAttr are the parameters of JoinMulticastEx (struct rdma_cm_join_mc_attr_ex). CompMask says which fields are valid; both must be.
type JoinMCAttr struct {
	CompMask  uint32
	JoinFlags JoinFlags
	Addr      netip.AddrPort
}

// group is a multicast group that an ID is in.
type group struct {
	acks     acks
	addr     netip.Addr
	sendOnly bool
	context  any
	attached bool
}

// JoinMulticast joins a group (rdma_join_multicast). The ID is one of datagrams and bound to a device. What comes of it is
// EventMulticastJoin, whose UD tells how to send to the group, or EventMulticastError. The ID's QP, if it
// has one, is attached to the group when the program retrieves the event; only then messages arrive, and the network learns of the
// new member (IGMP, MLD). Without a QP the program attaches its own. context comes back in UD.Context.
//
// EINVAL for an address that is no group of the ID's family, for an ID that is connected or not bound to a device, and for
// a group that it is in.
func (id *ID) JoinMulticast(c context.Context, addr netip.AddrPort, context any) error {
	return id.join(c, "join_multicast", addr, JoinFullMember, context)
}

// JoinMulticastEx is JoinMulticast with flags (rdma_join_multicast_ex). EOPNOTSUPP for unknown attributes, EINVAL for missing ones
// and unknown flags.
func (id *ID) JoinMulticastEx(c context.Context, attr *JoinMCAttr, context any) error {
	const op = "join_multicast_ex"
	switch {
	case attr == nil || attr.CompMask&JoinMCAttrAddress == 0 || attr.CompMask&JoinMCAttrJoinFlags == 0:
		return id.wrong(op, syscall.EINVAL, "address and join flags must be given")
	case attr.CompMask > JoinMCAttrAddress|JoinMCAttrJoinFlags:
		return id.wrong(op, syscall.EOPNOTSUPP, "unknown attributes %#x", attr.CompMask)
	case attr.JoinFlags > JoinSendOnlyFullMember:
		return id.wrong(op, syscall.EINVAL, "join flags %d; there are 0, full member, and 1, which only sends", attr.JoinFlags)
	}
	return id.join(c, op, attr.Addr, attr.JoinFlags, context)
}

func (id *ID) join(c context.Context, op string, addr netip.AddrPort, flags JoinFlags, context any) error {
	id.mu.Lock()
	if err := id.startJoin(op, addr.Addr().Unmap().WithZone(""), flags, context); err != nil {
		id.mu.Unlock()
		return err
	}
	id.mu.Unlock()
	return id.complete(c, op)
}

func (id *ID) startJoin(op string, ip netip.Addr, flags JoinFlags, context any) error {
	if err := id.in(op, stAddrBound, stAddrResolved); err != nil {
		return err
	}
	switch {
	case id.qpType != verbs.QPTypeUD:
		return id.fail(op, syscall.EINVAL, "a connected ID has no multicast")
	case id.dev == nil:
		return id.fail(op, syscall.EINVAL, "the ID is not bound to a device; BindAddr with a local address or ResolveAddr does that")
	case !ip.IsMulticast() || ip.Is4() != id.local.Addr().Is4():
		return id.fail(op, syscall.EINVAL, "%v is not a multicast group of the family of %v", ip, id.local.Addr())
	case id.groups[ip] != nil:
		return id.fail(op, syscall.EINVAL, "the ID is in group %v already", ip)
	}
	g := &group{addr: ip, sendOnly: flags == JoinSendOnlyFullMember, context: context}
	if id.groups == nil {
		id.groups = map[netip.Addr]*group{}
	}
	id.groups[ip] = g
	id.push(&Event{Type: EventMulticastJoin, group: g, UD: UDParam{
		AHAttr: id.ahAttr(verbs.GIDFromAddr(ip)), QPNum: MulticastQPN, QKey: UDPQKey, Context: context,
	}})
	return nil
}

// attach attaches the QP to the group that the event tells of. If that fails the event tells so instead.
func (ev *Event) attach() {
	id, g := ev.ID, ev.group
	id.mu.Lock()
	defer id.mu.Unlock()
	if g.sendOnly || id.qp == nil || id.groups[g.addr] != g {
		return
	}
	if err := id.qp.AttachMcast(verbs.GIDFromAddr(g.addr), 0); err != nil {
		delete(id.groups, g.addr)
		ev.Type, ev.Status, ev.cause = EventMulticastError, -int(errnoOf(err)), err
		return
	}
	g.attached = true
}

// LeaveMulticast leaves a group (rdma_leave_multicast): the QP is detached, a join under way is cancelled. It blocks until the events
// of the group that the program got are acknowledged. Messages that came before may still be in the CQ. EADDRNOTAVAIL if the
// ID is not in the group.
func (id *ID) LeaveMulticast(addr netip.AddrPort) error {
	const op = "leave_multicast"
	ip := addr.Addr().Unmap().WithZone("")
	id.mu.Lock()
	g := id.groups[ip]
	if !ip.IsMulticast() || g == nil {
		defer id.mu.Unlock()
		if !ip.IsMulticast() {
			return id.fail(op, syscall.EINVAL, "%v is not a multicast group", ip)
		}
		return id.fail(op, syscall.EADDRNOTAVAIL, "the ID is not in group %v", ip)
	}
	err := id.because(op, id.leave(g))
	if id.event != nil && id.event.group == g {
		id.dropEvent()
	}
	ch := id.ch
	id.mu.Unlock()
	ch.purge(func(ev *Event) bool { return ev.group == g })
	g.acks.wait()
	return err
}

func (id *ID) leave(g *group) error {
	delete(id.groups, g.addr)
	if !g.attached {
		return nil
	}
	g.attached = false
	return id.qp.DetachMcast(verbs.GIDFromAddr(g.addr), 0)
}

// leaveGroups leaves all groups. id.mu is held.
func (id *ID) leaveGroups() {
	for _, g := range id.groups {
		_ = id.leave(g)
	}
}
