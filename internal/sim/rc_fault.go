package sim

import (
	"github.com/verbena-rdma/verbena/verbs"
)

// A faultKind is a way to break a connection on purpose.
type faultKind int

const (
	noFault      faultKind = iota
	faultErr               // an end moves its QP to ERR
	faultReset             // an end resets its QP: its completions are lost
	faultDestroy           // an end destroys its QP
	faultKill              // a node loses all its objects
	faultRevoke            // an end deregisters its memory
	badRKey                // a request with an unknown key
	badRange               // a request beyond the memory of the peer
	badLKey                // a request whose local memory is not registered
	badLength              // a SEND longer than any receive
	badAddress             // an atomic across two words
	badWindow              // a request through a window that is not bound
	faultKinds
)

func (k faultKind) String() string {
	return [...]string{"none", "moved to ERR", "reset", "destroyed", "killed", "deregistered", "bad rkey", "out of range",
		"bad lkey", "too long", "misaligned", "through unbound windows"}[k]
}

// makeFault breaks the connection, if both ends work.
func (p *rcPair) makeFault() error {
	if p.down() || p.ends[0].node.dead || p.ends[1].node.dead {
		return nil
	}
	r := p.w.rand
	e := p.ends[r.IntN(2)]
	kind := noFault + 1 + faultKind(r.IntN(int(faultKinds)-1))
	if kind == faultKill || e.shared && (kind == faultReset || kind == faultDestroy) {
		kind = faultErr // the receive of the SRQ that the QP holds is unknown
	}
	if kind == badWindow && (e.peer.win.state != unbound || p.kind != verbs.QPTypeRC) {
		kind = badRKey
	}
	p.left--
	p.fault, p.by = kind, e
	p.w.tally.Faults[kind]++
	p.w.note("fault", e.name, kind)
	switch kind {
	case faultErr:
		return e.toErr()
	case faultReset:
		e.ended, e.gone = true, true
		delete(e.node.owner, e.qp.QPN())
		return e.qp.Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, verbs.QPAttrState)
	case faultDestroy:
		e.ended, e.gone = true, true
		delete(e.node.owner, e.qp.QPN())
		return e.qp.Close()
	case faultRevoke:
		return e.revoke()
	}
	return e.postBad(kind)
}

// toErr moves the QPs of an end to ERR.
func (e *rcEnd) toErr() error {
	e.ended = true
	if err := e.qp.Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, verbs.QPAttrState); err != nil {
		return err
	}
	if e.xrc.qp == nil {
		return nil
	}
	return e.xrc.qp.Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, verbs.QPAttrState)
}

// revoke deregisters the memory of an end. It may not change afterwards.
func (e *rcEnd) revoke() error {
	e.revoked = true
	if err := e.win.mw.Close(); err != nil {
		return err
	}
	if err := e.mr.Close(); err != nil {
		return err
	}
	e.freeze()
	return nil
}

func (e *rcEnd) freeze() {
	if e.frozen == nil {
		e.frozen = append(e.frozen, e.mem...)
	}
}

// postBad posts a request that must fail and change nothing.
func (e *rcEnd) postBad(kind faultKind) error {
	r := e.w.rand
	n := 1 + e.length(8<<10)
	wr := verbs.SendWR{
		Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, RKey: e.peer.mr.RKey(), RemoteAddr: e.peer.mr.Addr() + targetAt,
	}
	s := rcSend{op: verbs.WCRDMAWrite, bad: verbs.WCRemAccessErr}
	wr.SGList = e.scatter(sourceAt, n)
	if r.IntN(2) == 0 && (kind == badRKey || kind == badRange || kind == badWindow || kind == badLKey) {
		if e.landed+n <= landSize {
			wr.Opcode, s.op = verbs.WRRDMARead, verbs.WCRDMARead
			wr.SGList = e.scatter(landAt+e.landed, n)
			e.landed += n
		}
	}
	switch kind {
	case badRKey:
		wr.RKey ^= 0x5a5a5a5a
	case badRange:
		wr.RemoteAddr = e.peer.mr.Addr() + memSize - uint64(r.IntN(n)) // the first packets are in range
	case badWindow:
		wr.RKey = e.peer.win.mw.RKey()
	case badLKey:
		wr.SGList[r.IntN(len(wr.SGList))].LKey ^= 0x5a5a5a5a
		s.bad = verbs.WCLocProtErr
	case badLength:
		wr.Opcode, s.op, s.bad = verbs.WRSend, verbs.WCSend, verbs.WCRemInvReqErr
		wr.SGList = e.scatter(sourceAt, recvSize+1+r.IntN(recvSize))
	case badAddress:
		wr.Opcode, s.op, s.bad = verbs.WRAtomicFetchAndAdd, verbs.WCFetchAdd, verbs.WCRemInvReqErr
		wr.RemoteAddr = e.peer.mr.Addr() + wordAt + 1 + uint64(r.IntN(7))
		wr.SGList = e.scatter(landAt, 8)
	}
	return e.post(wr, s)
}

// mayTimeOut reports whether the requests of the end may use up their retries without an answer. Packets of an
// earlier connection in flight may cost a retry: the responder considers them a gap.
func (e *rcEnd) mayTimeOut() bool {
	a, b := e.node.index, e.peer.node.index
	sure := !e.w.net.lossy && !e.p.again
	switch {
	case e.peer.gone, e.peer.node.dead, e.w.net.parted[a][b]: // gone: the node was killed, and may run again
		return true
	case sure && e.p.fault >= badRKey && e.p.by == e && e.p.l.rnrRetries == 7:
		return false // the peer refuses a request, and the NAK arrives
	}
	return e.p.fault != noFault || e.peer.down() || e.peer.inErr() || !sure && e.p.l.retries < 7
}

// inErr reports whether the QP of the end is in ERR, also if its completions have not been polled yet.
func (e *rcEnd) inErr() bool {
	state, err := stateOf(e.target())
	return err == nil && state == verbs.QPSErr
}

// mayEnd reports whether the QP of the end may be in ERR because of requests of the end.
func (e *rcEnd) mayEnd() bool {
	return e.failed || e.ended || e.mayTimeOut() || e.p.l.rnrRetries < 7 || e.p.fault != noFault && e.p.by == e
}

// mayBeRefused reports whether the responder of the end may have refused a request, which moves its QP to ERR.
func (e *rcEnd) mayBeRefused() bool {
	t := e.p.fault
	return t >= badRKey && e.p.by == e.peer || t == faultRevoke && e.p.by == e
}

// recvMayFail reports whether a receive may have the status because of the fault.
func (e *rcEnd) recvMayFail(st verbs.WCStatus) bool {
	switch e.p.fault {
	case badLength:
		return st == verbs.WCLocLenErr
	case faultRevoke:
		return st == verbs.WCLocProtErr || st == verbs.WCLocAccessErr
	}
	return false
}

// sendMayFail reports whether a request may be the first that fails, with the status.
func (e *rcEnd) sendMayFail(s *rcSend, st verbs.WCStatus) bool {
	t := e.p.fault
	switch {
	case s.bad != 0 && st == s.bad:
		return true
	case st == verbs.WCWRFlushErr:
		return e.ended || e.mayBeRefused() && e.p.kind == verbs.QPTypeRC
	case st == verbs.WCRetryExcErr:
		return e.mayTimeOut()
	case st == verbs.WCRNRRetryExcErr:
		return (s.delivers || s.bad != 0) && e.p.l.rnrRetries < 7
	case t == faultRevoke && e.p.by == e:
		return st == verbs.WCLocProtErr || st == verbs.WCMWBindErr || st == verbs.WCLocQPOpErr
	case t == faultRevoke:
		return st == verbs.WCRemAccessErr || st == verbs.WCRemOpErr && s.delivers
	}
	return false
}
