package rdmacm

import (
	"context"
	"errors"
	"net/netip"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// JoinFlags are the rights of a member of a multicast group (enum rdma_cm_join_mc_attr_flags).
type JoinFlags uint32

// The join flags (RDMA_MC_JOIN_FLAG_*).
const (
	JoinFullMember         JoinFlags = 0 // sends and receives
	JoinSendOnlyFullMember JoinFlags = 1 // only sends: no IGMP or MLD report, and the QP is not attached
)

// The attributes that a JoinMCAttr has (RDMA_CM_JOIN_MC_ATTR_*).
const (
	JoinMCAttrAddress   = 1
	JoinMCAttrJoinFlags = 2
)

// JoinMCAttr are the parameters of JoinMulticastEx (struct rdma_cm_join_mc_attr_ex). CompMask names the valid fields;
// both must be valid.
type JoinMCAttr struct {
	CompMask  uint32
	JoinFlags JoinFlags
	Addr      netip.AddrPort
}

// group is a multicast group that an ID has joined.
type group struct {
	acks     acks
	addr     netip.Addr
	sendOnly bool
	context  any
	attached bool
	gid      verbs.GID
	mlid     uint16 // InfiniBand only
	uid      uint64 // of the kernel's events; 0 for a software device
	kernelID uint32
}

// JoinMulticast joins a group (rdma_join_multicast). The ID is for datagrams and bound to a device. The result is
// EventMulticastJoin, whose UD has the address, QP number and Q_Key of the group, or EventMulticastError. The ID's
// QP, if it has one, is attached to the group when the program retrieves the event; only then messages arrive, and
// the network learns of the new member (IGMP, MLD). The port of addr is not used. Without a QP the program attaches its
// own. userContext comes back in UD.Context. Messages go to a group through an address handle of UD.AHAttr, with
// UD.QPNum and UD.QKey. The QP also receives those that it sends itself, unless it was created with
// verbs.QPCreateBlockSelfMcastLB.
//
// EINVAL for an address that is not a group of the ID's family, for an ID that is connected or not bound to a device,
// and for a group that the ID has joined already.
func (id *ID) JoinMulticast(ctx context.Context, addr netip.AddrPort, userContext any) error {
	return id.join(ctx, "join_multicast", addr, JoinFullMember, userContext)
}

// JoinMulticastEx is JoinMulticast with flags (rdma_join_multicast_ex). EOPNOTSUPP for unknown attributes, EINVAL for
// missing ones and unknown flags.
func (id *ID) JoinMulticastEx(ctx context.Context, attr *JoinMCAttr, userContext any) error {
	const op = "join_multicast_ex"
	switch {
	case attr != nil && attr.CompMask&^(JoinMCAttrAddress|JoinMCAttrJoinFlags) != 0:
		return id.wrong(op, syscall.EOPNOTSUPP, "unknown attributes %#x", attr.CompMask)
	case attr == nil || attr.CompMask != JoinMCAttrAddress|JoinMCAttrJoinFlags:
		return id.wrong(op, syscall.EINVAL, "CompMask without address or join flags: must have both")
	case attr.JoinFlags > JoinSendOnlyFullMember:
		return id.wrong(op, syscall.EINVAL, "join flags %d: must be 0 (full member) or 1 (only sends)",
			attr.JoinFlags)
	}
	return id.join(ctx, op, attr.Addr, attr.JoinFlags, userContext)
}

func (id *ID) join(ctx context.Context, op string, addr netip.AddrPort, flags JoinFlags, userContext any) error {
	id.mu.Lock()
	id.forgetErrors()
	if err := id.startJoin(op, addr.Addr().Unmap().WithZone(""), flags, userContext); err != nil {
		id.mu.Unlock()
		return err
	}
	id.mu.Unlock()
	return id.complete(ctx, op)
}

// startJoin checks the parameters and reports EventMulticastJoin.
//
// +checklocks:id.mu
func (id *ID) startJoin(op string, ip netip.Addr, flags JoinFlags, userContext any) error {
	if err := id.in(op, stAddrBound, stAddrResolved); err != nil {
		return err
	}
	switch {
	case id.qpType != verbs.QPTypeUD:
		return id.fail(op, syscall.EINVAL, "the ID is for connections: must be a datagram ID")
	case id.dev == nil:
		return id.fail(op, syscall.EINVAL,
			"the ID is not bound to a device: call BindAddr with a local address or ResolveAddr first")
	case !ip.IsMulticast() || ip.Is4() != id.local.Addr().Is4():
		return id.fail(op, syscall.EINVAL, "%v: must be a multicast address of the family of %v", ip, id.local.Addr())
	case id.groups[ip] != nil:
		return id.fail(op, syscall.EINVAL, "the ID is in group %v already", ip)
	}
	g := &group{addr: ip, gid: verbs.GIDFromAddr(ip), sendOnly: flags == JoinSendOnlyFullMember, context: userContext}
	if id.groups == nil {
		id.groups = map[netip.Addr]*group{}
	}
	if id.dev.kernel {
		if err := id.joinByKernel(op, g); err != nil {
			return err
		}
		id.groups[ip] = g
		return nil
	}
	id.groups[ip] = g
	id.push(&Event{Type: EventMulticastJoin, group: g, UD: UDParam{
		AHAttr: id.ahAttr(verbs.GIDFromAddr(ip)), QPNum: MulticastQPN, QKey: UDPQKey, Context: userContext,
	}})
	return nil
}

// LeaveMulticast leaves a group (rdma_leave_multicast): it detaches the QP, or cancels a join that is not finished. It
// blocks until the program has acknowledged the events of the group that it has retrieved. Messages that arrived before
// may still be in the CQ. EINVAL for an address that is not a group, EADDRNOTAVAIL if the ID is not in the group.
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

// leave detaches the QP from a group and forgets the group.
//
// +checklocks:id.mu
func (id *ID) leave(g *group) error {
	delete(id.groups, g.addr)
	var err error
	if g.attached {
		err = id.qp.DetachMcast(g.gid, g.mlid)
	}
	return errors.Join(err, id.leaveByKernel(g))
}

// leaveGroups leaves all groups.
//
// +checklocks:id.mu
func (id *ID) leaveGroups() {
	for _, g := range id.groups {
		_ = id.leave(g)
	}
}

// ahAttr is the path to a GID from the ID's address.
//
// +checklocks:id.mu
func (id *ID) ahAttr(to verbs.GID) verbs.AHAttr {
	return verbs.AHAttr{IsGlobal: true, PortNum: id.sgid.port, GRH: verbs.GlobalRoute{
		DGID: to, SGIDIndex: id.sgid.index, HopLimit: defaultHopLimit, TrafficClass: id.tos, FlowLabel: id.path.FlowLabel,
	}}
}
