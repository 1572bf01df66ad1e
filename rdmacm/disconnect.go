package rdmacm

import (
	"context"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/seam"
	"github.com/verbena-rdma/verbena/verbs"
)

// Disconnect ends the connection, or agrees when the peer has ended it (rdma_disconnect). The ID's QP goes to ERR, so
// its requests are flushed. The side that begins gets EventDisconnected when the peer has agreed, which is when its
// program calls Disconnect or Close, or with -ETIMEDOUT when it never does or the system says that nothing arrives
// there. Both sides should call it. Repeating it does no harm. EINVAL if there never was a connection.
func (id *ID) Disconnect(ctx context.Context) error {
	const op = "disconnect"
	id.mu.Lock()
	wait, err := id.disconnect(op)
	id.mu.Unlock()
	if err != nil || !wait {
		return err
	}
	return id.complete(ctx, op)
}

// disconnect moves the QP to ERR and sends the DREQ or DREP. It reports whether EventDisconnected is still to come or
// to be read.
//
// +checklocks:id.mu
func (id *ID) disconnect(op string) (wait bool, err error) {
	if err := id.connected(op); err != nil {
		return false, err
	}
	switch {
	case id.dev.streams:
		return id.disconnectStream(op)
	case id.dev.kernel:
		return id.disconnectByKernel(op)
	}
	if err := id.dev.cm.disconnectable(id.cmid); err != nil {
		return false, id.fail(op, syscall.EINVAL, "%v", err)
	}
	wait = !id.conn.over() || id.unread(EventDisconnected)
	id.failQP(id.endedBy())
	if err = id.dev.cm.disconnect(id.cmid); err == nil && id.waitsFor(id.cmid) {
		id.watchReach(id.cmid)
	}
	return wait, id.because(op, err)
}

// endedBy says who has ended the connection, when Disconnect is called.
//
// +checklocks:id.mu
func (id *ID) endedBy() string {
	switch id.conn {
	case connPeerLeft:
		return peerLeft
	case connSilent:
		return peerSilent
	}
	return "this side called Disconnect"
}

// peerLeft is the clause for a connection that the peer has ended.
const peerLeft = "the peer has disconnected"

// peerSilent is the clause for a connection whose peer does not answer keep-alive.
const peerSilent = "the peer does not answer keep-alive"

// connected checks that the ID has a connection, or has begun to make one.
//
// +checklocks:id.mu
func (id *ID) connected(op string) error {
	if err := id.in(op, stConnect, stDisconnect); err != nil {
		return err
	}
	if !id.hasConnection() || id.qpType == verbs.QPTypeUD {
		return id.fail(op, syscall.EINVAL, "must be an ID with a connection")
	}
	return nil
}

// unread reports whether an event of that type waits in the ID's channel.
//
// +checklocks:id.mu
func (id *ID) unread(t EventType) bool {
	id.ch.mu.Lock()
	defer id.ch.mu.Unlock()
	for _, ev := range id.ch.queue {
		if ev.owner == id && ev.Type == t {
			return true
		}
	}
	return false
}

// onDREQ takes the peer's DREQ. If that comes before the RTU, which is lost or late, it says what the RTU would: only a
// peer with the reply sends it. Accept of a synchronous ID waits for that, and would take the DREQ for its result.
//
// +checklocks:id.mu
func (id *ID) onDREQ() {
	if id.conn == connAccepted {
		id.onEstablished()
	}
	id.onPeerLeft()
}

// onPeerLeft takes the end of the connection by the peer.
//
// +checklocks:id.mu
func (id *ID) onPeerLeft() {
	if !id.step(inDREQ) {
		return
	}
	id.state = stDisconnect
	id.push(&Event{Type: EventDisconnected})
}

// onSilent takes the failure of keep-alive. Disconnect still sends a DREQ, in case the peer only
// did not answer in time.
//
// +checklocks:id.mu
func (id *ID) onSilent() {
	if id.step(inSilent) {
		id.state = stDisconnect
		id.push(&Event{Type: EventDisconnected, Status: -int(syscall.ETIMEDOUT)})
	}
}

// onDisconnected takes the peer's DREP, or the end of waiting for it.
//
// +checklocks:id.mu
func (id *ID) onDisconnected(status int) {
	id.endWatch()
	if id.step(inDREP) {
		id.state = stDisconnect
		ev := &Event{Type: EventDisconnected, Status: status}
		if status != 0 {
			ev.cause = id.unreachable
		}
		id.push(ev)
	}
}

// whileConnected is a context that ends with ctx and with the connection; over reports whether that has ended. Requests
// that were flushed before have completed by then: those of a peer that has died, and of Disconnect. The caller calls
// forget.
func (id *ID) whileConnected(ctx context.Context) (here context.Context, forget func(), over bool) {
	here, cancel := context.WithCancel(ctx)
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.conn.over() || id.flushed || id.failed != 0 || id.state == stRemoved || id.state == stDestroying {
		cancel()
		return here, cancel, true
	}
	if id.waiting == nil {
		id.waiting = map[*context.CancelFunc]struct{}{}
	}
	id.waiting[&cancel] = struct{}{}
	return here, func() {
		id.mu.Lock()
		delete(id.waiting, &cancel)
		id.mu.Unlock()
		cancel()
	}, false
}

// watchQP ends the waits for completions when the QP fails, since none may come: a server without posted receives does
// not learn otherwise that a bad request of its client has moved its QP to ERR.
//
// +checklocks:id.mu
func (id *ID) watchQP(qp *verbs.QP) {
	id.failed = 0
	id.fault.Store(0)
	if !id.sync {
		return
	}
	m := id.dev.cm
	seam.WatchQP(qp, &id.fault, func(event uint32) { id.onQPFailed(m, qp, verbs.EventType(event)) })
}

// onQPFailed ends the waits for completions because of an event of the QP. If the manager m knows a reason, such as a
// peer that does not answer keep-alive, it reports that first. m is nil for a device without one.
func (id *ID) onQPFailed(m *manager, qp *verbs.QP, event verbs.EventType) {
	_, _, _ = qp.Query(verbs.QPAttrState) // afterwards the completions of flushed requests are in the CQs
	if m != nil {
		m.settle()
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.qp == qp {
		id.failed = event
		id.endWaits()
	}
}

// Notify passes on an asynchronous event of the ID's QP (rdma_notify): verbs.EventCommEst, data arrived before the RTU,
// establishes the connection. verbs.EventPathMig is accepted and has no effect. EISCONN if the connection was
// established already, which the program can ignore. EINVAL for other events, or while there is nothing to establish.
func (id *ID) Notify(event verbs.EventType) error {
	const op = "notify"
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.connected(op); err != nil {
		return err
	}
	switch event {
	case verbs.EventPathMig:
		return nil
	case verbs.EventCommEst:
		switch {
		case id.dev.streams:
			return nil
		case id.dev.kernel:
			return id.because(op, id.byKernel.Notify(id.kernelID, event))
		}
		return id.because(op, id.dev.cm.notify(id.cmid))
	}
	return id.fail(op, syscall.EINVAL, "event %v: must be %v or %v", event, verbs.EventCommEst, verbs.EventPathMig)
}
