package rsocket

import (
	"context"
	"sync"

	"github.com/verbena-rdma/verbena/rdmacm"
)

// hub hands the connection manager's events of a host to the sockets that they are for. It has one goroutine, which lives as long as
// there are sockets. What it calls does not block.
type hub struct {
	host  *rdmacm.Host
	ch    *rdmacm.EventChannel
	users int // guarded by hubs.mu
}

var hubs = struct {
	mu sync.Mutex
	of map[*rdmacm.Host]*hub
}{of: map[*rdmacm.Host]*hub{}}

// eventHandler is the Context of an ID on a hub's channel.
type eventHandler interface {
	// onEvent gets a copy of what the event told. The event is acknowledged already, so that it may close the ID.
	onEvent(ev *cmEvent)
}

// cmEvent is what matters of an rdmacm.Event.
type cmEvent struct {
	Type rdmacm.EventType
	Conn rdmacm.ConnParam
	Err  error
}

// joinHub finds or makes the hub of a host. The caller leaves it when its ID is closed.
func joinHub(h *rdmacm.Host) (*hub, error) {
	hubs.mu.Lock()
	defer hubs.mu.Unlock()
	b := hubs.of[h]
	if b == nil {
		ch, err := h.CreateEventChannel()
		if err != nil {
			return nil, err
		}
		b = &hub{host: h, ch: ch}
		hubs.of[h] = b
		go b.run()
	}
	b.users++
	return b, nil
}

func (b *hub) join() {
	hubs.mu.Lock()
	defer hubs.mu.Unlock()
	b.users++
}

func (b *hub) leave() {
	hubs.mu.Lock()
	defer hubs.mu.Unlock()
	if b.users--; b.users > 0 {
		return
	}
	if hubs.of[b.host] == b {
		delete(hubs.of, b.host)
	}
	_ = b.ch.Close()
}

func (b *hub) run() {
	for {
		ev, err := b.ch.GetEvent(context.Background())
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
