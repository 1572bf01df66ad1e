package rdmacm

import "syscall"

// Migrate moves the ID and its events that were not retrieved to another channel, or makes it synchronous if ch is
// nil (rdma_migrate_id). The new IDs of requests that were not retrieved move along. It blocks while retrieved events
// of the ID are not acknowledged, also events that are retrieved meanwhile. EINVAL if the ID is synchronous already,
// also if another Migrate has made it so meanwhile, for a channel of another host or a closed one, and if the ID is
// closed meanwhile.
func (id *ID) Migrate(ch *EventChannel) error {
	const op = "migrate_id"
	id.mu.Lock()
	defer id.mu.Unlock()
	for {
		if err := id.migratable(op, ch); err != nil {
			return err
		}
		id.dropEvent()
		to := ch
		if to == nil {
			to = newChannel(id.host)
		}
		if !to.join(id) {
			return ch.errClosed(op)
		}
		if events, ok := id.ch.release(id, to); ok {
			id.moveTo(to, ch == nil, events)
			return nil
		}
		// An event is not acknowledged. Everything is checked again afterwards: other calls run while the
		// lock is free.
		if to != id.ch {
			to.leave(id)
		}
		id.mu.Unlock()
		id.acks.wait()
		id.mu.Lock()
	}
}

// migratable checks that the ID can move to the channel.
//
// +checklocks:id.mu
func (id *ID) migratable(op string, ch *EventChannel) error {
	switch {
	case id.state == stDestroying:
		return id.errClosed(op)
	case ch == nil && id.sync:
		return id.fail(op, syscall.EINVAL, "the ID is synchronous already")
	case ch != nil && ch.host != id.host:
		return id.fail(op, syscall.EINVAL, "the channel is another host's: must be one of the ID's host")
	}
	return nil
}

// moveTo makes ch the ID's channel, which the ID has joined, and moves its events there. A synchronous ID's channel
// is its own, and is closed when the ID leaves it.
//
// +checklocks:id.mu
func (id *ID) moveTo(ch *EventChannel, sync bool, events []*Event) {
	old, own := id.ch, id.sync
	id.ch, id.sync = ch, sync
	for _, ev := range events {
		if ev.Type == EventConnectRequest {
			ev.ID.follow(id, ev)
		} else {
			ch.push(ev)
		}
	}
	if own && old != ch {
		_ = old.Close()
	}
}

// follow moves the new ID of a request to the channel of its listener l, or to one of its own if l is synchronous.
// The program has not seen the ID yet, so none of its events is retrieved.
//
// +checklocks:l.mu
func (id *ID) follow(l *ID, request *Event) {
	id.mu.Lock()
	defer id.mu.Unlock()
	to := l.ch
	if l.sync {
		to = newChannel(id.host)
	}
	moved := id.state != stDestroying && to.join(id)
	l.ch.push(request)
	if !moved {
		return
	}
	if events, ok := id.ch.release(id, to); ok {
		id.moveTo(to, l.sync, events)
	}
}
