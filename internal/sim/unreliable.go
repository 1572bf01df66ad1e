package sim

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// An unreliable pair sends from one QP to the other. Messages may be lost, and on a network that duplicates and
// reorders packets they may arrive twice or out of order. Every message that arrives is complete and was sent; its
// first bytes are its number. Send completions are in order on every network.
const (
	plainSource  = 16 << 10
	plainRecv    = 8<<10 + 64
	plainSlots   = 12
	plainTarget  = 96 << 10 // UC: every WRITE has its own place
	plainLongest = 8 << 10
	grhLen       = 40
)

// plains are the memories of unreliable pairs.
var plains = memories{size: plainSource + plainSlots*plainRecv + plainTarget}

type plainPair struct {
	w        *world
	name     string
	ud       bool
	from, to *verbs.QP
	buf      []byte // src and dst
	src, dst []byte
	srcMR    *verbs.MR
	dstMR    *verbs.MR
	ah       *verbs.AH
	toInfo   verbs.QPInfo
	longest  int

	sent    [][]byte    // all messages so far
	pending []plainSend // requests without completion
	bad     uint64      // number of the request that must fail; 0: none
	sqe     bool        // that request has failed
	nextID  uint64
	recvs   []int
	free    []int
	written int    // bytes of target in use
	target  []byte // the content if all WRITEs arrive
	still   bool
	gone    bool // one of its nodes was killed
	n, m    *node
	last    int // number of the message received last, -1 before the first
	certain int // the first of the messages that must arrive, in order; -1: none must
}

// plainSend is a request of an unreliable pair.
type plainSend struct {
	id    uint64
	msg   int // number of the message, -1 for a WRITE
	at, n int // of a WRITE: its place in the target
}

func newUnreliablePair(w *world, n, m *node) (pair, error) {
	p := &plainPair{w: w, n: n, m: m, ud: w.rand.IntN(2) == 0, name: fmt.Sprintf("plain%d", len(w.pairs)),
		longest: plainLongest, last: -1, certain: -1, nextID: plainSlots}
	typ := verbs.QPTypeUC
	if p.ud {
		typ = verbs.QPTypeUD
		p.longest = 4096
	}
	p.target = make([]byte, plainTarget)
	for i := range plainSlots {
		p.free = append(p.free, i)
	}
	var err error
	if p.buf, err = plains.get(); err != nil {
		return nil, err
	}
	p.src, p.dst = p.buf[:plainSource], p.buf[plainSource:]
	clear(p.dst)
	if p.srcMR, err = n.pd.RegMR(p.src, 0); err != nil {
		return nil, err
	}
	if p.dstMR, err = m.pd.RegMR(p.dst, verbs.AccessLocalWrite|verbs.AccessRemoteWrite); err != nil {
		return nil, err
	}
	caps := verbs.QPCap{MaxSendWR: 32, MaxRecvWR: plainSlots, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: 64}
	init := verbs.QPInitAttr{Type: typ, SendCQ: n.cq(), RecvCQ: n.cq(), SigAll: true, Cap: caps}
	if p.from, err = n.pd.CreateQP(&init); err != nil {
		return nil, err
	}
	init.SendCQ, init.RecvCQ = m.cq(), m.cq()
	if p.to, err = m.pd.CreateQP(&init); err != nil {
		return nil, err
	}
	n.owner[p.from.QPN()], m.owner[p.to.QPN()] = p, p
	return p, p.connect(n)
}

func (p *plainPair) connect(n *node) error {
	var err error
	if p.toInfo, err = p.to.LocalInfo(); err != nil {
		return err
	}
	l := newLink(p.w)
	if err := l.connect(p.from, p.to, 0); err != nil {
		return err
	}
	if err := l.connect(p.to, p.from, 1); err != nil || !p.ud {
		return err
	}
	attr, err := p.from.AHAttrTo(p.toInfo, nil)
	if err != nil {
		return err
	}
	p.ah, err = n.pd.CreateAH(&attr)
	return err
}

func (p *plainPair) quiet() { p.still = true }

func (p *plainPair) act() error {
	r := p.w.rand
	switch {
	case p.gone:
		return nil
	case p.sqe && len(p.pending) == 0:
		return p.resume()
	case p.still:
		return p.sendCertain()
	case p.bad == 0 && !p.w.near && r.IntN(100) == 0:
		return p.sendBad()
	case r.IntN(2) == 0 && len(p.free) > 0:
		return p.postRecv()
	case len(p.pending) < 16 && !p.ud && r.IntN(3) == 0:
		return p.write()
	case len(p.pending) < 16:
		return p.send()
	}
	return nil
}

func (p *plainPair) postRecv() error {
	slot := p.free[0]
	p.free = p.free[1:]
	p.recvs = append(p.recvs, slot)
	return p.to.PostRecv(verbs.RecvWR{WRID: uint64(slot), SGList: []verbs.SGE{p.dstMR.SGE(slot*plainRecv, plainRecv)}})
}

// tail posts receives, and starts to send messages that must arrive in order: the network has no faults now.
func (p *plainPair) tail() error {
	if p.gone || p.w.net.cut[p.n.index][p.m.index] {
		return nil
	}
	for len(p.free) > 0 {
		if err := p.postRecv(); err != nil {
			return err
		}
	}
	p.certain = len(p.sent)
	return nil
}

// tailLength is the number of messages that must arrive.
const tailLength = 4

// sendCertain sends the next of the messages that must arrive.
func (p *plainPair) sendCertain() error {
	if p.certain < 0 || p.sqe || len(p.sent) == p.certain+tailLength || len(p.pending) > 0 {
		return nil
	}
	p.w.tally.Tails++
	return p.send()
}

// message draws a message of n bytes.
func (p *plainPair) message(n int) []byte {
	return bytes.Clone(noise()[p.w.rand.IntN(len(noise())-n):][:n])
}

func (p *plainPair) send() error {
	n := 4 + p.w.rand.IntN(60)
	if p.w.rand.IntN(2) == 0 {
		n = 4 + p.w.rand.IntN(p.longest-3)
	}
	msg := p.message(n)
	binary.BigEndian.PutUint32(msg, uint32(len(p.sent)))
	p.sent = append(p.sent, msg)
	wr := verbs.SendWR{Opcode: verbs.WRSend}
	if p.w.rand.IntN(2) == 0 {
		wr.Opcode, wr.ImmData = verbs.WRSendWithImm, ^uint32(len(p.sent)-1)
	}
	if p.ud {
		wr.AH, wr.RemoteQPN, wr.RemoteQKey = p.ah, p.toInfo.QPN, p.toInfo.QKey
		if p.certain < 0 && p.w.rand.IntN(16) == 0 {
			wr.RemoteQKey ^= 0x100
			p.sent[len(p.sent)-1] = nil // must not arrive
		}
	}
	return p.post(wr, msg)
}

func (p *plainPair) write() error {
	n := p.w.rand.IntN(3000)
	if p.written+n > plainTarget {
		return nil
	}
	msg := p.message(n)
	copy(p.target[p.written:], msg)
	wr := verbs.SendWR{Opcode: verbs.WRRDMAWrite, RKey: p.dstMR.RKey(),
		RemoteAddr: p.dstMR.Addr() + uint64(plainSlots*plainRecv+p.written)}
	p.written += n
	return p.post(wr, msg)
}

func (p *plainPair) post(wr verbs.SendWR, msg []byte) error {
	p.nextID++
	wr.WRID = p.nextID
	if len(msg) <= 64 && p.w.rand.IntN(2) == 0 {
		wr.Flags, wr.Inline = verbs.SendInline, msg
	} else {
		if len(p.pending) > 0 {
			p.nextID--
			if wr.Opcode != verbs.WRRDMAWrite {
				p.sent = p.sent[:len(p.sent)-1]
			} else {
				p.written -= len(msg)
				clear(p.target[p.written : p.written+len(msg)])
			}
			return nil // the source is in use
		}
		copy(p.src, msg)
		wr.SGList = []verbs.SGE{p.srcMR.SGE(0, len(msg))}
	}
	s := plainSend{id: wr.WRID, msg: len(p.sent) - 1}
	if wr.Opcode == verbs.WRRDMAWrite {
		s = plainSend{id: wr.WRID, msg: -1, at: p.written - len(msg), n: len(msg)}
	}
	p.pending = append(p.pending, s)
	p.w.note(p.name, wr.Opcode, wr.WRID)
	p.w.tally.Posted++
	return p.from.PostSend(wr)
}

func (p *plainPair) completed(wc *verbs.WC) error {
	if wc.WRID >= plainSlots {
		return p.sendCompleted(wc)
	}
	if wc.Status != verbs.WCSuccess {
		return fmt.Errorf("%s: %v of receive %d: %w", p.name, wc.Status, wc.WRID, wc.Err())
	}
	if len(p.recvs) == 0 || p.recvs[0] != int(wc.WRID) {
		return fmt.Errorf("%s: receive %d completes, posted are %v", p.name, wc.WRID, p.recvs)
	}
	slot := p.recvs[0]
	p.recvs, p.free = p.recvs[1:], append(p.free, slot)
	got := p.dst[slot*plainRecv:][:wc.ByteLen]
	if p.ud {
		if wc.WCFlags&verbs.WCGRH == 0 || wc.SrcQP != p.from.QPN() || len(got) < grhLen {
			return fmt.Errorf("%s: a UD receive of %d bytes, flags %v, from QP %#x", p.name, len(got), wc.WCFlags, wc.SrcQP)
		}
		got = got[grhLen:]
	}
	return p.received(wc, got)
}

func (p *plainPair) received(wc *verbs.WC, got []byte) error {
	if len(got) < 4 {
		return fmt.Errorf("%s: a message of %d bytes that was not sent", p.name, len(got))
	}
	i := binary.BigEndian.Uint32(got)
	if int(i) >= len(p.sent) || !bytes.Equal(got, p.sent[i]) {
		return fmt.Errorf("%s: a message of %d bytes differs from the sent one", p.name, len(got))
	}
	if wc.WCFlags&verbs.WCWithImm != 0 && wc.ImmData != ^i {
		return fmt.Errorf("%s: message %d has immediate data %#x", p.name, i, wc.ImmData)
	}
	if p.certain >= 0 && int(i) != max(p.last+1, p.certain) || !p.w.net.reorders && int(i) <= p.last {
		return fmt.Errorf("%s: message %d arrives behind message %d (certain from %d on, %d sent)",
			p.name, i, p.last, p.certain, len(p.sent))
	}
	p.last = int(i)
	return nil
}

func (p *plainPair) done() bool {
	return p.gone || len(p.pending) == 0 && !p.sqe && (p.certain < 0 || p.last == p.certain+tailLength-1)
}

func (p *plainPair) String() string {
	return fmt.Sprintf("%s: %d requests, message %d was received last; those from %d on must arrive",
		p.name, len(p.pending), p.last, p.certain)
}

// check checks the effects of the WRITEs: every byte is the written one, or zero if its packet was lost.
func (p *plainPair) check() error {
	if p.gone {
		return nil
	}
	for i, b := range p.dst[plainSlots*plainRecv:] {
		if b != 0 && b != p.target[i] {
			return fmt.Errorf("%s: byte %d of the target is %#x, written was %#x", p.name, i, b, p.target[i])
		}
	}
	return nil
}

// lose closes the pair when one of its nodes is killed.
func (p *plainPair) lose(n *node) error {
	if p.gone || n != p.n && n != p.m {
		return nil
	}
	if err := p.check(); err != nil {
		return err
	}
	return p.close()
}

func (p *plainPair) close() error {
	if p.gone {
		return nil
	}
	p.gone = true
	delete(p.n.owner, p.from.QPN())
	delete(p.m.owner, p.to.QPN())
	steps := []interface{ Close() error }{p.from, p.to, p.srcMR, p.dstMR}
	if p.ah != nil {
		steps = append(steps, p.ah)
	}
	for _, s := range steps {
		if err := s.Close(); err != nil {
			return err
		}
	}
	plains.put(p.buf)
	return nil
}
