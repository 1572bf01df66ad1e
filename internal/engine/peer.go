package engine

import (
	"net/netip"

	"github.com/verbena-rdma/verbena/internal/transport"
)

// RC has no byte window, and packets that overflow a socket buffer are lost silently. The QPs of a shard that send to
// one peer share a budget of half the receive buffer; the kernel's metadata takes the rest (see transport.Budget).
// The peer's buffer is assumed to be as large as ours.

// peer is an address that QPs of a shard are connected to.
type peer struct {
	budget transport.Budget
	users  int
}

// setPeer makes qp share the budget of its peer, unless the peer is near, that is in a process of this host reached
// through shared memory: that link applies back-pressure itself. s is held.
func (s *shard) setPeer(qp *QP, addr netip.Addr, near bool) {
	if qp.peer == addr && !near {
		return
	}
	s.dropPeer(qp)
	if s.eng.window == 0 {
		return
	}
	if near {
		qp.QP.SetWindow(s.eng.window, nil)
		return
	}
	p := s.peers[addr]
	if p == nil {
		p = &peer{budget: transport.Budget{Limit: s.eng.window}}
		s.peers[addr] = p
	}
	p.users++
	qp.peer = addr
	qp.QP.SetWindow(s.eng.window, &p.budget)
}

// dropPeer removes qp from the budget of its peer. s is held.
func (s *shard) dropPeer(qp *QP) {
	p := s.peers[qp.peer]
	if p == nil {
		return
	}
	qp.QP.SetWindow(0, nil)
	if p.users--; p.users == 0 {
		delete(s.peers, qp.peer)
	}
	qp.peer = netip.Addr{}
}
