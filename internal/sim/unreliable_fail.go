package sim

import (
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// sendBad posts a request whose local memory is not registered. It must fail and move the QP to SQE, in which all
// posted requests are flushed, and nothing arrives.
func (p *plainPair) sendBad() error {
	if len(p.pending) > 0 {
		return nil
	}
	p.nextID++
	p.bad = p.nextID
	p.pending = append(p.pending, plainSend{id: p.bad, msg: -1})
	p.w.tally.Faults[badLKey]++
	p.w.note(p.name, "bad lkey", p.bad)
	sge := p.srcMR.SGE(0, 1+p.w.rand.IntN(p.longest))
	sge.LKey ^= 0x5a5a5a5a
	wr := verbs.SendWR{WRID: p.bad, Opcode: verbs.WRSend, SGList: []verbs.SGE{sge}}
	if p.ud {
		wr.AH, wr.RemoteQPN, wr.RemoteQKey = p.ah, p.toInfo.QPN, p.toInfo.QKey
	}
	return p.from.PostSend(wr)
}

// sendCompleted checks a send completion: completions are in order and succeed, except for the bad request and those
// behind it.
func (p *plainPair) sendCompleted(wc *verbs.WC) error {
	if len(p.pending) == 0 || p.pending[0].id != wc.WRID {
		return fmt.Errorf("%s: completion of request %d, outstanding are %v", p.name, wc.WRID, p.pending)
	}
	s := p.pending[0]
	p.pending = p.pending[1:]
	want := verbs.WCSuccess
	switch {
	case s.id == p.bad:
		want, p.sqe = verbs.WCLocProtErr, true
	case p.sqe:
		want = verbs.WCWRFlushErr
		if s.msg >= 0 {
			p.sent[s.msg] = nil // must not arrive
		} else {
			clear(p.target[s.at : s.at+s.n])
		}
	}
	if wc.Status != want {
		return fmt.Errorf("%s: request %d completes with %v, want %v: %w", p.name, s.id, wc.Status, want, wc.Err())
	}
	return nil
}

// resume moves the QP from SQE to RTS.
func (p *plainPair) resume() error {
	state, err := stateOf(p.from)
	if err != nil {
		return err
	}
	if state != verbs.QPSSQE {
		return fmt.Errorf("%s: a request has failed, but the QP is in %v", p.name, state)
	}
	p.sqe, p.bad = false, 0
	p.w.tally.Drained++
	return p.from.Modify(&verbs.QPAttr{QPState: verbs.QPSRTS}, verbs.QPAttrState)
}
