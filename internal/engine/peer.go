package engine

import (
	"net/netip"

	"github.com/verbena-rdma/verbena/internal/transport"
)

// RC has no window of bytes, and what a full socket buffer does not take is lost in silence. The QPs of a shard
// that send to one peer share a budget of half the receive buffer, which the rest is for
// the kernel's bookkeeping (see transport.Budget). The peer's buffer is taken to be as large as ours.

// peer is an address that QPs of a shard are connected to.
type peer struct {
	budget transport.Budget
	users  int
}

// setPeer makes qp share the budget of its peer, unless that is near: then the link itself holds back what its
// receiver has no room for. s is held.
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

// dropPeer takes qp out of the budget of its peer. s is held.
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

// windowOf is the budget for a peer over a link that has receive buffers, else 0.
func windowOf(l any) int {
	if b, ok := l.(interface{ RecvBuffer() int }); ok {
		return b.RecvBuffer() / 2
	}
	return 0
}
