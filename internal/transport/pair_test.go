package transport

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/wire"
)

var pairSeed = flag.Uint64("pairseed", 0, "run TestPair with this seed only")

// TestPair connects two QPs over a network that loses, duplicates and reorders packets. All bytes and the order of
// all completions must be right, and no other memory may change.
func TestPair(t *testing.T) { runPairs(t, "TestPair", 400, RC) }

// TestPairXRC is TestPair with two XRC connections, one for each direction.
func TestPairXRC(t *testing.T) { runPairs(t, "TestPairXRC", 200, XRCSend) }

func runPairs(t *testing.T, name string, seeds int, typ Type) {
	runPairsOf(t, name, seeds, func(seed uint64) *pair { return newPairOf(t, seed, typ) })
}

// runPairsOf runs the pairs of many seeds.
func runPairsOf(t *testing.T, name string, seeds int, pairOf func(seed uint64) *pair) {
	if testing.Short() || slow {
		seeds = 30
	}
	if *pairSeed != 0 {
		pairOf(*pairSeed).run()
		return
	}
	for seed := range uint64(seeds) {
		if pairOf(seed + 1).run(); t.Failed() {
			t.Fatalf("reproduce with: go test ./internal/transport -run %s$ -pairseed %d", name, seed+1)
		}
	}
}

// pair is two QPs, a network between them, and a clock.
type pair struct {
	t                  *testing.T
	rnd                *rand.Rand
	now                int64
	ends               [2]*pairEnd
	net                []flight
	tx                 *link.TxBatch
	loss, copies, late float64
	shared             bool // the domains of XRC are shared by three processes
	mtu                int
	changing           bool // the programs change attributes and queues meanwhile
	migrating          bool // the ends have two paths and take now this one, now that
	// which of the two loses everything: the one that the ends began with or not; nil for none
	cut   *bool
	moves [2]int    // migrations of each end
	log   *[]string // if not nil, completions and events go there and are not checked
}

// flight is a packet on the network.
type flight struct {
	at   int64
	to   int
	path link.Path
	data []byte
	do   func() // instead of a packet; see turn_test.go
}

// pairEnd is one QP, or two with XRC, and the state of its program. Its memory has four quarters: local buffers, the
// peer's targets, receive buffers, and one word for atomics. Buffers are used in turn.
type pairEnd struct {
	p        *pair
	peer     *pairEnd
	addr     netip.Addr
	qp       *QP // sends
	in       *QP // receives: the same one, or an XRC_RECV QP
	guests   []*QP
	srqns    []uint32
	rq       *RecvQueue
	mem      *mr.Region
	want     []byte // expected content of mem
	local    int
	target   int
	recvAt   int
	todo     int
	jobs     []pairJob // posted and incomplete, in order
	incoming [][]byte  // messages sent by the peer, in order
	imms     []uint32
	recvs    []recvJob
	word     uint64 // the peer's word after all posted requests
}

type pairJob struct {
	wrid          uint64
	op            Op
	n             int
	local, target int
	was           uint64 // atomics: expected result
}

type recvJob struct {
	wrid  uint64
	at, n int
}

const (
	quarter   = 1 << 17
	pairBase  = 0x7000
	longest   = 6000
	pairDepth = 16
	pairSRQN  = 0x123456
)

func newPair(t *testing.T, seed uint64) *pair { return newPairOf(t, seed, RC) }

func newPairOf(t *testing.T, seed uint64, typ Type) *pair {
	return newPairIn(&pair{t: t}, seed, typ)
}

// newPairIn is newPairOf for a pair some of whose fields are set.
func newPairIn(p *pair, seed uint64, typ Type) *pair {
	rnd := rand.New(rand.NewPCG(seed, 0))
	p.rnd, p.mtu, p.tx = rnd, 256<<rnd.IntN(3), link.NewTxBatch(8, 8*5000)
	if seed%4 != 0 { // every fourth network is perfect; the others never lose eight in a row
		p.loss, p.copies, p.late = rnd.Float64()*0.06, rnd.Float64()*0.1, rnd.Float64()*0.1
	}
	depth := 1 << rnd.IntN(3)
	for i := range p.ends {
		p.ends[i] = p.newEnd(i, typ)
	}
	for i, e := range p.ends {
		e.peer = p.ends[1-i]
		a := Attr{
			Path: link.Path{Src: e.addr, Dst: e.peer.addr}, MTU: p.mtu, PKey: 0xFFFF,
			RQPSN: uint32(0xFFFFF0 + 1 - i), SQPSN: uint32(0xFFFFF0 + i), MaxRdAtomic: depth, MaxDestRdAtom: depth,
			Access:      uint32(mr.RemoteRead | mr.RemoteWrite | mr.RemoteAtomic | mr.FlushGlobal),
			MinRNRTimer: 1, Timeout: 9, RetryCnt: 7, RNRRetry: 7,
		}
		e.bringUp(e.qp, a, e.peer.in)
		if e.in != e.qp {
			e.bringUp(e.in, a, e.peer.qp)
		}
		for _, g := range e.guests {
			e.bringUp(g, a, e.peer.qp)
		}
		if rnd.IntN(2) == 0 {
			e.qp.SetWindow(1000+rnd.IntN(30000), nil)
		}
	}
	return p
}

func (p *pair) newEnd(i int, typ Type) *pairEnd {
	e := &pairEnd{p: p, addr: netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), todo: 100}
	e.mem = &mr.Region{
		PD: 1, Base: pairBase, Buf: make([]byte, 3*quarter+8),
		Access: mr.LocalWrite | mr.RemoteRead | mr.RemoteWrite | mr.RemoteAtomic | mr.FlushGlobal,
	}
	table := mr.NewTable(10, mr.Counted())
	if err := table.Add(e.mem); err != nil {
		p.t.Fatal(err)
	}
	for j := range e.mem.Buf[:3*quarter] {
		e.mem.Buf[j] = byte(j * (i + 3))
	}
	e.want = bytes.Clone(e.mem.Buf)
	c := Config{
		Num:     uint32(16 + i),
		Type:    typ,
		PD:      1,
		SQ:      NewSendQueue(pairDepth, 4, 512),
		SendCQ:  e,
		Regions: table,
		Host:    e,
	}
	if typ == XRCSend {
		e.rq = NewRecvQueue(pairDepth, 4, true, 1)
		e.addTargets(Config{Num: uint32(32 + i), Type: XRCRecv, Regions: table, Host: e})
		e.qp = NewQP(c)
		return e
	}
	e.rq = NewRecvQueue(pairDepth, 4, false, 1)
	c.RQ, c.RecvCQ = e.rq, e
	e.qp = NewQP(c)
	e.in = e.qp
	return e
}

// bringUp connects a QP to one of the other end.
func (e *pairEnd) bringUp(qp *QP, a Attr, to *QP) {
	a.DestQPN = to.Num
	for _, st := range []State{Init, RTR, RTS} {
		a.State = st
		if err := qp.Modify(0, &a, everyMask); err != nil {
			e.p.t.Fatal(err)
		}
	}
}

func (e *pairEnd) Raise(_ *QP, ev Event) {
	if e.p.log != nil {
		e.note("event %d", ev)
	} else if ev == EventPathMig && e.p.migrating {
		e.p.moves[e.qp.Num-16]++
	} else if ev != EventCommEst {
		e.p.t.Errorf("event %d", ev)
	}
}

func (e *pairEnd) StateChanged(_ *QP, st State) {
	if e.p.log != nil {
		e.note("state %d", st)
	} else {
		e.p.t.Errorf("QP %d moved to state %d", e.qp.Num, st)
	}
}

func (e *pairEnd) note(f string, a ...any) {
	*e.p.log = append(*e.p.log, fmt.Sprintf("%c ", 'A'+rune(e.qp.Num-16))+fmt.Sprintf(f, a...))
}

// run runs both programs and checks the final state.
func (p *pair) run() {
	for {
		for _, e := range p.ends {
			e.work()
			if p.changing {
				e.change()
			}
			if p.migrating {
				e.steer()
			}
			p.transmit(e)
		}
		if p.t.Failed() || p.finished() {
			break
		}
		if !p.step() && !p.paused() && len(p.ends[0].jobs)+len(p.ends[1].jobs) > 0 {
			p.t.Errorf("nothing happens any more at %d ns; %d and %d requests are not complete",
				p.now, len(p.ends[0].jobs), len(p.ends[1].jobs))
			return
		}
	}
	for i, e := range p.ends {
		if p.t.Failed() {
			return
		}
		e.qp.req.keep = nil
		e.qp.SetRate(0, 0)
		e.want = append(e.want[:3*quarter], 0, 0, 0, 0, 0, 0, 0, 0)
		binary.NativeEndian.PutUint64(e.want[3*quarter:], e.peer.word)
		if !bytes.Equal(e.mem.Buf, e.want) {
			p.t.Errorf("end %d: the memory is not what it should be", i)
		}
		(&sender{t: p.t, qp: e.qp}).checkIdle()
	}
}

func (p *pair) finished() bool {
	a, b := p.ends[0], p.ends[1]
	return a.todo == 0 && b.todo == 0 && len(a.jobs) == 0 && len(b.jobs) == 0 && !a.checks() && !b.checks()
}

// step advances the clock to the next event.
func (p *pair) step() bool {
	next, which := min(p.ends[0].qp.Deadline(), p.ends[1].qp.Deadline()), -1
	for i, f := range p.net {
		if f.at < next || f.at == next && which < 0 {
			next, which = f.at, i
		}
	}
	if next == Never || p.now > 1e12 {
		return false
	}
	p.now = max(p.now, next)
	if which < 0 {
		for _, e := range p.ends {
			e.qp.OnTimer(p.now)
		}
		return true
	}
	f := p.net[which]
	p.net[which] = p.net[len(p.net)-1]
	p.net = p.net[:len(p.net)-1]
	if f.do != nil {
		f.do()
		return true
	}
	e := p.ends[f.to]
	qp := e.qp
	if wire.BTH(f.data).DestQPN() == e.in.Num {
		qp = e.in
	}
	before := qp.Due()
	plain := qp.OnPacket(p.now, &link.RxPacket{Data: f.data, Src: f.path.Src, Dst: f.path.Dst})
	if plain && before != DueMore && qp.Due() == DueMore {
		p.t.Errorf("a plain packet made more due than an acknowledgement")
	}
	return true
}

// transmit puts the packets of e on the network.
func (p *pair) transmit(e *pairEnd) {
	p.transmitFrom(e, e.qp)
	if e.in != e.qp {
		p.transmitFrom(e, e.in)
	}
	for _, g := range e.guests {
		p.transmitFrom(e, g)
	}
}

func (p *pair) transmitFrom(e *pairEnd, qp *QP) {
	for more := true; more; {
		more = qp.Transmit(p.now, p.tx, 8)
		for i := range p.tx.Packets {
			b := p.tx.Bytes(i)
			pkt, err := wire.Parse(b[:len(b)-wire.ICRCLen])
			if err != nil {
				p.t.Fatalf("%x: %v", b, err)
			}
			if p.rnd.Float64() < p.loss {
				continue
			}
			path := *p.tx.Packets[i].Path
			if p.cut != nil && *p.cut == isAlt(&path) {
				continue
			}
			p.launch(e, &path, pkt)
			if p.rnd.Float64() < p.copies {
				p.launch(e, &path, pkt)
			}
		}
		p.tx.Reset()
	}
}

func (p *pair) launch(e *pairEnd, path *link.Path, pkt wire.Packet) {
	at := p.now + 10_000 + int64(len(p.net))
	if p.rnd.Float64() < p.late {
		at += int64(p.rnd.IntN(300_000))
	}
	to := 0
	if e == p.ends[0] {
		to = 1
	}
	p.net = append(p.net, flight{at: at, to: to, path: *path, data: bytes.Clone(pkt)})
}

// work posts sends while there are jobs and room, and receives now and then.
func (e *pairEnd) work() {
	rnd := e.p.rnd
	for len(e.recvs) < pairDepth && rnd.IntN(3) == 0 {
		r := recvJob{wrid: rnd.Uint64(), at: 2*quarter + e.recvAt, n: longest}
		if e.recvAt += longest; e.recvAt+longest > quarter {
			e.recvAt = 0
		}
		if err := e.rq.Post(r.wrid, e.cut(r.at, r.n)); err != nil {
			e.p.t.Error(err)
			return
		}
		e.recvs = append(e.recvs, r)
	}
	for e.todo > 0 && len(e.jobs) < pairDepth && rnd.IntN(4) > 0 {
		e.todo--
		e.postJob()
	}
}

// cut splits n bytes of the memory into up to four SGEs.
func (e *pairEnd) cut(at, n int) (l []SGE) {
	for i := 0; i < 3 && n > 0; i++ {
		c := e.p.rnd.IntN(n + 1)
		l = append(l, SGE{Addr: pairBase + uint64(at), Length: uint32(c), LKey: e.mem.LKey})
		at, n = at+c, n-c
	}
	return append(l, SGE{Addr: pairBase + uint64(at), Length: uint32(n), LKey: e.mem.LKey})
}

func (e *pairEnd) postJob() {
	rnd := e.p.rnd
	ops := []Op{OpSend, OpSendImm, OpWrite, OpWriteImm, OpRead, OpCmpSwap, OpFetchAdd, OpAtomicWrite, OpFlush}
	j := pairJob{wrid: rnd.Uint64(), op: ops[rnd.IntN(len(ops))], n: rnd.IntN(longest) >> rnd.IntN(12)}
	w := &SendWQE{Op: j.op}
	if w.isAtomic() || j.op == OpAtomicWrite {
		j.n = 8
		e.target = (e.target + 7) &^ 7
	}
	if e.local+j.n+8 > quarter {
		e.local = 0
	}
	if e.target+j.n > quarter {
		e.target = 0
	}
	j.local, j.target = e.local, quarter+e.target
	e.local, e.target = e.local+j.n, e.target+j.n

	q := e.qp.SQ
	q.Lock()
	w = q.Next()
	keep := w.requesterWQE
	*w = SendWQE{
		Inline: w.Inline,
		WRID:   j.wrid, Op: j.op, Imm: rnd.Uint32(), SGEs: append(w.SGEs, e.cut(j.local, j.n)...), Length: uint32(j.n),
		RKey: e.peer.mem.RKey, RemoteAddr: pairBase + uint64(j.target), Flags: SendFlags(rnd.IntN(8)) | Signaled,
	}
	w.requesterWQE = keep
	q.More(w)
	if e.qp.Type == XRCSend {
		q.More(w).RemoteSRQN = e.peer.srqns[rnd.IntN(len(e.peer.srqns))]
	}
	switch j.op {
	case OpSend, OpSendImm, OpWrite, OpWriteImm, OpAtomicWrite:
		for i := range e.mem.Buf[j.local : j.local+j.n] {
			e.mem.Buf[j.local+i] = byte(rnd.Uint32())
		}
		if j.n <= 512 && rnd.IntN(2) == 0 {
			w.Flags |= Inline
			w.Inline, w.SGEs = append(q.InlineRoom(w, j.n), e.mem.Buf[j.local:j.local+j.n]...), w.SGEs[:0]
		}
		copy(e.want[j.local:], e.mem.Buf[j.local:j.local+j.n])
		if j.op == OpSend || j.op == OpSendImm {
			e.peer.incoming = append(e.peer.incoming, bytes.Clone(e.mem.Buf[j.local:j.local+j.n]))
		}
	case OpFetchAdd:
		j.was, w.CompareAdd = e.word, rnd.Uint64()
		e.word += w.CompareAdd
	case OpCmpSwap: // half of them match
		j.was, w.CompareAdd, w.Swap = e.word, e.word+uint64(rnd.IntN(2)), rnd.Uint64()
		if w.CompareAdd == e.word {
			e.word = w.Swap
		}
	case OpFlush:
		w.SGEs, w.Imm = w.SGEs[:0], flushGlobal
	}
	if w.isAtomic() {
		w.RemoteAddr = pairBase + 3*quarter
	}
	switch j.op {
	case OpWriteImm:
		e.peer.incoming = append(e.peer.incoming, nil)
		e.peer.imms = append(e.peer.imms, w.Imm)
	case OpSendImm:
		e.peer.imms = append(e.peer.imms, w.Imm)
	}
	e.jobs = append(e.jobs, j)
	q.Commit()
	q.Publish()
	q.Unlock()
	e.qp.OnDoorbell(e.p.now)
}

// Push checks a completion against the program's state.
func (e *pairEnd) Push(c *CQE) {
	t := e.p.t
	if e.p.log != nil {
		e.note("wr %d op %d status %d", c.WRID, c.Op, c.Status)
		return
	}
	if c.Status != Success {
		if c.Cause.First == nil {
			t.Errorf("at %d ns QP %d: wr %x op %d status %d: %+v", e.p.now, e.qp.Num, c.WRID, c.Op, c.Status, *c.Cause)
		}
		return
	}
	if !c.Send {
		e.received(c)
		return
	}
	j := e.jobs[0]
	e.jobs = e.jobs[1:]
	e.qp.SQ.Release(c.Slot)
	if c.WRID != j.wrid {
		t.Errorf("completion of %x, want %x", c.WRID, j.wrid)
	}
	there, here := e.peer.mem.Buf[j.target:j.target+j.n], e.mem.Buf[j.local:j.local+j.n]
	switch j.op {
	case OpWrite, OpWriteImm, OpAtomicWrite:
		if !bytes.Equal(here, there) {
			t.Errorf("WRITE of %d bytes: wrong bytes", j.n)
		}
		copy(e.peer.want[j.target:], here)
	case OpRead:
		if !bytes.Equal(here, there) || int(c.ByteLen) != j.n {
			t.Errorf("READ of %d bytes: wrong bytes", j.n)
		}
		copy(e.want[j.local:], there)
	case OpFetchAdd, OpCmpSwap:
		if was := binary.NativeEndian.Uint64(here); was != j.was {
			t.Errorf("atomic returned %x, want %x", was, j.was)
		}
		copy(e.want[j.local:], here)
	}
}

func (e *pairEnd) received(c *CQE) {
	t := e.p.t
	r := e.recvs[0]
	e.recvs = e.recvs[1:]
	e.rq.Release(1)
	if c.QPN != e.in.Num || c.RQ != e.rq {
		t.Errorf("the receive is of QP %d", c.QPN)
	}
	msg := e.incoming[0]
	e.incoming = e.incoming[1:]
	if c.Flags&WithImm != 0 {
		if c.Imm != e.imms[0] {
			t.Errorf("immediate data %x, want %x", c.Imm, e.imms[0])
		}
		e.imms = e.imms[1:]
	}
	if c.WRID != r.wrid {
		t.Errorf("receive %x completed, want %x", c.WRID, r.wrid)
	}
	if msg == nil != (c.Op == CQRecvRDMAImm) {
		t.Errorf("receive opcode %d", c.Op)
	}
	if msg != nil && (int(c.ByteLen) != len(msg) || !bytes.Equal(e.mem.Buf[r.at:r.at+len(msg)], msg)) {
		t.Errorf("receive of %d bytes: wrong bytes", c.ByteLen)
	}
	copy(e.want[r.at:], msg)
}
