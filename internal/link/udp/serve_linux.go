package udp

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/host"
	"github.com/verbena-rdma/verbena/internal/link"
)

// A Server is the leader at the addresses of a device for processes of several users. It has no QP numbers of its
// own.
type Server struct {
	link  *Link
	hosts []*host.Server
	ended atomic.Bool
	done  sync.WaitGroup
}

// Serve opens all sockets of the addresses. The process may change its user before Start.
func Serve(cfg Config, with host.Sharing) (_ *Server, err error) {
	cfg.Ports, cfg.Shared = 1, true
	cfg, ifi, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	l := &Link{cfg: cfg, serves: true, loopback: ifi.Flags&net.FlagLoopback != 0, groups: map[netip.Addr]int{}}
	l.ifi.Store(ifi)
	// An adapter that merges packets can merge those for several members, and no member may see packets of
	// another.
	l.gro.Store(!cfg.NoGRO && trustGRO() && l.loopback)
	s := &Server{link: l}
	defer func() {
		if err != nil {
			_ = s.Close()
		}
	}()
	p, err := newPort(l, 0)
	if err != nil {
		return nil, err
	}
	l.ports = []*port{p}
	l.mail.port.Store(p)
	for _, a := range cfg.Addrs {
		hc := l.hostConfig(a)
		var h *host.Server
		hc.Lead = func(gsi, strays int) error { return l.lead(h, a, gsi, strays) }
		if h, err = host.Serve(KeyOf(cfg.Port, a, ifi.Index), hc, with); err != nil {
			return nil, err
		}
		s.hosts = append(s.hosts, h)
		tx, err := l.openSend(a, 0)
		if err != nil {
			return nil, err
		}
		p.addSend(tx)
	}
	return s, nil
}

// Start starts serving.
func (s *Server) Start() error {
	for _, h := range s.hosts {
		if err := h.Start(); err != nil {
			return err
		}
	}
	s.done.Go(func() {
		p := s.link.ports[0]
		for b := new(link.RxBatch); !s.ended.Load(); p.Wait(-1) {
			p.Recv(b) // the remaining packets have no destination
		}
	})
	return nil
}

// Close ends serving, and the connections of the members.
func (s *Server) Close() error {
	for _, h := range s.hosts {
		h.Stop()
	}
	s.ended.Store(true)
	for _, p := range s.link.ports {
		p.Wake()
	}
	s.done.Wait()
	for _, p := range s.link.ports {
		p.close()
	}
	for _, h := range s.hosts {
		h.Close()
	}
	return nil
}

// addSend takes over a transmit socket.
func (p *port) addSend(tx *txSocket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tx = append(p.tx, tx)
	p.sender.forget()
}
