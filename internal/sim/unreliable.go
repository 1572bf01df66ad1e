package sim

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// An unreliable pair sends from one QP to the other. Messages may get lost, and on a network that repeats and
// reorders packets they may come twice or out of order; but what arrives is whole and was sent, and each
// message carries its number in its first bytes. Send completions come in order, whatever the network does.
const (
	plainSource  = 16 << 10
	plainRecv    = 8<<10 + 64
	plainSlots   = 12
	plainTarget  = 256 << 10 // UC: every WRITE has a place of its own
	plainLongest = 8 << 10
	grhLen       = 40
)

type plainPair struct {
	w        *world
	name     string
	ud       bool
	from, to *verbs.QP
	src, dst []byte
	srcMR    *verbs.MR
	dstMR    *verbs.MR
	ah       *verbs.AH
	toInfo   verbs.QPInfo
	longest  int

	sent      [][]byte // all messages so far
	pending   []uint64 // ids of requests without completion
	nextID    uint64
	recvs     []int
	free      []int
	written   int    // bytes of target that are taken
	target    []byte // what they would be if all WRITEs arrived
	delivered int
	still     bool
}

func newUnreliablePair(w *world) (pair, error) {
	p := &plainPair{w: w, ud: w.rand.IntN(2) == 0, name: fmt.Sprintf("plain%d", len(w.pairs)), longest: plainLongest}
	typ := verbs.QPTypeUC
	if p.ud {
		typ = verbs.QPTypeUD
		p.longest = 4096
	}
	n, m := w.nodes[0], w.nodes[1]
	p.src, p.dst = make([]byte, plainSource), make([]byte, plainSlots*plainRecv+plainTarget)
	p.target = make([]byte, plainTarget)
	for i := range plainSlots {
		p.free = append(p.free, i)
	}
	var err error
	if p.srcMR, err = n.pd.RegMR(p.src, 0); err != nil {
		return nil, err
	}
	if p.dstMR, err = m.pd.RegMR(p.dst, verbs.AccessLocalWrite|verbs.AccessRemoteWrite); err != nil {
		return nil, err
	}
	caps := verbs.QPCap{MaxSendWR: 32, MaxRecvWR: plainSlots, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: 64}
	if p.from, err = n.pd.CreateQP(&verbs.QPInitAttr{Type: typ, SendCQ: w.cq(n), RecvCQ: w.cq(n), SigAll: true, Cap: caps}); err != nil {
		return nil, err
	}
	if p.to, err = m.pd.CreateQP(&verbs.QPInitAttr{Type: typ, SendCQ: w.cq(m), RecvCQ: w.cq(m), SigAll: true, Cap: caps}); err != nil {
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

func (p *plainPair) quiet()     { p.still = true }
func (p *plainPair) end() error { return nil }

func (p *plainPair) act() error {
	r := p.w.rand
	switch {
	case p.still:
		return nil
	case r.IntN(2) == 0 && len(p.free) > 0:
		slot := p.free[0]
		p.free = p.free[1:]
		p.recvs = append(p.recvs, slot)
		return p.to.PostRecv(verbs.RecvWR{WRID: uint64(slot), SGList: []verbs.SGE{p.dstMR.SGE(slot*plainRecv, plainRecv)}})
	case len(p.pending) < 16 && !p.ud && r.IntN(3) == 0:
		return p.write()
	case len(p.pending) < 16:
		return p.send()
	}
	return nil
}

// message draws a message of n bytes, puts it in a slot of source that no request under way uses, and returns it.
func (p *plainPair) message(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(p.w.rand.Uint32())
	}
	return b
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
	p.pending = append(p.pending, wr.WRID)
	p.w.note("%s: %v #%d", p.name, wr.Opcode, wr.WRID)
	return p.from.PostSend(wr)
}

func (p *plainPair) completed(wc *verbs.WC) error {
	if wc.Status != verbs.WCSuccess {
		return fmt.Errorf("%s: %v of request %d: %w", p.name, wc.Status, wc.WRID, wc.Err())
	}
	if wc.Opcode&verbs.WCRecv == 0 {
		if len(p.pending) == 0 || p.pending[0] != wc.WRID {
			return fmt.Errorf("%s: completion of request %d, outstanding are %v", p.name, wc.WRID, p.pending)
		}
		p.pending = p.pending[1:]
		return nil
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
		return fmt.Errorf("%s: a message of %d bytes, which nobody sent", p.name, len(got))
	}
	i := binary.BigEndian.Uint32(got)
	if int(i) >= len(p.sent) || !bytes.Equal(got, p.sent[i]) {
		return fmt.Errorf("%s: a message of %d bytes arrived that was not sent like that", p.name, len(got))
	}
	if wc.WCFlags&verbs.WCWithImm != 0 && wc.ImmData != ^i {
		return fmt.Errorf("%s: message %d has immediate data %#x", p.name, i, wc.ImmData)
	}
	p.delivered++
	return nil
}

func (p *plainPair) done() (bool, string) {
	return len(p.pending) == 0, fmt.Sprintf("%s: %d requests", p.name, len(p.pending))
}

// check looks at what the WRITEs left: every byte is the one written, or still zero because the packet was lost.
func (p *plainPair) check() error {
	for i, b := range p.dst[plainSlots*plainRecv:] {
		if b != 0 && b != p.target[i] {
			return fmt.Errorf("%s: byte %d of the target is %#x, written was %#x", p.name, i, b, p.target[i])
		}
	}
	return nil
}

func (p *plainPair) close() error {
	if p.from == nil {
		return nil // closed by the other node
	}
	steps := []interface{ Close() error }{p.from, p.to, p.srcMR, p.dstMR}
	if p.ah != nil {
		steps = append(steps, p.ah)
	}
	for _, s := range steps {
		if err := s.Close(); err != nil {
			return err
		}
	}
	p.from = nil
	return nil
}
