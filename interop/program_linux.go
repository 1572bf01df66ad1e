package main

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/verbena-rdma/verbena/interop/agent"
	"github.com/verbena-rdma/verbena/verbs"
)

// op is an operation of the active end on the passive end's memory.
type op struct {
	do            verbs.WROpcode
	local, remote int      // offsets
	n             int      // bytes
	pieces        [][2]int // ranges of local memory, instead of local and n
	into          [][2]int // SENDs: ranges of remote memory for the receive, instead of remote and n
	imm           uint32
	add           uint64 // FETCH_ADD: addend; CMP_SWAP: comparand
	swap          uint64
	match         bool            // CMP_SWAP: compare with the value before the batch
	flags         verbs.SendFlags // SendSignaled is added unless quiet is set
	quiet         bool
	qp            int
	key           uint32 // key of a memory window, instead of the region's
}

const grhLen = 40 // length of the GRH before the payload in a UD receive buffer

// program is a verbs case in which everything succeeds. The operations of a batch are posted together, the
// next batch follows when all of it is complete at both ends. At the end every byte of both regions must be
// as the program computes it.
type program struct {
	name    string
	typ     string // RC, UC, UD
	family  int
	mtu     int
	size    int // of each region
	psn     uint32
	depth   int // READs and atomics outstanding
	inline  int
	srq     bool
	qps     int
	access  verbs.AccessFlags // of the regions; 0 means allAccess
	place   bool              // uses ATOMIC_WRITE
	network network
	timeout time.Duration
	batches [][]op
}

const allAccess = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

// side is one end while a program runs.
type side struct {
	*end
	open agent.Response
	mem  []byte // expected content of its memory
}

// open creates the objects of an end and fills its memory with bytes that depend on seed.
func (p *program) open(env *caseEnv, at *place, seed uint64) (*side, error) {
	e, err := env.ends.of(at)
	if err != nil {
		return nil, err
	}
	s := &side{end: e, mem: make([]byte, p.size)}
	binary.LittleEndian.PutUint64(s.mem, seed)
	key := sha256.Sum256(s.mem[:8])
	_, _ = rand.NewChaCha8(key).Read(s.mem)
	access := p.access
	if access == 0 {
		access = allAccess
	}
	s.open, err = e.do(agent.Request{
		Op: agent.Open, Type: p.typ, Family: p.family, Size: p.size, Access: uint32(access), QPAccess: uint32(allAccess),
		MaxSend: 64, MaxRecv: 64, MaxSGE: 8, Inline: p.inline, SRQ: p.srq, QPs: max(p.qps, 1), Place: p.place,
	})
	if err != nil {
		return nil, err
	}
	_, err = e.do(agent.Request{Op: agent.Put, Data: s.mem})
	return s, err
}

// path returns the path from one end to the other's QP.
func (p *program) path(to *side, qp int, fromPSN, toPSN uint32) agent.Path {
	return agent.Path{
		QPN: to.open.QPNs[qp], GID: to.open.GID, MTU: p.mtu, SQPSN: fromPSN, RQPSN: toPSN, RdAtomic: p.depth,
		DestRdAtomic: p.depth,
		RNRTimer:     12, Timeout: 14, Retry: 7, RNRRetry: 7, QKey: verbs.DefaultQKey,
	}
}

func (p *program) run(env *caseEnv, active, passive *place) error {
	a, err := p.open(env, active, 1)
	if err != nil {
		return err
	}
	b, err := p.open(env, passive, 2)
	if err != nil {
		return err
	}
	for i := range max(p.qps, 1) {
		const otherPSN = 0x123456
		if _, err := a.do(agent.Request{Op: agent.Connect, QP: i, Path: p.path(b, i, p.psn, otherPSN)}); err != nil {
			return err
		}
		if _, err := b.do(agent.Request{Op: agent.Connect, QP: i, Path: p.path(a, i, otherPSN, p.psn)}); err != nil {
			return err
		}
	}
	for i, batch := range p.batches {
		if err := p.batch(env, a, b, batch); err != nil {
			return fmt.Errorf("batch %d of %d: %w", i+1, len(p.batches), err)
		}
	}
	for _, s := range []*side{a, b} {
		if err := s.compare(); err != nil {
			return err
		}
	}
	for _, s := range []*side{a, b} {
		if _, err := s.do(agent.Request{Op: agent.Close}); err != nil {
			return err
		}
	}
	return nil
}

// batch posts the operations of a batch, waits for their completions at both ends and applies them to the
// model.
func (p *program) batch(env *caseEnv, a, b *side, ops []op) error {
	ops = append([]op(nil), ops...)
	recvs, sends := map[int][]agent.WR{}, map[int][]agent.WR{}
	var wantRecv, wantSend []op
	for i := range ops {
		o := &ops[i]
		if o.do == verbs.WRAtomicCmpAndSwp && o.match {
			o.add = binary.LittleEndian.Uint64(b.mem[o.remote:])
		}
		if o.takesReceive() {
			recvs[o.qp] = append(recvs[o.qp], agent.WR{ID: uint64(100 + i), SGE: p.receive(*o)})
			wantRecv = append(wantRecv, *o)
		}
		if !o.quiet {
			wantSend = append(wantSend, *o)
		}
		sends[o.qp] = append(sends[o.qp], p.request(b, *o, uint64(i)))
	}
	for qp, wrs := range recvs {
		if _, err := b.do(agent.Request{Op: agent.Recv, QP: qp, WRs: wrs}); err != nil {
			return err
		}
	}
	for qp, wrs := range sends {
		if _, err := a.do(agent.Request{Op: agent.Send, QP: qp, WRs: wrs}); err != nil {
			return err
		}
	}
	limit := int(env.left().Milliseconds())
	if err := p.await(a, "send", wantSend, limit, checkSend); err != nil {
		return err
	}
	if p.typ != "RC" {
		limit = min(limit, 5000) // lost messages do not arrive later
	}
	if err := p.await(b, "recv", wantRecv, limit, p.checkRecv(a)); err != nil {
		return err
	}
	for _, o := range ops {
		if err := p.apply(a, b, o); err != nil {
			return err
		}
	}
	return nil
}

// takesReceive reports whether the operation consumes a receive of the passive end.
func (o op) takesReceive() bool {
	switch o.do {
	case verbs.WRSend, verbs.WRSendWithImm, verbs.WRSendWithInv, verbs.WRRDMAWriteWithImm:
		return true
	}
	return false
}

// gather returns the operation's local memory.
func (o op) gather() [][2]int {
	if o.pieces != nil {
		return o.pieces
	}
	if o.n == 0 {
		return nil
	}
	return [][2]int{{o.local, o.n}}
}

// receive returns the memory of the receive for an operation.
func (p *program) receive(o op) [][2]int {
	if o.do == verbs.WRRDMAWriteWithImm {
		return nil
	}
	if o.into != nil {
		return o.into
	}
	n := o.n
	if p.typ == "UD" {
		n += grhLen
	}
	if n == 0 {
		return nil
	}
	return [][2]int{{o.remote, n}}
}

func (p *program) request(b *side, o op, id uint64) agent.WR {
	wr := agent.WR{ID: id, SGE: o.gather(), Opcode: int(o.do), Flags: int(o.flags | verbs.SendSignaled), Imm: o.imm}
	if o.quiet {
		wr.Flags = int(o.flags)
	}
	switch o.do {
	case verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm, verbs.WRRDMARead, verbs.WRAtomicCmpAndSwp,
		verbs.WRAtomicFetchAndAdd, verbs.WRAtomicWrite:
		wr.RAddr, wr.RKey = b.open.Addr+uint64(o.remote), b.open.RKey
		if o.key != 0 {
			wr.RKey = o.key
		}
		wr.CompareAdd, wr.Swap = o.add, o.swap
	}
	if p.typ == "UD" {
		wr.QPN, wr.QKey, wr.GID = b.open.QPNs[o.qp], verbs.DefaultQKey, b.open.GID
	}
	return wr
}

// await polls for the completions of want, in order, and checks each.
func (p *program) await(s *side, cq string, want []op, limit int, check func(op, agent.WC) error) error {
	if len(want) == 0 {
		return nil
	}
	resp, err := s.do(agent.Request{Op: agent.Poll, CQ: cq, N: len(want), MS: limit})
	if err != nil {
		return err
	}
	for i, wc := range resp.WCs {
		if err := check(want[i], wc); err != nil {
			return fmt.Errorf("%s: %s completion %d of %d: %w: %+v", s.place.name, cq, i+1, len(want), err, wc)
		}
	}
	if len(resp.WCs) < len(want) {
		return fmt.Errorf("%s: %d %s completions of %d", s.place.name, len(resp.WCs), cq, len(want))
	}
	return nil
}

var sendOpcodes = map[verbs.WROpcode]verbs.WCOpcode{
	verbs.WRSend: verbs.WCSend, verbs.WRSendWithImm: verbs.WCSend, verbs.WRSendWithInv: verbs.WCSend,
	verbs.WRRDMAWrite: verbs.WCRDMAWrite, verbs.WRRDMAWriteWithImm: verbs.WCRDMAWrite, verbs.WRRDMARead: verbs.WCRDMARead,
	verbs.WRAtomicCmpAndSwp: verbs.WCCompSwap, verbs.WRAtomicFetchAndAdd: verbs.WCFetchAdd,
	verbs.WRAtomicWrite: verbs.WCAtomicWrite,
}

func checkSend(o op, wc agent.WC) error {
	switch {
	case wc.Status != 0:
		return fmt.Errorf("status %v", verbs.WCStatus(wc.Status))
	case wc.Opcode != int(sendOpcodes[o.do]):
		return fmt.Errorf("opcode %v", verbs.WCOpcode(wc.Opcode))
	case o.do == verbs.WRRDMARead && wc.Len != uint32(o.n):
		return fmt.Errorf("length %d, want %d", wc.Len, o.n)
	}
	return nil
}

func (p *program) checkRecv(from *side) func(o op, wc agent.WC) error {
	return func(o op, wc agent.WC) error {
		opcode, n := verbs.WCRecv, o.n
		if o.do == verbs.WRRDMAWriteWithImm {
			opcode = verbs.WCRecvRDMAWithImm
		}
		if p.typ == "UD" {
			n += grhLen
		}
		hasImm := o.do == verbs.WRSendWithImm || o.do == verbs.WRRDMAWriteWithImm
		switch {
		case wc.Status != 0:
			return fmt.Errorf("status %v", verbs.WCStatus(wc.Status))
		case wc.Opcode != int(opcode):
			return fmt.Errorf("opcode %v", verbs.WCOpcode(wc.Opcode))
		case wc.Len != uint32(n):
			return fmt.Errorf("length %d, want %d", wc.Len, n)
		case (verbs.WCFlags(wc.Flags)&verbs.WCWithImm != 0) != hasImm:
			return fmt.Errorf("flags %v", verbs.WCFlags(wc.Flags))
		case hasImm && wc.Imm != o.imm:
			return fmt.Errorf("immediate data %#x, want %#x", wc.Imm, o.imm)
		case p.typ == "UD" && wc.SrcQP != from.open.QPNs[o.qp]:
			return fmt.Errorf("source QP %#x, want %#x", wc.SrcQP, from.open.QPNs[o.qp])
		}
		return nil
	}
}

// apply applies an operation to the model.
func (p *program) apply(a, b *side, o op) error {
	var data []byte
	for _, g := range o.gather() {
		data = append(data, a.mem[g[0]:g[0]+g[1]]...)
	}
	order := binary.LittleEndian // of both processors
	switch o.do {
	case verbs.WRRDMARead:
		scatter(a.mem, o.gather(), b.mem[o.remote:o.remote+o.n])
	case verbs.WRAtomicCmpAndSwp, verbs.WRAtomicFetchAndAdd:
		old := order.Uint64(b.mem[o.remote:])
		order.PutUint64(a.mem[o.local:], old)
		if o.do == verbs.WRAtomicFetchAndAdd {
			order.PutUint64(b.mem[o.remote:], old+o.add)
		} else if old == o.add {
			order.PutUint64(b.mem[o.remote:], o.swap)
		}
	case verbs.WRSend, verbs.WRSendWithImm, verbs.WRSendWithInv:
		if p.typ == "UD" {
			return p.datagram(a, b, o, data)
		}
		scatter(b.mem, p.receive(o), data)
	default:
		copy(b.mem[o.remote:], data)
	}
	return nil
}

// scatter writes data into ranges of mem.
func scatter(mem []byte, pieces [][2]int, data []byte) {
	for _, g := range pieces {
		n := copy(mem[g[0]:g[0]+g[1]], data)
		data = data[n:]
	}
}

// datagram checks the GRH of a UD message and copies it into the model, since some of its fields are
// unpredictable.
func (p *program) datagram(a, b *side, o op, data []byte) error {
	resp, err := b.do(agent.Request{Op: agent.Get, Off: o.remote, Len: grhLen})
	if err != nil {
		return err
	}
	if err := checkGRH(resp.Data, a.open.GID, b.open.GID, p.family); err != nil {
		return fmt.Errorf("%s: %w: % x", b.place.name, err, resp.Data)
	}
	copy(b.mem[o.remote:], resp.Data)
	copy(b.mem[o.remote+grhLen:], data)
	return nil
}

// checkGRH checks the header before a UD payload: an IPv6 header, or 20 bytes and an IPv4 header.
func checkGRH(grh []byte, src, dst string, family int) error {
	from, err := verbs.ParseGID(src)
	if err != nil {
		return err
	}
	to, err := verbs.ParseGID(dst)
	if err != nil {
		return err
	}
	const udp = 17
	if family == 4 {
		ip := grh[20:]
		if ip[0] != 0x45 || ip[9] != udp || string(ip[12:16]) != string(from[12:]) || string(ip[16:20]) != string(to[12:]) {
			return fmt.Errorf("the GRH is not an IPv4 header from %s to %s", from, to)
		}
		return nil
	}
	if grh[0]>>4 != 6 || grh[6] != udp || string(grh[8:24]) != string(from[:]) || string(grh[24:40]) != string(to[:]) {
		return fmt.Errorf("the GRH is not an IPv6 header from %s to %s", from, to)
	}
	return nil
}

// compare checks that every byte of the end's memory equals the model's.
func (s *side) compare() error {
	resp, err := s.do(agent.Request{Op: agent.Sum, Len: len(s.mem)})
	if err != nil {
		return err
	}
	sum := sha256.Sum256(s.mem)
	if resp.Sum == hex.EncodeToString(sum[:]) {
		return nil
	}
	resp, err = s.do(agent.Request{Op: agent.Get, Len: len(s.mem)})
	if err != nil {
		return err
	}
	first, wrong := -1, 0
	for i := range s.mem {
		if resp.Data[i] != s.mem[i] {
			if wrong++; first < 0 {
				first = i
			}
		}
	}
	if first < 0 {
		return fmt.Errorf("%s: memory changed while it was compared", s.place.name)
	}
	end := min(first+16, len(s.mem))
	return fmt.Errorf("%s: %d of %d bytes of memory are wrong, the first at offset %d: % x, want % x", s.place.name,
		wrong, len(s.mem), first,
		resp.Data[first:end], s.mem[first:end])
}
