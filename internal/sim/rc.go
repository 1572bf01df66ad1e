package sim

import (
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

const mostPending = 24 // send requests of an end

// An rcPair is a pair of RC QPs or, with XRC, two pairs: one for each direction.
type rcPair struct {
	w     *world
	kind  verbs.QPType
	ends  [2]*rcEnd
	l     link
	again bool // it has been connected before
	still bool
	over  bool // it was checked after a failure and is not used again

	left  int       // how many troubles may still be made
	fault faultKind // the fault of this connection; noFault if there is none
	by    *rcEnd    // the end that made it
}

// An rcEnd is one QP of an RC pair and the expected state.
type rcEnd struct {
	w      *world
	p      *rcPair
	node   *node
	name   string
	peer   *rcEnd
	qp     *verbs.QP
	srq    *verbs.SRQ // for the receives, unless nil
	xrc    xrcSide    // empty for RC
	mem    []byte
	mr     *verbs.MR
	win    window
	sigAll bool
	inline int
	maxSGE int
	shared bool // has an SRQ

	model   *image // of mem, after all posted requests of the peer
	known   *image // of mem, after all requests of the peer that are known to be complete
	nextID  uint64
	sends   []rcSend // posted, not known to be complete, oldest first
	lost    []rcSend // completed with an error; all were posted before sends
	recvs   []int    // slots posted, oldest first
	freeRcv []int
	expect  []rcRecv // the receives that posted requests of the peer must complete, oldest first
	landed  int      // next free byte of landing
	frozen  []byte   // the content that mem must keep, unless nil
	fence   bool     // the next request that changes memory of a READ must be fenced

	failed  bool   // a send request has completed with an error
	refused bool   // a receive has completed with an error that the peer caused
	flushed bool   // a receive has completed as flushed
	ended   bool   // the program moved the QP to ERR or RESET
	gone    bool   // the QP was destroyed or reset: completions are missing
	revoked bool   // the region was deregistered
	paused  bool   // the send queue is drained (SQD)
	lastOut uint64 // the last request that may be executed meanwhile
}

type rcSend struct {
	id       uint64
	op       verbs.WCOpcode
	signaled bool
	bytes    uint32
	land     []byte // the destination of data
	want     []byte // the expected data
	effect   effect // on the image of the peer
	delivers bool   // completes a receive of the peer
	bad      verbs.WCStatus
	dead     bool   // it was posted after the QP was known to have failed
	then     func() // called when the request is known to be complete, unless nil
}

type rcRecv struct {
	id     uint64 // of the request
	op     verbs.WCOpcode
	data   []byte
	bytes  uint32
	imm    uint32
	hasImm bool
	inv    uint32 // key that the SEND invalidates; 0: none
}

func newRCPair(w *world, a, b *node) (pair, error) {
	p := &rcPair{w: w, kind: verbs.QPTypeRC, left: 4}
	if w.rand.IntN(4) == 0 {
		p.kind = verbs.QPTypeXRCSend
	}
	for i, n := range []*node{a, b} {
		e, err := newRCEnd(w, n, p, fmt.Sprintf("%v%d.%d", p.kind, len(w.pairs), i))
		if err != nil {
			return nil, err
		}
		p.ends[i] = e
		if err := e.create(); err != nil {
			return nil, err
		}
	}
	p.ends[0].peer, p.ends[1].peer = p.ends[1], p.ends[0]
	return p, p.connect()
}

func newRCEnd(w *world, n *node, p *rcPair, name string) (*rcEnd, error) {
	r := w.rand
	mem, err := newMemory(r)
	if err != nil {
		return nil, err
	}
	e := &rcEnd{w: w, p: p, node: n, name: name, mem: mem, model: newImage(), known: newImage(), nextID: recvSlots,
		sigAll: r.IntN(3) == 0, maxSGE: 1 + r.IntN(4), inline: r.IntN(2) * 200}
	e.shared = p.kind == verbs.QPTypeXRCSend || r.IntN(4) == 0
	return e, nil
}

// create creates the objects of an end on its node.
func (e *rcEnd) create() (err error) {
	n := e.node
	e.recvs, e.freeRcv = nil, nil
	for i := range recvSlots {
		e.freeRcv = append(e.freeRcv, i)
	}
	if err = e.register(); err != nil {
		return err
	}
	e.srq, e.xrc = nil, xrcSide{}
	init := verbs.QPInitAttr{Type: e.p.kind, SendCQ: n.cq(), RecvCQ: n.cq(), SigAll: e.sigAll, Cap: verbs.QPCap{
		MaxSendWR: 64, MaxRecvWR: recvSlots, MaxSendSGE: uint32(e.maxSGE), MaxRecvSGE: uint32(e.maxSGE),
		MaxInlineData: uint32(e.inline),
	}}
	if e.shared && e.p.kind == verbs.QPTypeRC {
		e.srq, err = n.pd.CreateSRQ(&verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: recvSlots, MaxSGE: uint32(e.maxSGE)}})
		if err != nil {
			return err
		}
		init.SRQ = e.srq
	}
	if e.qp, err = n.pd.CreateQP(&init); err != nil {
		return err
	}
	n.owner[e.qp.QPN()] = e
	if e.p.kind == verbs.QPTypeXRCSend {
		err = e.addXRC(n)
	}
	return err
}

// register registers the memory of the end, and allocates its window.
func (e *rcEnd) register() (err error) {
	const access = verbs.AccessLocalWrite | remoteAccess | verbs.AccessMWBind | verbs.AccessFlushGlobal
	if e.mr, err = e.node.pd.RegMR(e.mem, access); err != nil {
		return err
	}
	return e.newWindow()
}

func (e *rcEnd) newWindow() (err error) {
	e.win = window{}
	e.win.mw, err = e.node.pd.AllocMW(verbs.MWType2)
	return err
}

// connect moves all QPs of the pair to RTS.
func (p *rcPair) connect() error {
	p.fault, p.by = noFault, nil
	p.l = newLink(p.w)
	for i, e := range p.ends {
		if err := p.l.connect(e.qp, e.peer.target(), i); err != nil {
			return err
		}
		if e.xrc.qp == nil {
			continue
		}
		if err := p.l.connect(e.xrc.qp, e.peer.qp, i); err != nil {
			return err
		}
	}
	p.w.note("connect", p.ends[0].name, p.l)
	return nil
}

func (p *rcPair) quiet() { p.still = true }

// down reports whether the connection has failed or was ended.
func (p *rcPair) down() bool { return p.ends[0].down() || p.ends[1].down() }

func (e *rcEnd) down() bool { return e.failed || e.refused || e.ended || e.gone || e.flushed }

func (p *rcPair) act() error {
	switch {
	case p.over:
		return nil
	case p.still:
		return p.finishUp()
	case p.down() && p.w.rand.IntN(8) == 0:
		return p.recover(p.w.rand.IntN(8) > 0)
	case p.left > 0 && p.fault == noFault && !p.w.calm && p.w.rand.IntN(200) == 0:
		return p.makeFault()
	}
	return p.ends[p.w.rand.IntN(2)].act()
}

// act posts a request, if there is room.
func (e *rcEnd) act() error {
	r := e.w.rand
	switch {
	case e.gone:
		return nil
	case r.IntN(3) == 0 && len(e.freeRcv) > 0:
		return e.postRecv()
	case r.IntN(64) == 0 || e.paused && r.IntN(8) == 0:
		return e.pause()
	case len(e.sends) >= mostPending:
		return nil
	case e.shared && r.IntN(64) == 0:
		return e.tuneSRQ()
	case r.IntN(16) == 0 && e.xrc.qp == nil && !e.revoked:
		return e.turnWindow()
	}
	return e.postSend()
}

// finishUp posts only the requests that let others complete, and checks a pair that has failed.
func (p *rcPair) finishUp() error {
	for _, e := range p.ends {
		if e.gone {
			continue
		}
		if e.paused {
			if err := e.pause(); err != nil {
				return err
			}
		}
		// The remaining SENDs of the peer need receives.
		for len(e.freeRcv) > 0 && (!e.down() || e.xrc.qp != nil && !e.ended) {
			if err := e.postRecv(); err != nil {
				return err
			}
		}
		if err := e.flushUnsignaled(); err != nil {
			return err
		}
	}
	if p.down() && p.silent() {
		return p.recover(false)
	}
	return nil
}

// silent reports whether all send requests have completed.
func (p *rcPair) silent() bool {
	for _, e := range p.ends {
		if !e.gone && len(e.sends) > 0 {
			return false
		}
	}
	return true
}

// flushUnsignaled posts a signaled request if the latest one is unsignaled, so that there is a completion for the end
// of all.
func (e *rcEnd) flushUnsignaled() error {
	if n := len(e.sends); n == 0 || e.sends[n-1].signaled || e.paused {
		return nil
	}
	wr := verbs.SendWR{
		Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, RemoteAddr: e.peer.mr.Addr(), RKey: e.peer.mr.RKey(),
	}
	return e.post(wr, rcSend{op: verbs.WCRDMAWrite})
}

func (p *rcPair) done() bool {
	return p.over || p.ends[0].done() && p.ends[1].done()
}

func (e *rcEnd) done() bool {
	return !e.down() && !e.paused && len(e.sends) == 0 && len(e.expect) == 0
}

func (p *rcPair) String() string { return fmt.Sprintf("%v; %v", p.ends[0], p.ends[1]) }

func (e *rcEnd) String() string {
	const form = "%s: %d requests, %d receives missing (failed %v, refused %v, ended %v, gone %v, drained %v, " +
		"deregistered %v)"
	return fmt.Sprintf(form, e.name, len(e.sends), len(e.expect), e.failed, e.refused, e.ended, e.gone, e.paused,
		e.revoked)
}

func (p *rcPair) check() error {
	for _, e := range p.ends {
		err := checkGuards(e.mem)
		if err == nil && !p.over {
			err = e.model.differs(e.mem)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
	}
	return nil
}

func (p *rcPair) tail() error { return nil }
