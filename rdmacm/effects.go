package rdmacm

// Some events change something when the program retrieves them, and not before, as in librdmacm
// (docs/decisions/0034). All of that is here; what happens when a message arrives is in dispatch.go.
//
//	CONNECT_REQUEST          the request's place in the listener's backlog is free
//	REJECTED, DISCONNECTED   the ID's QP goes to ERR
//	MULTICAST_JOIN           the ID's QP is attached to the group; MULTICAST_ERROR if that fails

// takeEffect does what retrieving the event means. The caller holds no lock.
func (ev *Event) takeEffect() {
	switch ev.Type {
	case EventConnectRequest:
		ev.ID.onTaken()
	case EventRejected, EventDisconnected:
		ev.ID.flushQP(ev.Type)
	case EventMulticastJoin:
		ev.attach()
	}
}

// flushQP moves the ID's QP to ERR.
func (id *ID) flushQP(why EventType) {
	id.mu.Lock()
	defer id.mu.Unlock()
	if why == EventRejected {
		id.failQP("the peer has refused the connection")
	} else {
		id.failQP(id.endedBy())
	}
}

// attach attaches the QP to the group of the event. If that fails the event becomes MULTICAST_ERROR.
func (ev *Event) attach() {
	id, g := ev.ID, ev.group
	id.mu.Lock()
	defer id.mu.Unlock()
	if g.sendOnly || id.qp == nil || id.groups[g.addr] != g {
		return
	}
	if err := id.qp.AttachMcast(g.gid, g.mlid); err != nil {
		delete(id.groups, g.addr)
		ev.Type, ev.Status, ev.cause = EventMulticastError, -int(errnoOf(err)), err
		return
	}
	g.attached = true
}
