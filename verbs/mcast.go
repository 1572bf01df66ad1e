package verbs

// AttachMcast makes a UD QP receive the messages to a multicast group (ibv_attach_mcast). A second attach to the
// group has no effect. gid is the group's MGID: on RoCEv2 an IPv6 group, or an IPv4 group as ::ffff:a.b.c.d or
// ff0e::ffff:a.b.c.d. lid is the MLID, 0xc000 to 0xfffe; only InfiniBand uses it.
//
// Errors: EINVAL if the QP is not UD, gid is not a group, or on InfiniBand lid is out of range. ENOMEM beyond the
// device's limits. EOPNOTSUPP if the device has no multicast.
func (qp *QP) AttachMcast(gid GID, lid uint16) error {
	const op = "attach_mcast"
	qp.mu.Lock()
	defer qp.mu.Unlock()
	if err := qp.checkGroup(op, gid, lid); err != nil {
		return err
	}
	if _, ok := qp.groups[gid]; ok {
		return nil
	}
	if !qp.lifetime.use(kindGroup) {
		return errClosed(op, qp.obj())
	}
	if err := qp.drv.AttachMcast(gid, lid); err != nil {
		qp.lifetime.drop(kindGroup)
		return driverError(op, qp.obj(), err)
	}
	if qp.groups == nil {
		qp.groups = make(map[GID]struct{})
	}
	qp.groups[gid] = struct{}{}
	return nil
}

// DetachMcast stops the reception of a group's messages (ibv_detach_mcast). gid and lid are those of AttachMcast.
// Messages that arrived before may still be in the CQ. EINVAL if the QP is not attached to the group.
func (qp *QP) DetachMcast(gid GID, lid uint16) error {
	const op = "detach_mcast"
	qp.mu.Lock()
	defer qp.mu.Unlock()
	if err := qp.checkGroup(op, gid, lid); err != nil {
		return err
	}
	if _, ok := qp.groups[gid]; !ok {
		return newError(op, qp.obj(), EINVAL, "the QP is not attached to %v", gid)
	}
	if err := qp.drv.DetachMcast(gid, lid); err != nil {
		return driverError(op, qp.obj(), err)
	}
	delete(qp.groups, gid)
	qp.lifetime.drop(kindGroup)
	return nil
}

// forgetGroups ends the attachments of a QP of a removed device, which DetachMcast cannot end: no call of it succeeds.
//
// +checklocks:qp.mu
func (qp *QP) forgetGroups() {
	for range qp.groups {
		qp.lifetime.drop(kindGroup)
	}
	clear(qp.groups)
}

// +checklocks:qp.mu
func (qp *QP) checkGroup(op string, gid GID, lid uint16) error {
	switch {
	case qp.lifetime.closed.Load():
		return errClosed(op, qp.obj())
	case qp.ctx.isRemoved():
		return errRemoved(op, qp)
	case qp.init.Type != QPTypeUD:
		return newError(op, qp.obj(), EINVAL, "the QP type must be UD")
	case !gid.IsMulticast():
		return newError(op, qp.obj(), EINVAL, "GID %v: must be in ff00::/8 or ::ffff:224.0.0.0/100", gid)
	}
	port, err := qp.ctx.drv.QueryPort(max(1, qp.port))
	if err != nil {
		return driverError(op, qp.obj(), err)
	}
	if port.LinkLayer != LinkLayerEthernet && (lid < 0xc000 || lid == 0xffff) {
		return newError(op, qp.obj(), EINVAL, "LID 0x%04x: must be 0xc000 to 0xfffe on InfiniBand", lid)
	}
	return nil
}
