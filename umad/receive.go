package umad

import (
	"bytes"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// split returns the GRH and the MAD of a receive buffer. ok is false if they are invalid.
func split(buf []byte) (wire.GRH, MAD, bool) {
	if len(buf) < wire.GRHLen {
		return nil, nil, false
	}
	grh := wire.GRH(buf[:wire.GRHLen])
	mad, err := Parse(buf[wire.GRHLen:])
	return grh, mad, err == nil && grh.SrcIP().IsValid() && grh.DstIP().IsValid()
}

// dispatch passes a datagram to its agent. port tells the port at which it has arrived, 0 if the port has lost the
// address meanwhile.
func (s *share) dispatch(r *Received, port func() uint8) {
	if r.MAD.IsResponse() {
		s.answer(r)
		return
	}
	s.busy.RLock()
	defer s.busy.RUnlock()
	s.mu.Lock()
	agents := s.agents
	s.mu.Unlock()
	for _, a := range agents {
		if !a.takes(r.MAD) || a.reg.PortNum != 0 && a.reg.PortNum != port() {
			continue
		}
		if a.reg.Handler != nil {
			a.reg.Handler(r)
			return
		}
		select {
		case a.queue <- r.clone():
		default:
			s.queueFull.Add(1)
		}
		return
	}
	s.unclaimed.Add(1)
}

// answer passes an answer to the Call that waits for it.
func (s *share) answer(r *Received) {
	s.mu.Lock()
	q, asked := s.pending[r.MAD.TID()]
	ours := asked && q.class == r.MAD.Class() && q.to == r.From.Remote.Unmap()
	if ours {
		delete(s.pending, r.MAD.TID())
	}
	s.mu.Unlock()
	switch {
	case ours:
		q.answer <- r.clone() // has room for one
	case asked:
		s.spoofed.Add(1)
	default:
		s.unclaimed.Add(1)
	}
}

// unanswered tells the Call of a request that no answer has come.
func (s *share) unanswered(tid uint64) {
	s.mu.Lock()
	q, asked := s.pending[tid]
	delete(s.pending, tid)
	s.mu.Unlock()
	if asked {
		q.answer <- nil
	}
}

func (r *Received) clone() *Received { return &Received{MAD: bytes.Clone(r.MAD), From: r.From} }
