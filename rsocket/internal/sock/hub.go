package sock

import (
	"context"
	"sync"

	"github.com/verbena-rdma/verbena/rdmacm"
)

// Hub delivers the connection manager's events of a host to its sockets. It has one goroutine, which lives as long
// as the host has sockets. Event handlers do not block.
type Hub struct {
	Host    *rdmacm.Host
	Channel *rdmacm.EventChannel
	users   int // guarded by hubs.mu
}

var hubs = struct {
	mu sync.Mutex
	of map[*rdmacm.Host]*Hub
}{of: map[*rdmacm.Host]*Hub{}}

// eventHandler is the Context of an ID on a hub's channel.
type eventHandler interface {
	// onEvent gets a copy of the event. The event itself is acknowledged already, so that onEvent may close the ID.
	onEvent(ev *cmEvent)
}

// cmEvent has the fields of an rdmacm.Event that sockets use.
type cmEvent struct {
	Type rdmacm.EventType
	Conn rdmacm.ConnParam
	Err  error
}

// JoinHub returns the hub of a host, and makes it if necessary. The caller leaves it when its ID is closed.
func JoinHub(h *rdmacm.Host) *Hub {
	hubs.mu.Lock()
	defer hubs.mu.Unlock()
	b := hubs.of[h]
	if b == nil {
		b = &Hub{Host: h, Channel: NewChannel(h)}
		hubs.of[h] = b
		go b.run()
	}
	b.users++
	return b
}

// NewChannel makes a channel for the events of a host's IDs.
func NewChannel(h *rdmacm.Host) *rdmacm.EventChannel {
	ch, _ := h.CreateEventChannel() // the error is always nil
	return ch
}

// Join counts one more user.
func (b *Hub) Join() {
	hubs.mu.Lock()
	defer hubs.mu.Unlock()
	b.users++
}

// Leave counts one user less. The last one ends the hub.
func (b *Hub) Leave() {
	hubs.mu.Lock()
	defer hubs.mu.Unlock()
	if b.users--; b.users > 0 {
		return
	}
	if hubs.of[b.Host] == b {
		delete(hubs.of, b.Host)
	}
	_ = b.Channel.Close()
}

// run delivers events until the channel is closed.
func (b *Hub) run() {
	for {
		ev, err := b.Channel.GetEvent(context.Background())
		if err != nil {
			return // closed
		}
		h, _ := ev.ID.Context.(eventHandler)
		copied := &cmEvent{ev.Type, ev.Conn, ev.Err()}
		_ = ev.Ack()
		if h != nil {
			h.onEvent(copied)
		}
	}
}
