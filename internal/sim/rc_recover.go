package sim

import (
	"errors"
	"fmt"
	"os"

	"github.com/verbena-rdma/verbena/verbs"
)

// recover ends a failed connection, checks its requests, and makes another one if again is true and both nodes run.
// Otherwise the pair is over.
func (p *rcPair) recover(again bool) error {
	w := p.w
	for _, e := range p.ends {
		if err := e.finish(); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
	}
	for _, e := range p.ends {
		if err := e.checkFailed(); err != nil {
			return fmt.Errorf("%s: after a failure: %w", e.name, err)
		}
	}
	if !again {
		w.tally.Recovered++
		p.over = true
		return nil
	}
	if p.ends[0].node.dead || p.ends[1].node.dead {
		return nil // a node may restart
	}
	w.tally.Recovered++
	for _, e := range p.ends {
		if err := e.renew(); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
	}
	w.tally.Reconnected++
	p.again = true
	return p.connect()
}

// finish moves the end to ERR, if it is not there yet, and polls all completions.
func (e *rcEnd) finish() error {
	if e.gone {
		return nil
	}
	state, err := stateOf(e.qp)
	if err != nil {
		return err
	}
	if e.failed && state != verbs.QPSErr {
		return fmt.Errorf("a request has failed, but the QP is in %v", state)
	}
	if state == verbs.QPSErr && !e.mayEnd() && !e.mayBeRefused() {
		return fmt.Errorf("the QP is in ERR without a reason")
	}
	if err := e.toErr(); err != nil {
		return err
	}
	return e.node.drain()
}

// checkFailed checks a connection that is in ERR on both sides, and the effects of the requests of this end on the
// peer.
func (e *rcEnd) checkFailed() error {
	rest := e.lost
	if e.gone {
		rest = append(rest, e.sends...)
	}
	for !e.gone && len(e.sends) > 0 { // no completion: they have succeeded
		if e.sends[0].signaled {
			return fmt.Errorf("request %d was not flushed", e.sends[0].id)
		}
		if err := e.complete(); err != nil {
			return err
		}
	}
	if !e.gone && e.receives() == nil && len(e.recvs) > 0 {
		return fmt.Errorf("receives %v were not flushed", e.recvs)
	}
	if e.frozen != nil {
		if i := differ(e.frozen, e.mem); i < len(e.mem) {
			return fmt.Errorf("memory has changed at offset %d after it was deregistered", i)
		}
	}
	if err := checkGuards(e.mem); err != nil {
		return err
	}
	return e.checkPrefix(rest)
}

// checkPrefix checks that the peer has executed the first requests of rest, in order and each once, of the next one
// at most the beginning, and none of the others.
func (e *rcEnd) checkPrefix(rest []rcSend) error {
	img, mem := images.Get().(*image), e.peer.mem
	defer images.Put(img)
	*img = *e.peer.known
	var tried []error
	for i := 0; ; i++ {
		why := e.delivered(rest[:i], rest[i:])
		if why == nil {
			why = img.differs(mem)
			if why != nil && i < len(rest) && img.partly(mem, &rest[i].effect) {
				why = nil
			}
		}
		if why == nil {
			return nil
		}
		tried = append(tried, why)
		if i == len(rest) || rest[i].bad != 0 || rest[i].dead {
			return fmt.Errorf("no number of executed requests explains the memory of the peer; of %d not acknowledged: %v",
				len(rest), tried)
		}
		img.apply(&rest[i].effect)
	}
}

// delivered checks that exactly the messages in did were received, and none in not.
func (e *rcEnd) delivered(did, not []rcSend) error {
	first := ^uint64(0) // the oldest message that was not received
	if len(e.peer.expect) > 0 {
		first = e.peer.expect[0].id
	}
	for i := range did {
		if did[i].delivers && did[i].id >= first && !e.peer.gone {
			return fmt.Errorf("message %d was not received", did[i].id)
		}
	}
	for i := range not {
		if not[i].delivers && not[i].id < first {
			return fmt.Errorf("message %d was received", not[i].id)
		}
	}
	return nil
}

// renew prepares the end for another connection: with a new QP if the old one is gone, otherwise with the old one in
// RESET.
func (e *rcEnd) renew() error {
	e.known.take(e.mem)
	*e.model = *e.known
	again := e.gone || e.shared && e.revoked // receives in the SRQ refer to deregistered memory
	e.sends, e.lost, e.expect = nil, nil, nil
	e.landed, e.fence, e.paused, e.frozen = 0, false, false, nil
	e.failed, e.refused, e.flushed, e.ended, e.gone = false, false, false, false, false
	if again {
		if err := e.free(); err != nil {
			return err
		}
		return e.create()
	}
	if err := e.qp.Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, verbs.QPAttrState); err != nil {
		return err
	}
	if e.xrc.qp != nil {
		if err := e.xrc.qp.Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, verbs.QPAttrState); err != nil {
			return err
		}
	}
	return e.reregister()
}

// reregister registers the memory of the end again, with new keys. Receives that wait in an SRQ keep the region.
func (e *rcEnd) reregister() error {
	if !e.revoked {
		if err := e.win.mw.Close(); err != nil {
			return err
		}
		if e.shared {
			return e.newWindow()
		}
		if err := e.mr.Close(); err != nil {
			return err
		}
	}
	e.revoked = false
	return e.register()
}

// lose destroys the ends on a killed node. Their memory may not change afterwards.
func (p *rcPair) lose(n *node) error {
	for _, e := range p.ends {
		if e.node != n {
			continue
		}
		e.ended, e.gone = true, true
		if err := e.free(); err != nil {
			return err
		}
		e.freeze()
	}
	return nil
}

// free destroys the remaining objects of the end.
func (e *rcEnd) free() error {
	if e.qp == nil {
		return nil
	}
	if e.xrc.qp != nil {
		delete(e.node.owner, e.xrc.qp.QPN())
	}
	delete(e.node.owner, e.qp.QPN())
	if err := e.closeQP(); err != nil {
		return err
	}
	e.qp = nil
	if err := e.xrc.close(); err != nil {
		return err
	}
	if e.srq != nil {
		if err := e.srq.Close(); err != nil {
			return err
		}
	}
	if e.revoked {
		e.revoked = false
		return nil
	}
	if err := e.win.mw.Close(); err != nil {
		return err
	}
	return e.mr.Close()
}

// closeQP closes the QP unless the fault was to destroy it.
func (e *rcEnd) closeQP() error {
	if err := e.qp.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

func (p *rcPair) close() error {
	for _, e := range p.ends {
		if err := e.free(); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		ends.put(e.mem)
		images.Put(e.model)
		images.Put(e.known)
	}
	return nil
}
