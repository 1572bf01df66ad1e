package umad

import (
	"bytes"
	"context"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/verbs"
)

// receive is the goroutine of the port: it dispatches datagrams until ctx ends.
func (s *share) receive(ctx context.Context) {
	defer close(s.stopped)
	wcs := make([]verbs.WC, 64)
	var r Received
	for {
		if _, err := s.ch.GetEvent(ctx); err != nil {
			return
		}
		s.recvCQ.AckEvents(1)
		if err := s.recvCQ.ReqNotify(false); err != nil {
			return
		}
		for {
			n, err := s.recvCQ.Poll(wcs)
			if n == 0 || err != nil {
				break
			}
			for i := range wcs[:n] {
				s.take(&wcs[i], &r)
			}
		}
	}
}

// take dispatches one datagram and posts its buffer again.
func (s *share) take(wc *verbs.WC, r *Received) {
	if wc.Status != verbs.WCSuccess {
		return // the QP is being destroyed
	}
	s.received.Add(1)
	buf := s.buf[wc.WRID*recvSize:][:min(wc.ByteLen, recvSize)]
	if grh, mad, ok := split(buf); ok {
		*r = Received{MAD: mad, From: Address{
			Local: grh.DstIP(), Remote: grh.SrcIP(), QPN: wc.SrcQP, TClass: grh.TClass(), HopLimit: grh.HopLimit(),
			FlowLabel: grh.FlowLabel(), PKeyIndex: wc.PKeyIndex,
		}}
		s.dispatch(r)
	} else {
		s.malformed.Add(1)
	}
	_ = s.postRecv(wc.WRID) // fails only if the QP is being destroyed
}

// split returns the GRH and the MAD of a receive buffer. ok is false if they are invalid.
func split(buf []byte) (wire.GRH, MAD, bool) {
	if len(buf) < wire.GRHLen {
		return nil, nil, false
	}
	grh := wire.GRH(buf[:wire.GRHLen])
	mad, err := Parse(buf[wire.GRHLen:])
	return grh, mad, err == nil && grh.SrcIP().IsValid() && grh.DstIP().IsValid()
}

// dispatch passes a datagram to its agent.
func (s *share) dispatch(r *Received) {
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
		if !a.takes(r.MAD) {
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

func (r *Received) clone() *Received { return &Received{MAD: bytes.Clone(r.MAD), From: r.From} }
