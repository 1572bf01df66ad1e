package mem

import (
	"slices"
	"sync"

	"github.com/verbena-rdma/verbena/internal/link"
)

// rawMTU is the longest Ethernet frame on a fabric: that of jumbo frames.
const rawMTU = 9000 + 14

// hub carries the Ethernet frames of a fabric: each goes to every other port, as on a hub, and at once, by the sender's
// goroutine. No fault happens to them, and they have nothing to do with the packets of links.
type hub struct {
	mu    sync.Mutex
	ports []*rawPort
}

type rawPort struct {
	hub     *hub
	receive func(frame []byte, verified bool)
}

// OpenRaw opens a port for Ethernet frames. Every frame that another such port sends comes to it, before Send returns.
func (f *Fabric) OpenRaw() (link.Raw, error) {
	p := &rawPort{hub: &f.hub}
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	f.hub.ports = append(f.hub.ports, p)
	return p, nil
}

// InjectRaw sends a frame to all ports, as if another machine had sent it.
func (f *Fabric) InjectRaw(frame []byte) { f.hub.send(nil, frame) }

func (h *hub) send(from *rawPort, frame []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.ports {
		if p != from && p.receive != nil {
			p.receive(frame, false)
		}
	}
}

func (p *rawPort) Start(receive func(frame []byte, verified bool)) {
	p.hub.mu.Lock()
	defer p.hub.mu.Unlock()
	p.receive = receive
}

func (p *rawPort) Send(frame []byte) error {
	p.hub.send(p, frame)
	return nil
}

func (*rawPort) MTU() int { return rawMTU }

func (p *rawPort) Close() error {
	p.hub.mu.Lock()
	defer p.hub.mu.Unlock()
	p.hub.ports = slices.DeleteFunc(p.hub.ports, func(o *rawPort) bool { return o == p })
	return nil
}
