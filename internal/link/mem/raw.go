package mem

import (
	"slices"
	"sync"

	"github.com/verbena-rdma/verbena/internal/link"
)

// rawMTU is the longest Ethernet frame on a fabric, a jumbo frame.
const rawMTU = 9000 + 14

// hub carries the Ethernet frames of a fabric: the sender's goroutine delivers each to all other ports at once. It
// injects no faults, and is independent of the packets of links.
type hub struct {
	mu sync.Mutex
	// +checklocks:mu
	ports []*rawPort
}

type rawPort struct {
	hub     *hub
	receive func(frame []byte, verified bool)
}

// OpenRaw opens a port for Ethernet frames. It receives every frame of the other such ports, before their Send
// returns.
func (f *Fabric) OpenRaw() (link.Raw, error) {
	p := &rawPort{hub: &f.hub}
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	f.hub.ports = append(f.hub.ports, p)
	return p, nil
}

// InjectRaw sends a frame to all ports, as from another machine.
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
