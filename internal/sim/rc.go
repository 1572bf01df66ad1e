package sim

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// The memory of an end of an RC pair, in one region:
//
//	guard | source | guard | target | guard | landing | guard | receives | guard | words | guard
//
// source is random and never changes. target is where the peer WRITEs; model is what it must hold after
// everything that the peer has posted so far. landing takes the data of READs, receives that of
// SENDs, words are the peer's for atomics. Guards must never change.
const (
	guardSize   = 64
	sourceSize  = 32 << 10
	targetSize  = 32 << 10
	landSize    = 64 << 10
	recvSize    = 12 << 10 // of one receive; no SEND is longer
	recvSlots   = 8
	wordSlots   = 4
	mostPending = 24

	sourceAt = guardSize
	targetAt = sourceAt + sourceSize + guardSize
	landAt   = targetAt + targetSize + guardSize
	recvAt   = landAt + landSize + guardSize
	wordAt   = recvAt + recvSlots*recvSize + guardSize
	memSize  = wordAt + wordSlots*8 + guardSize

	guardByte = 0xA5
)

// rcPair is a pair of RC QPs or, with XRC, two pairs: one for each direction.
type rcPair struct {
	w     *world
	ends  [2]*rcEnd
	still bool
}

// rcEnd is one QP of an RC pair and what it must experience.
type rcEnd struct {
	w      *world
	name   string
	peer   *rcEnd
	qp     *verbs.QP
	xrc    xrcSide // empty for RC
	mem    []byte
	mr     *verbs.MR
	win    window
	sigAll bool
	inline int
	maxSGE int

	model   []byte            // of mem's target
	words   [wordSlots]uint64 // of mem's words
	nextID  uint64
	sends   []rcSend // posted, not known to be complete
	recvs   []int    // slots posted, oldest first
	freeRcv []int
	expect  []rcRecv // what the peer's posted requests must deliver, oldest first
	landed  int      // next free byte of landing
	failed  bool     // a send request has completed with an error
	ended   bool     // the QP was moved to ERR
	closed  bool
	fence   bool // the next request that changes what a READ may see must be fenced
}

type rcSend struct {
	id       uint64
	op       verbs.WCOpcode
	signaled bool
	bytes    uint32
	land     []byte // where data comes to
	want     []byte // what it must be
	done     func() // called when it is known to be complete, unless nil
}

type rcRecv struct {
	op     verbs.WCOpcode
	data   []byte
	bytes  uint32
	imm    uint32
	hasImm bool
	inv    uint32 // key that is invalidated; 0: none
}

func newRCPair(w *world) (pair, error) {
	p := &rcPair{w: w}
	kind := verbs.QPTypeRC
	if w.rand.IntN(4) == 0 {
		kind = verbs.QPTypeXRCSend
	}
	for i := range 2 {
		e, err := newRCEnd(w, w.nodes[i], kind, fmt.Sprintf("%v%d.%d", kind, len(w.pairs), i))
		if err != nil {
			return nil, err
		}
		p.ends[i] = e
	}
	a, b := p.ends[0], p.ends[1]
	a.peer, b.peer = b, a
	l := newLink(w)
	for i, e := range p.ends {
		if err := l.connect(e.qp, e.peer.target(), i); err != nil {
			return nil, err
		}
		if e.xrc.qp == nil {
			continue
		}
		if err := l.connect(e.xrc.qp, e.peer.qp, i); err != nil {
			return nil, err
		}
	}
	w.note("%s: %+v", a.name, l)
	return p, nil
}

func newRCEnd(w *world, n *node, kind verbs.QPType, name string) (*rcEnd, error) {
	e := &rcEnd{w: w, name: name, mem: make([]byte, memSize), model: make([]byte, targetSize),
		nextID: recvSlots, sigAll: w.rand.IntN(3) == 0, maxSGE: 1 + w.rand.IntN(4), inline: w.rand.IntN(2) * 200}
	for i := range e.mem {
		e.mem[i] = guardByte
	}
	for i := range sourceSize {
		e.mem[sourceAt+i] = byte(w.rand.Uint32())
	}
	clear(e.mem[targetAt : targetAt+targetSize])
	clear(e.mem[wordAt : wordAt+8*wordSlots])
	for i := range recvSlots {
		e.freeRcv = append(e.freeRcv, i)
	}
	var err error
	e.mr, err = n.pd.RegMR(e.mem, verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessRemoteRead|verbs.AccessRemoteAtomic|verbs.AccessMWBind)
	if err != nil {
		return nil, err
	}
	if e.win.mw, err = n.pd.AllocMW(verbs.MWType2); err != nil {
		return nil, err
	}
	e.qp, err = n.pd.CreateQP(&verbs.QPInitAttr{Type: kind, SendCQ: w.cq(n), RecvCQ: w.cq(n), SigAll: e.sigAll,
		Cap: verbs.QPCap{MaxSendWR: 64, MaxRecvWR: recvSlots, MaxSendSGE: uint32(e.maxSGE), MaxRecvSGE: uint32(e.maxSGE), MaxInlineData: uint32(e.inline)}})
	if err != nil {
		return nil, err
	}
	n.owner[e.qp.QPN()] = e
	if kind == verbs.QPTypeXRCSend {
		err = e.addXRC(n)
	}
	return e, err
}

func (p *rcPair) quiet() { p.still = true }

// end moves QPs that had nothing to send, and so did not notice that the cable is out, to ERR: all receives are flushed.
func (p *rcPair) end() error {
	for _, e := range p.ends {
		if err := e.xrc.end(); err != nil {
			return err
		}
		if e.failed {
			continue
		}
		e.ended = true
		if err := e.qp.Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, verbs.QPAttrState); err != nil {
			return err
		}
	}
	return nil
}

func (p *rcPair) act() error {
	if p.still {
		if p.w.broken {
			return nil
		}
		for _, e := range p.ends {
			// What the peer still sends must find a receive.
			for len(e.freeRcv) > 0 {
				if err := e.postRecv(); err != nil {
					return err
				}
			}
			if err := e.flushUnsignaled(); err != nil {
				return err
			}
		}
		return nil
	}
	e := p.ends[p.w.rand.IntN(2)]
	if p.w.rand.IntN(3) == 0 && len(e.freeRcv) > 0 {
		return e.postRecv()
	}
	if len(e.sends) >= mostPending {
		return nil
	}
	if p.w.rand.IntN(16) == 0 && e.xrc.qp == nil {
		return e.turnWindow()
	}
	return e.postSend()
}

// flushUnsignaled posts a signalled request if the latest one is not, so that the end of all is seen.
func (e *rcEnd) flushUnsignaled() error {
	if n := len(e.sends); n == 0 || e.sends[n-1].signaled {
		return nil
	}
	return e.post(verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, RemoteAddr: e.peer.mr.Addr(), RKey: e.peer.mr.RKey()},
		rcSend{op: verbs.WCRDMAWrite})
}

// scatter cuts n bytes at offset at of the end's memory into at most maxSGE pieces.
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
	if e.xrc.srq != nil {
		return e.xrc.srq.PostRecv(wr)
	}
	return e.qp.PostRecv(wr)
}

// length draws the length of a message, at most most, with a liking for the edges of packets.
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

// source draws n bytes of the source: as SGEs or, when they fit, inline.
func (e *rcEnd) source(wr *verbs.SendWR, n int) []byte {
	at := sourceAt + e.w.rand.IntN(sourceSize-n+1)
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
	if e.w.rand.IntN(3) > 0 {
		wr.Flags |= verbs.SendSignaled
	}
	if e.w.rand.IntN(8) == 0 {
		wr.Flags |= verbs.SendFence
	}
	switch e.w.rand.IntN(6) {
	case 0:
		return e.send(wr)
	case 1, 2:
		return e.write(wr)
	case 3, 4:
		return e.read(wr)
	default:
		return e.atomic(wr)
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
	e.peer.expect = append(e.peer.expect, want)
	return e.post(wr, rcSend{op: verbs.WCSend})
}

func (e *rcEnd) write(wr verbs.SendWR) error {
	data := e.source(&wr, e.length(16<<10))
	at := e.w.rand.IntN(targetSize - len(data) + 1)
	e.changes(&wr)
	copy(e.peer.model[at:], data)
	wr.Opcode, wr.RemoteAddr = verbs.WRRDMAWrite, e.peer.mr.Addr()+uint64(targetAt+at)
	s := rcSend{op: verbs.WCRDMAWrite}
	e.throughWindow(&wr, &s, at)
	if e.w.rand.IntN(3) == 0 {
		wr.Opcode, wr.ImmData = verbs.WRRDMAWriteWithImm, e.w.rand.Uint32()
		e.peer.expect = append(e.peer.expect, rcRecv{op: verbs.WCRecvRDMAWithImm, bytes: uint32(len(data)), imm: wr.ImmData, hasImm: true})
	}
	return e.post(wr, s)
}

// changes fences a request that changes memory which an earlier READ may still be reading.
func (e *rcEnd) changes(wr *verbs.SendWR) {
	if e.fence {
		wr.Flags |= verbs.SendFence
		e.fence = false
	}
}

func (e *rcEnd) read(wr verbs.SendWR) error {
	n := e.length(20 << 10)
	if e.landed+n > landSize {
		if len(e.sends) > 0 {
			return nil // landing is taken by READs under way
		}
		e.landed = 0
	}
	to := landAt + e.landed
	e.landed += n
	s := rcSend{op: verbs.WCRDMARead, bytes: uint32(n), land: e.mem[to : to+n]}
	if e.w.rand.IntN(2) == 0 {
		at := e.w.rand.IntN(sourceSize - n + 1)
		wr.RemoteAddr = e.peer.mr.Addr() + uint64(sourceAt+at)
		s.want = e.peer.mem[sourceAt+at : sourceAt+at+n]
	} else {
		at := e.w.rand.IntN(targetSize - n + 1)
		wr.RemoteAddr = e.peer.mr.Addr() + uint64(targetAt+at)
		s.want = bytes.Clone(e.peer.model[at : at+n])
		e.throughWindow(&wr, &s, at)
		e.fence = true
	}
	wr.Opcode, wr.SGList = verbs.WRRDMARead, e.scatter(to, n)
	return e.post(wr, s)
}

func (e *rcEnd) atomic(wr verbs.SendWR) error {
	if e.landed+8 > landSize {
		return nil
	}
	to := landAt + e.landed
	e.landed += 8
	i := e.w.rand.IntN(wordSlots)
	word := &e.peer.words[i]
	want := binary.NativeEndian.AppendUint64(nil, *word)
	s := rcSend{bytes: 8, land: e.mem[to : to+8], want: want}
	wr.RemoteAddr = e.peer.mr.Addr() + uint64(wordAt+8*i)
	wr.SGList = []verbs.SGE{e.mr.SGE(to, 8)}
	if e.w.rand.IntN(2) == 0 {
		wr.Opcode, wr.CompareAdd, s.op = verbs.WRAtomicFetchAndAdd, e.w.rand.Uint64(), verbs.WCFetchAdd
		*word += wr.CompareAdd
	} else {
		wr.Opcode, wr.CompareAdd, wr.Swap, s.op = verbs.WRAtomicCmpAndSwp, *word, e.w.rand.Uint64(), verbs.WCCompSwap
		if e.w.rand.IntN(3) == 0 {
			wr.CompareAdd++ // does not match
		} else {
			*word = wr.Swap
		}
	}
	return e.post(wr, s)
}

func (e *rcEnd) post(wr verbs.SendWR, s rcSend) error {
	e.nextID++
	wr.WRID, s.id = e.nextID, e.nextID
	s.signaled = e.sigAll || wr.Flags&verbs.SendSignaled != 0
	e.sends = append(e.sends, s)
	e.w.note("%s: %v #%d", e.name, wr.Opcode, wr.WRID)
	wr.RemoteSRQN = e.peer.xrc.srqn
	if err := e.qp.PostSend(wr); err != nil {
		return fmt.Errorf("%s: %w", e.name, err)
	}
	return nil
}

func (e *rcEnd) completed(wc *verbs.WC) error {
	var err error
	switch {
	case wc.Status != verbs.WCSuccess && e.w.broken:
		err = e.broke(wc)
	case wc.Status != verbs.WCSuccess:
		err = wc.Err()
	case wc.Opcode&verbs.WCRecv != 0:
		err = e.received(wc)
	default:
		err = e.sent(wc)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", e.name, err)
	}
	return nil
}

// broke checks a completion with error: the oldest request that was not acknowledged has run out of retries, and all
// behind it and all receives are flushed, in order, whether they are signalled or not.
func (e *rcEnd) broke(wc *verbs.WC) error {
	e.w.tally.Errors++
	if wc.WRID <= recvSlots {
		// The CQ of the receives may be polled before the one of the sends.
		if wc.Status != verbs.WCWRFlushErr || len(e.recvs) == 0 || e.recvs[0] != int(wc.WRID) {
			return fmt.Errorf("receive %d completes with %v; posted are %v", wc.WRID, wc.Status, e.recvs)
		}
		e.recvs = e.recvs[1:]
		return nil
	}
	want := verbs.WCWRFlushErr
	if !e.failed {
		if !e.ended {
			want = verbs.WCRetryExcErr
		}
		for len(e.sends) > 0 && !e.sends[0].signaled && e.sends[0].id != wc.WRID {
			e.sends = e.sends[1:] // was successful
		}
	}
	if len(e.sends) == 0 || e.sends[0].id != wc.WRID || wc.Status != want {
		return fmt.Errorf("request %d completes with %v, want %v of the oldest of %d", wc.WRID, wc.Status, want, len(e.sends))
	}
	e.failed = true
	e.sends = e.sends[1:]
	return nil
}

// sent checks a send completion: it is the next signalled one, and everything before it has happened.
func (e *rcEnd) sent(wc *verbs.WC) error {
	for i := range e.sends {
		s := &e.sends[i]
		if !bytes.Equal(s.land, s.want) {
			return fmt.Errorf("request %d (%v) brought the wrong data: first difference at byte %d of %d", s.id, s.op, differ(s.land, s.want), len(s.want))
		}
		if s.done != nil {
			s.done()
		}
		if !s.signaled {
			continue
		}
		switch {
		case wc.WRID != s.id:
			return fmt.Errorf("completion of request %d, but %d is the next one", wc.WRID, s.id)
		case wc.Opcode != s.op:
			return fmt.Errorf("request %d completes as %v, posted as %v", s.id, wc.Opcode, s.op)
		case s.bytes != 0 && wc.ByteLen != s.bytes:
			return fmt.Errorf("request %d: byte_len %d, want %d", s.id, wc.ByteLen, s.bytes)
		}
		e.sends = e.sends[i+1:]
		return nil
	}
	return fmt.Errorf("completion of request %d, but none is outstanding", wc.WRID)
}

// received checks a receive completion against the oldest request of the peer that makes one.
func (e *rcEnd) received(wc *verbs.WC) error {
	if len(e.expect) == 0 || len(e.recvs) == 0 {
		return fmt.Errorf("a receive completes, but the peer has sent nothing more")
	}
	x, slot := e.expect[0], e.recvs[0]
	e.expect, e.recvs = e.expect[1:], e.recvs[1:]
	got := e.mem[recvAt+slot*recvSize:][:len(x.data)]
	switch {
	case wc.WRID != uint64(slot):
		return fmt.Errorf("receive %d completes, but %d is the oldest", wc.WRID, slot)
	case wc.Opcode != x.op:
		return fmt.Errorf("receive completes as %v, want %v", wc.Opcode, x.op)
	case wc.ByteLen != x.bytes:
		return fmt.Errorf("receive of %d bytes, want %d", wc.ByteLen, x.bytes)
	case x.hasImm != (wc.WCFlags&verbs.WCWithImm != 0) || x.hasImm && wc.ImmData != x.imm:
		return fmt.Errorf("immediate data %#x (flags %v), want %#x", wc.ImmData, wc.WCFlags, x.imm)
	case !bytes.Equal(got, x.data):
		return fmt.Errorf("a receive of %d bytes differs at byte %d", len(x.data), differ(got, x.data))
	}
	e.freeRcv = append(e.freeRcv, slot)
	return e.invalidated(wc, x)
}

func (p *rcPair) done() (bool, string) {
	for _, e := range p.ends {
		if p.w.broken {
			n := len(e.sends)
			flushing := e.failed && n > 0 || (e.failed || e.ended) && len(e.recvs) > 0 && e.xrc.srq == nil
			if flushing || n > 0 && e.sends[n-1].signaled {
				return false, fmt.Sprintf("%s: %d requests and %d receives, after the cable was taken out", e.name, n, len(e.recvs))
			}
			continue
		}
		if len(e.sends) > 0 {
			return false, fmt.Sprintf("%s: %d requests, the oldest is %d", e.name, len(e.sends), e.sends[0].id)
		}
		if len(e.expect) > 0 {
			return false, fmt.Sprintf("%s: %d receives", e.name, len(e.expect))
		}
	}
	return true, ""
}

func (p *rcPair) check() error {
	for _, e := range p.ends {
		if err := e.check(); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
	}
	return nil
}

func (e *rcEnd) check() error {
	if e.w.broken {
		return e.checkGuards() // nobody can tell what has arrived
	}
	if got := e.mem[targetAt : targetAt+targetSize]; !bytes.Equal(got, e.model) {
		return fmt.Errorf("memory differs from what was written, at byte %d", differ(got, e.model))
	}
	for i, want := range e.words {
		if got := binary.NativeEndian.Uint64(e.mem[wordAt+8*i:]); got != want {
			return fmt.Errorf("word %d is %#x, want %#x", i, got, want)
		}
	}
	return e.checkGuards()
}

func (e *rcEnd) checkGuards() error {
	for _, at := range []int{0, targetAt - guardSize, landAt - guardSize, recvAt - guardSize, wordAt - guardSize, memSize - guardSize} {
		for i, b := range e.mem[at : at+guardSize] {
			if b != guardByte {
				return fmt.Errorf("a byte outside of all targets was written, at offset %d", at+i)
			}
		}
	}
	return nil
}

func (e *rcEnd) close() error {
	if e.closed {
		return nil // it has two QPs
	}
	e.closed = true
	if err := e.xrc.close(); err != nil {
		return err
	}
	if err := e.qp.Close(); err != nil {
		return err
	}
	if err := e.win.mw.Close(); err != nil {
		return err
	}
	return e.mr.Close()
}

// differ is the index of the first byte in which a and b differ.
func differ(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}
