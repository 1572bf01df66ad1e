package sim

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// scatter cuts n bytes at offset at of the memory into at most maxSGE pieces.
func (e *rcEnd) scatter(at, n int) []verbs.SGE {
	var list []verbs.SGE
	for left := n; left > 0; {
		k := left
		if len(list) < e.maxSGE-1 {
			k = 1 + e.w.rand.IntN(left)
		}
		list = append(list, e.mr.SGE(at, k))
		at, left = at+k, left-k
	}
	return list
}

func (e *rcEnd) postRecv() error {
	slot := e.freeRcv[0]
	e.freeRcv = e.freeRcv[1:]
	e.recvs = append(e.recvs, slot)
	at := recvAt + slot*recvSize
	wr := verbs.RecvWR{WRID: uint64(slot), SGList: e.scatter(at, recvSize)}
	var err error
	if srq := e.receives(); srq != nil {
		err = srq.PostRecv(wr)
	} else {
		err = e.qp.PostRecv(wr)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", e.name, err)
	}
	return nil
}

// receives returns the SRQ of the end, nil if its QP has a receive queue.
func (e *rcEnd) receives() *verbs.SRQ {
	if e.xrc.srq != nil {
		return e.xrc.srq
	}
	return e.srq
}

// tuneSRQ resizes the SRQ, or arms its limit.
func (e *rcEnd) tuneSRQ() error {
	r := e.w.rand
	attr, mask := verbs.SRQAttr{SRQLimit: uint32(r.IntN(recvSlots))}, verbs.SRQAttrLimit
	if r.IntN(2) == 0 {
		attr = verbs.SRQAttr{MaxWR: recvSlots << r.IntN(3), MaxSGE: uint32(e.maxSGE)}
		mask = verbs.SRQAttrMaxWR
	}
	return e.receives().Modify(&attr, mask)
}

// length draws the length of a message, at most most, often near the edges of packets.
func (e *rcEnd) length(most int) int {
	r := e.w.rand
	switch r.IntN(6) {
	case 0:
		return r.IntN(3)
	case 1:
		return min(most, max(0, (256<<r.IntN(5))*(1+r.IntN(2))+r.IntN(3)-1))
	case 2:
		return r.IntN(most + 1)
	default:
		return r.IntN(min(most, 700) + 1)
	}
}

// source draws n bytes of the source: as SGEs or, if they fit, inline.
func (e *rcEnd) source(wr *verbs.SendWR, n int) []byte {
	at := sourceAt + e.w.rand.IntN(sourceSz-n+1)
	data := e.mem[at : at+n]
	if n <= e.inline && e.w.rand.IntN(2) == 0 {
		wr.Flags |= verbs.SendInline
		wr.Inline = bytes.Clone(data)
		return data
	}
	wr.SGList = e.scatter(at, n)
	return data
}

func (e *rcEnd) postSend() error {
	wr := verbs.SendWR{RKey: e.peer.mr.RKey()}
	r := e.w.rand
	if r.IntN(3) > 0 {
		wr.Flags |= verbs.SendSignaled
	}
	if r.IntN(8) == 0 {
		wr.Flags |= verbs.SendFence
	}
	switch r.IntN(13) {
	case 0, 1:
		return e.send(wr)
	case 2, 3, 4, 5:
		return e.write(wr)
	case 6, 7, 8, 9:
		return e.read(wr)
	case 10, 11:
		return e.atomic(wr)
	default:
		return e.place(wr)
	}
}

func (e *rcEnd) send(wr verbs.SendWR) error {
	data := e.source(&wr, e.length(recvSize))
	want := rcRecv{op: verbs.WCRecv, data: data, bytes: uint32(len(data))}
	wr.Opcode = verbs.WRSend
	if e.w.rand.IntN(2) == 0 {
		wr.Opcode, wr.ImmData = verbs.WRSendWithImm, e.w.rand.Uint32()
		want.imm, want.hasImm = wr.ImmData, true
	} else {
		e.invalidate(&wr, &want)
	}
	e.delivers(want)
	return e.post(wr, rcSend{op: verbs.WCSend, delivers: true})
}

// delivers records the receive that the next posted request must complete.
func (e *rcEnd) delivers(want rcRecv) {
	want.id = e.nextID + 1
	e.peer.expect = append(e.peer.expect, want)
}

func (e *rcEnd) write(wr verbs.SendWR) error {
	data := e.source(&wr, e.length(16<<10))
	at := e.w.rand.IntN(targetSz - len(data) + 1)
	e.changes(&wr)
	wr.Opcode, wr.RemoteAddr = verbs.WRRDMAWrite, e.peer.mr.Addr()+uint64(targetAt+at)
	s := rcSend{op: verbs.WCRDMAWrite, effect: effect{at: at, data: data}}
	e.throughWindow(&wr, &s, at)
	if e.w.rand.IntN(3) == 0 {
		wr.Opcode, wr.ImmData = verbs.WRRDMAWriteWithImm, e.w.rand.Uint32()
		e.delivers(rcRecv{op: verbs.WCRecvRDMAWithImm, bytes: uint32(len(data)), imm: wr.ImmData, hasImm: true})
		s.delivers = true
	}
	return e.post(wr, s)
}

// changes fences a request that changes memory of an earlier READ.
func (e *rcEnd) changes(wr *verbs.SendWR) {
	if e.fence {
		wr.Flags |= verbs.SendFence
		e.fence = false
	}
}

func (e *rcEnd) read(wr verbs.SendWR) error {
	n := e.length(20 << 10)
	to, ok := e.land(n)
	if !ok {
		return nil
	}
	s := rcSend{op: verbs.WCRDMARead, bytes: uint32(n), land: e.mem[to : to+n]}
	if e.w.rand.IntN(2) == 0 {
		at := e.w.rand.IntN(sourceSz - n + 1)
		wr.RemoteAddr = e.peer.mr.Addr() + uint64(sourceAt+at)
		s.want = e.peer.mem[sourceAt+at : sourceAt+at+n]
	} else {
		at := e.w.rand.IntN(targetSz - n + 1)
		wr.RemoteAddr = e.peer.mr.Addr() + uint64(targetAt+at)
		s.want = bytes.Clone(e.peer.model.target[at : at+n])
		e.throughWindow(&wr, &s, at)
		e.fence = true
	}
	wr.Opcode, wr.SGList = verbs.WRRDMARead, e.scatter(to, n)
	return e.post(wr, s)
}

// land returns the offset for n bytes from the peer; false while outstanding requests use the landing area.
func (e *rcEnd) land(n int) (int, bool) {
	if e.landed+n > landSize {
		if len(e.sends) > 0 {
			return 0, false
		}
		e.landed = 0
	}
	to := landAt + e.landed
	e.landed += n
	return to, true
}

func (e *rcEnd) atomic(wr verbs.SendWR) error {
	to, ok := e.land(8)
	if !ok {
		return nil
	}
	i := e.w.rand.IntN(wordSlots)
	was := e.peer.model.words[i]
	s := rcSend{bytes: 8, land: e.mem[to : to+8], want: binary.NativeEndian.AppendUint64(nil, was)}
	wr.RemoteAddr = e.peer.mr.Addr() + uint64(wordAt+8*i)
	wr.SGList = []verbs.SGE{e.mr.SGE(to, 8)}
	value := was
	if e.w.rand.IntN(2) == 0 {
		wr.Opcode, wr.CompareAdd, s.op = verbs.WRAtomicFetchAndAdd, e.w.rand.Uint64(), verbs.WCFetchAdd
		value += wr.CompareAdd
	} else {
		wr.Opcode, wr.CompareAdd, wr.Swap, s.op = verbs.WRAtomicCmpAndSwp, was, e.w.rand.Uint64(), verbs.WCCompSwap
		if e.w.rand.IntN(3) == 0 {
			wr.CompareAdd++ // does not match
		} else {
			value = wr.Swap
		}
	}
	s.effect = effect{hasWord: true, word: i, value: value}
	return e.post(wr, s)
}

// place posts a FLUSH or an ATOMIC WRITE.
func (e *rcEnd) place(wr verbs.SendWR) error {
	if e.w.rand.IntN(2) == 0 {
		wr.Opcode, wr.RemoteAddr = verbs.WRFlush, e.peer.mr.Addr()+targetAt
		wr.Flush = verbs.Flush{
			Length: uint32(e.length(targetSz)), Type: verbs.FlushGlobal, Level: verbs.SelectivityLevel(e.w.rand.IntN(2)),
		}
		return e.post(wr, rcSend{op: verbs.WCFlush})
	}
	i := e.w.rand.IntN(wordSlots)
	at := sourceAt + 8*e.w.rand.IntN(sourceSz/8)
	wr.Opcode, wr.RemoteAddr = verbs.WRAtomicWrite, e.peer.mr.Addr()+uint64(wordAt+8*i)
	wr.SGList = []verbs.SGE{e.mr.SGE(at, 8)}
	value := binary.NativeEndian.Uint64(e.mem[at:])
	return e.post(wr, rcSend{op: verbs.WCAtomicWrite, effect: effect{hasWord: true, word: i, value: value}})
}

func (e *rcEnd) post(wr verbs.SendWR, s rcSend) error {
	e.nextID++
	wr.WRID, s.id = e.nextID, e.nextID
	s.signaled = e.sigAll || wr.Flags&verbs.SendSignaled != 0
	s.dead = e.failed || e.ended
	e.sends = append(e.sends, s)
	e.peer.model.apply(&s.effect)
	e.w.note(e.name, wr.Opcode, wr.WRID)
	e.w.tally.Posted++
	wr.RemoteSRQN = e.peer.xrc.srqn
	if err := e.qp.PostSend(wr); err != nil {
		return fmt.Errorf("%s: %w", e.name, err)
	}
	return nil
}

// pause drains the send queue (SQD), or resumes it once it is drained.
func (e *rcEnd) pause() error {
	state, err := stateOf(e.qp)
	if err != nil {
		return err
	}
	switch {
	case state == verbs.QPSErr:
		e.paused = false
		return nil
	case !e.paused:
		e.paused, e.lastOut = true, e.nextID
		return e.qp.Modify(&verbs.QPAttr{QPState: verbs.QPSSQD}, verbs.QPAttrState)
	}
	attr, _, err := e.qp.Query(verbs.QPAttrState)
	if err != nil || attr.SQDraining {
		return err
	}
	if e.w.rand.IntN(2) == 0 {
		// The peer has no timer for responses: a change of the time-out takes effect at once.
		attr := verbs.QPAttr{Timeout: uint8(12 + e.w.rand.IntN(4)), RetryCnt: e.p.l.retries, RNRRetry: e.p.l.rnrRetries}
		if err := e.qp.Modify(&attr, verbs.QPAttrTimeout|verbs.QPAttrRetryCnt|verbs.QPAttrRNRRetry); err != nil {
			return err
		}
	}
	e.paused = false
	e.w.tally.Drained++
	return e.qp.Modify(&verbs.QPAttr{QPState: verbs.QPSRTS}, verbs.QPAttrState)
}

func stateOf(qp *verbs.QP) (verbs.QPState, error) {
	attr, _, err := qp.Query(verbs.QPAttrState)
	return attr.QPState, err
}
