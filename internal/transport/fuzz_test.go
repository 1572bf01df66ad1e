package transport

import (
	"bytes"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/psn"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// FuzzResponder simulates a hostile peer: valid and invalid packets with receives, registrations and state changes in
// between. No byte outside the permitted regions is written or sent, every receive completes once, and replies end.
//
// A script is a header of 4 bytes and steps of 8; see hostile.step.
func FuzzResponder(f *testing.F) {
	for _, s := range append(hostileSeeds(), trainSeeds()...) {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) < 4 || len(script) > 4+8*200 {
			return
		}
		h := newHostile(t, script)
		for rest := script[4:]; len(rest) >= 8; rest = rest[8:] {
			h.step([8]byte(rest))
		}
		h.finish()
	})
}

// A byte that the peer may read is below 0x80; all others are secret. The peer never sends a secret byte, so one in a
// READ response is a leak.
const (
	secret  = 0xEE
	public  = 0x11
	padding = 256 // secret bytes around each region
)

// The regions of the QP under test. Each has only one right of a pair, so that a missing check shows.
const (
	regReadWrite = iota
	regRead
	regWrite
	regAtomic
	regLocal // receives
	regForeign
	regWindows // accessible to peers through windows only
	regCount

	regSize = 3000
)

var regAccess = [regCount]mr.Access{
	regReadWrite: mr.LocalWrite | mr.RemoteRead | mr.RemoteWrite,
	regRead:      mr.RemoteRead,
	regWrite:     mr.LocalWrite | mr.RemoteWrite,
	regAtomic:    mr.LocalWrite | mr.RemoteAtomic | mr.FlushGlobal,
	regLocal:     mr.LocalWrite,
	regForeign:   mr.LocalWrite | mr.RemoteRead | mr.RemoteWrite | mr.RemoteAtomic,
	regWindows:   mr.LocalWrite | mr.MWBind,
}

type hostile struct {
	*stage
	t       *testing.T
	arena   []byte
	regions [regCount]*mr.Region
	gone    [regCount]bool
	windows [winCount]mr.Binding
	open    bool // winOwn is bound
	attr    Attr
	rq      *RecvQueue // where receives are posted
	tags    *TagList   // nil unless rq matches tags
	posted  int
	sent    int
}

func newHostile(t *testing.T, script []byte) *hostile {
	h := &hostile{stage: newStage(t), t: t, arena: bytes.Repeat([]byte{secret}, regCount*(regSize+padding)+padding)}
	h.quiet = true
	for i := range h.regions {
		off := padding + i*(regSize+padding)
		r := &mr.Region{PD: stagePD, Access: regAccess[i], Base: uint64(0x1000 * (i + 1)), Buf: h.arena[off : off+regSize]}
		if i == regForeign {
			r.PD++
		}
		if regAccess[i]&mr.RemoteRead != 0 && i != regForeign {
			for j := range r.Buf {
				r.Buf[j] = public
			}
		}
		h.regions[i] = r
		if err := h.stage.regions.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	h.qp = NewQP(h.config(script[0]))
	h.attr = Attr{
		Path: link.Path{Src: stageAddr, Dst: peerAddr}, DestQPN: peerQPN, PKey: wire.DefaultPKey, QKey: 5,
		MTU: 256 << (script[1] & 1), RQPSN: (uint32(script[2]) - 128) & psn.Mask, MaxDestRdAtom: int(script[3] & 7),
		Timeout: 14, RetryCnt: 7,
		Access: accessWrite | accessRead | accessAtomic | accessFlush, MaxRdAtomic: int(script[3] >> 6),
	}
	if script[0]&8 != 0 {
		h.attr.Access = uint32(script[3]>>3) & (accessWrite | accessRead | accessAtomic)
	}
	h.connect()
	h.bindWindows()
	return h
}

// Kinds of QPs: bits of a script's first byte.
const (
	kindShared = 0x04 // an SRQ
	kindDenied = 0x08 // the third byte selects the QP's access flags
	kindXRC    = 0x10 // instead of RC
	kindTags   = 0x20 // with RC: the SRQ matches tags
)

// config creates the queues.
func (h *hostile) config(kind byte) Config {
	c := Config{
		Num: stageQPN, Type: []Type{RC, RC, UC, UD}[kind&3], PD: stagePD, SQ: NewSendQueue(2, 1, 0),
		SendCQ: h.stage, RecvCQ: h.stage, Regions: h.stage.regions, Host: h.stage,
	}
	rc := c.Type == RC
	switch {
	case rc && kind&kindXRC != 0:
		// The second SRQ is in a domain without memory.
		h.rq = NewRecvQueue(8, 3, true, stagePD)
		d := NewXRCD()
		d.Add(&XRCSRQ{Num: 1, Queue: h.rq, CQ: h.stage})
		d.Add(&XRCSRQ{Num: 2, Queue: NewRecvQueue(8, 3, true, stagePD+2), CQ: h.stage})
		return Config{Num: stageQPN, Type: XRCRecv, XRCD: d, Regions: h.stage.regions, Host: h.stage}
	case rc && kind&kindTags != 0:
		h.rq = NewRecvQueue(8, 3, true, stagePD)
		h.tags = h.rq.MatchTags(4, 4, 3, h.stage)
		c.SQ = NewSendQueue(OwnRequests+8, 1, 0)
		c.SQ.OwnSlots()
	default:
		h.rq = NewRecvQueue(8, 3, kind&kindShared != 0, stagePD)
	}
	c.RQ = h.rq
	return c
}

func (h *hostile) connect() {
	mask := ^Mask(0)
	if h.qp.Type == UD {
		mask &^= MaskAV | MaskDestQPN
	}
	for _, st := range []State{Init, RTR, RTS} {
		h.attr.State = st
		if err := h.qp.Modify(0, &h.attr, mask); err != nil {
			h.t.Fatal(err)
		}
	}
}

// step performs step b: its kind, then its arguments.
func (h *hostile) step(b [8]byte) {
	defer h.watchWindow()
	if b[0]&stepTrain != 0 {
		h.bringTrain(b)
		if b[0]&0x80 == 0 {
			h.send(1 << 20)
		}
		return
	}
	switch b[0] % 16 {
	case 15:
		h.window(b)
	case 10:
		h.post(b)
	case 11:
		h.send(int(b[1]))
	case 12: // register or deregister
		i := int(b[1]) % regWindows
		if h.gone[i] = !h.gone[i]; h.gone[i] {
			if err := h.stage.regions.Remove(h.regions[i]); err != nil {
				h.t.Fatal(err)
			}
		} else if err := h.stage.regions.Add(h.regions[i]); err != nil {
			h.t.Fatal(err)
		}
	case 13: // raw bytes with our QPN
		p := append([]byte{byte(h.qp.prefix()) | b[1]&31, b[2] & 0x70, 0xFF, 0xFF, 0, 0, 0, stageQPN}, b[3:]...)
		p = append(p, make([]byte, 4*int(b[2]&15))...)
		h.deliverIfPacket(p)
	case 14:
		switch b[1] % 8 {
		case 0:
			h.modify(Err)
		case 1:
			h.modify(Reset)
			h.connect()
		case 2:
			h.qp.attr.MaxDestRdAtom = int(b[2] & 7)
		}
	default:
		h.packet(b)
		if b[0]&0x80 == 0 {
			h.send(1 << 20)
		}
	}
}

func (h *hostile) modify(st State) {
	held := h.qp.resp.held
	waiting := h.rq.Posted()
	tagged := h.qp.resp.recv.matched
	used := 0
	if h.tags != nil {
		used = int(h.tags.used.Load())
	}
	if err := h.qp.Modify(0, &Attr{State: st}, MaskState); err != nil {
		h.t.Fatal(err)
	}
	if st == Reset { // posted receives are dropped without a completion
		if held && !tagged {
			h.posted--
		}
		if h.tags != nil {
			h.posted -= used - int(h.tags.used.Load())
		}
		if !h.rq.Shared() {
			h.posted -= waiting
		}
	}
}

// post posts a receive of up to three entries, most of them valid.
func (h *hostile) post(b [8]byte) {
	var sges []SGE
	for i := range int(b[1] & 3) {
		r := h.regions[regLocal]
		if b[2]>>i&1 != 0 {
			r = h.regions[int(b[3])%regWindows]
		}
		sges = append(
			sges,
			SGE{
				Addr:   r.Base + uint64(b[4])*8,
				Length: []uint32{0, 1, 39, 41, 256, 300, 1024, 1 << 31}[b[5+i%3]&7],
				LKey:   r.LKey,
			},
		)
	}
	if h.tags != nil && b[1]&4 != 0 {
		h.tag(b, sges)
		return
	}
	if h.rq.Post(1, sges) == nil {
		h.posted++
		h.qp.OnDoorbell(0)
	}
}

// tag changes the tag list, possibly in an invalid way.
func (h *hostile) tag(b [8]byte, sges []SGE) {
	op := TagOp{
		Op:         OpsCode(b[1] >> 3 % 3),
		Sync:       b[1]&64 != 0,
		Unexpected: h.tags.came - uint32(b[1]>>7),
		SGEs:       sges,
		Handle:     uint32(b[3]),
		Tag:        uint64(b[4]),
	}
	if b[2]&0x80 != 0 {
		op.Mask = ^uint64(0)
	} else {
		op.Tag = 0
	}
	if op.Op == TagDel {
		if op.Handle = h.handle(int(b[3])); op.Handle != 0 {
			h.posted--
		}
	}
	before := h.cqes
	if err := h.tags.Do(&op); err == nil && op.Op == TagAdd {
		h.posted++
	}
	h.cqes = before // completions of operations do not count as receives
}

// handle returns the handle of a buffer in the list, 0 if it is empty.
func (h *hostile) handle(n int) uint32 {
	i := h.tags.first
	for ; i >= 0 && n > 0 && h.tags.entries[i].next >= 0; n-- {
		i = h.tags.entries[i].next
	}
	if i < 0 {
		return 0
	}
	return h.tags.entries[i].handle
}

var hostileOps = []wire.Opcode{
	wire.SendFirst, wire.SendMiddle, wire.SendLast, wire.SendLastImm, wire.SendOnly, wire.SendOnlyImm, wire.SendLastInv,
	wire.SendOnlyInv,
	wire.WriteFirst, wire.WriteMiddle, wire.WriteLast, wire.WriteLastImm, wire.WriteOnly, wire.WriteOnlyImm,
	wire.ReadRequest, wire.FetchAdd, wire.CompareSwap, wire.Flush, wire.AtomicWrite, wire.Ack, wire.ReadRespOnly,
	wire.AtomicAck,
}

// packet sends a request that is mostly valid.
func (h *hostile) packet(b [8]byte) {
	mtu := uint32(h.attr.MTU)
	r := h.target(int(b[4]))
	f := wire.Fields{
		Opcode: h.qp.prefix() | hostileOps[int(b[1])%len(hostileOps)], PKey: wire.DefaultPKey, DestQPN: stageQPN,
		PSN: psn.Add(h.qp.resp.epsn, int(int8(b[2]))), AckReq: b[3]&1 != 0, Solicited: b[3]&2 != 0,
		QKey: 5 + uint32(b[3]>>7), SrcQPN: peerQPN, RKey: r.key, Imm: 7, InvKey: r.key,
		SwapAdd: uint64(b[6]), Compare: uint64(b[7]), Syndrome: b[6], SRQN: []uint32{1, 1, 1, 1, 1, 1, 2, 3}[b[3]>>2&7],
	}
	if b[4] >= 0xF0 {
		f.RKey ^= uint32(b[4])
	}
	switch off := uint64(b[5]); {
	case off < 0x40:
		f.Addr = r.base + off*8
	case off < 0x80:
		f.Addr = r.base + r.size - (off - 0x40)
	case off < 0xC0:
		f.Addr = r.base + off - 0x80
	default:
		f.Addr = r.base + r.size - uint64(len(h.arena)) + off // far outside, possibly wrapping around
	}
	f.DMALen = []uint32{
		0, 1, 8, mtu - 1, mtu, mtu + 1, 2 * mtu, 2*mtu + 5, 3 * mtu, regSize, regSize + 1, 1 << 31, 1<<31 + 1, 1<<32 - 1,
		uint32(b[6]), 2*mtu - 1,
	}[b[6]&15]
	left := h.qp.resp.write.left
	if f.Opcode.Is(wire.Start) {
		left = f.DMALen
	}
	n := []uint32{min(left, mtu), 0, 1, 3, mtu - 1, mtu, mtu + 1, uint32(b[7])}[b[7]&7]
	if f.Opcode.Is(wire.HasData) {
		f.Payload = bytes.Repeat([]byte{b[7] & 0x7F}, int(n))
		h.putTag(f.Payload, b)
	}
	h.deliverIfPacket(f.Build())
}

// putTag puts tag matching headers in front of a payload.
func (h *hostile) putTag(p []byte, b [8]byte) {
	if h.tags == nil || len(p) < wire.TMHLen {
		return
	}
	wire.TMH(p).Put(b[3]>>3&3, 0x11, uint64(b[6]&0x7F))
	if len(p) >= wire.TMHLen+wire.RVHLen {
		wire.RVH(p[wire.TMHLen:]).Put(0x1000, 0x11, []uint32{0, 1, 256, 300, 700, 5000, 1 << 31, 1<<32 - 1}[b[5]&7])
	}
}

func (h *hostile) deliverIfPacket(b []byte) {
	if p, err := wire.Parse(b); err == nil {
		h.deliver(p, "")
	}
}

// send lets the QP reply and inspects the replies.
func (h *hostile) send(budget int) {
	failing := false
	for budget > 0 {
		was := h.qp.State()
		more := h.qp.Transmit(0, h.tx, min(budget, 64))
		if n := len(h.tx.Packets); n > budget {
			h.t.Fatalf("%d packets for a budget of %d", n, budget)
		}
		for i := range h.tx.Packets {
			h.inspect(h.tx.Bytes(i))
		}
		n := len(h.tx.Packets)
		budget -= n
		h.tx.Reset()
		if !more {
			if h.qp.resp.pending() {
				h.t.Fatal("replies are left over")
			}
			return
		}
		// A READ whose memory has gone fails the QP instead of sending anything. Its NAK is sent by the next call.
		if n == 0 && (failing || was == Err || h.qp.State() != Err) {
			h.t.Fatal("no progress")
		}
		failing = n == 0
	}
}

// inspect checks a reply. READs of the largest region end after a dozen packets.
func (h *hostile) inspect(b []byte) {
	p, err := wire.Parse(b[:len(b)-wire.ICRCLen])
	switch {
	case err != nil:
		h.t.Fatal(err)
	case h.qp.Type != RC && h.qp.Type != XRCRecv:
		h.t.Fatalf("a QP of an unreliable type answers %v", p)
	case len(p.Payload()) > h.attr.MTU:
		h.t.Fatalf("longer than the path MTU: %v", p)
	}
	for _, c := range p.Payload() {
		if c >= 0x80 {
			h.t.Fatalf("memory leaks: %v % x", p, p.Payload())
		}
	}
	if h.sent++; h.sent > 200*64 {
		h.t.Fatal("the replies do not end")
	}
}

// finish destroys the QP and checks the final state.
func (h *hostile) finish() {
	h.send(1 << 20)
	h.modify(Err)
	h.send(1 << 20)
	done := h.cqes
	if h.rq.Shared() {
		done += h.rq.Posted()
	}
	if h.tags != nil {
		done += int(h.tags.used.Load())
	}
	if done != h.posted {
		h.t.Fatalf("%d receives were posted, %d are accounted for", h.posted, done)
	}
	for i, r := range h.regions {
		off := padding + i*(regSize+padding)
		for _, c := range h.arena[off-padding : off] {
			if c != secret {
				h.t.Fatalf("memory in front of region %d was written", i)
			}
		}
		want := byte(secret)
		switch i {
		case regRead:
			want = public
		case regForeign:
		case regWindows:
			h.checkWindows()
			continue
		default:
			continue
		}
		for _, c := range r.Buf {
			if c != want {
				h.t.Fatalf("region %d was written", i)
			}
		}
	}
	for _, c := range h.arena[len(h.arena)-padding:] {
		if c != secret {
			h.t.Fatal("memory behind the last region was written")
		}
	}
}

// hostileSeeds are scripts shaped like real traffic (testdata/pcap).
func hostileSeeds() [][]byte {
	const more = 0x80 // in byte 0: the batch continues
	op := func(o wire.Opcode) byte {
		for i, x := range hostileOps {
			if x == o {
				return byte(i)
			}
		}
		panic(o)
	}
	post := []byte{10, 1, 0, 0, 0, 6, 6, 6}
	pkt := func(kind byte, o wire.Opcode, delta int8, reg, addr, length, data byte) []byte {
		return []byte{kind, op(o), byte(delta), 1, reg, addr, length, data}
	}
	script := func(head string, steps ...[]byte) []byte { return append([]byte(head), bytes.Join(steps, nil)...) }
	const rc, uc, ud = "\x00\x00\x80\x04", "\x02\x00\x80\x04", "\x03\x00\x80\x04"
	const xrc, tm = "\x10\x00\x80\x04", "\x20\x00\x80\x44"
	message := func(reg byte) [][]byte {
		return [][]byte{
			pkt(
				0,
				wire.WriteFirst,
				0,
				reg,
				0,
				7,
				0,
			), pkt(0, wire.WriteMiddle, 0, reg, 0, 0, 0), pkt(0, wire.WriteLastImm, 0, reg, 0, 0, 0),
		}
	}
	sends := [][]byte{
		post, pkt(0, wire.SendFirst, 0, 0, 0, 4, 5), pkt(0, wire.SendMiddle, 0, 0, 0, 0, 5), pkt(0, wire.SendLast, 0, 0, 0,
			0, 2),
		post, pkt(more, wire.SendOnlyImm, 0, 0, 0, 0, 3), pkt(0, wire.SendOnly, -1, 0, 0, 0, 3),
	}
	reads := [][]byte{
		pkt(more, wire.ReadRequest, 0, regRead, 0, 7, 0), pkt(more, wire.ReadRequest, 0, regReadWrite, 0, 9, 0), {11, 2},
		pkt(
			0,
			wire.ReadRequest,
			-12,
			regReadWrite,
			0,
			9,
			0,
		), pkt(0, wire.FetchAdd, 0, regAtomic, 0, 2, 1), pkt(0, wire.FetchAdd, -1, regAtomic, 0, 2, 1),
		pkt(more, wire.ReadRequest, 0, regRead, 0, 9, 0), {12, regRead}, {11, 255},
	}
	for i := range reads {
		reads[i] = append(reads[i], make([]byte, 8-len(reads[i]))...)
	}
	// A buffer for any tag, then an eager message, a rendezvous, its READ's response, and one that is unexpected.
	tagged := [][]byte{
		{
			10,
			5,
			0,
			0,
			0,
			5,
			5,
			5,
		}, post, {0, op(wire.SendOnly), 0, 1 | 3<<3, 0, 0, 0, 5}, {10, 5, 0, 0, 0, 5, 5, 5}, {0, op(wire.SendOnly), 0, 1 |
			1<<3, 0, 2, 0, 0xC7},
		{
			0,
			op(wire.ReadRespOnly),
			0,
			1,
			0,
			2,
			0,
			5,
		}, {0, op(wire.SendOnly), 0, 1 | 3<<3, 0, 0, 0, 5}, {10, 0x45, 0, 0, 0, 5, 5, 5}, {14, 1, 0, 0, 0, 0, 0, 0}, post,
		{0, op(wire.SendOnly), 0, 1 | 1<<3, 0, 6, 0, 0xC7},
	}
	strangers := [][]byte{ // SRQs of another domain, and unknown ones
		post, {0, op(wire.WriteOnly), 0, 1 | 6<<2, regWrite, 0, 2, 0}, {14, 1, 0, 0, 0, 0, 0, 0}, {0, op(wire.SendOnly), 0,
			1 | 7<<2, 0, 0, 0, 3},
	}
	return [][]byte{
		script(
			xrc,
			sends...), script(xrc, append([][]byte{post}, message(regWrite)...)...), script(xrc, reads...), script(xrc,
			strangers...),
		script(tm, tagged...), script(tm, sends...),
		script(rc, sends...), script(uc, sends...), script(ud, append([][]byte{post}, sends...)...),
		script(
			rc,
			append([][]byte{post}, message(regWrite)...)...), script(uc, append([][]byte{post}, message(regReadWrite)...)...),
		script(rc, reads...),
		script(
			rc,
			pkt(0, wire.AtomicWrite, 0, regWrite, 0, 2, 0),
			pkt(0, wire.Flush, 0, regAtomic, 0, 2, 0),
			pkt(0, wire.AtomicWrite, -2, regWrite, 0, 2, 0),
			pkt(0, wire.Flush, -2, regAtomic, 0, 2, 0),
		),
		script(
			rc,
			pkt(0, wire.SendOnly, 0, 0, 0, 0, 3),
			post,
			pkt(0, wire.SendOnly, 0, 0, 0, 0, 3),
		), // RNR
		script(
			rc,
			post,
			post,
			pkt(0, wire.SendOnly, 1, 0, 0, 0, 3),
			pkt(0, wire.SendOnly, 2, 0, 0, 0, 3),
			pkt(0, wire.SendOnly, 0, 0, 0, 0, 3),
		), // loss
		script(rc, pkt(0, wire.WriteOnly, 0, regRead, 0, 2, 0)), script(rc, pkt(0, wire.ReadRequest, 0, regWrite, 0, 2, 0)),
		script(rc, pkt(0, wire.WriteOnly, 0, 0xF7, 0, 2, 0)), script(rc, pkt(0, wire.WriteOnly, 0, regWrite, 0x41, 2, 0)),
		script(
			rc,
			pkt(0, wire.CompareSwap, 0, regAtomic, 0x81, 2, 0),
		), script("\x04\x00\x80\x04", post, post, pkt(0, wire.SendFirst, 0, 0, 0, 4, 5), pkt(0, wire.SendFirst, 0, 0, 0, 4,
			5)),
		script(
			rc,
			pkt(0, wire.WriteOnly, 0, regCount+winOwn, 0, 2, 3),
			post,
			pkt(0, wire.SendOnlyInv, 0, regCount+winOwn, 0, 0, 3),
			pkt(0, wire.WriteOnly, 0, regCount+winOwn, 0, 2, 3),
		),
		script(
			rc,
			post,
			pkt(more, wire.ReadRequest, 0, regCount+winOwn, 0, 6, 0),
			pkt(0, wire.SendOnlyInv, 0, regCount+winOwn, 0, 0, 3),
			pkt(0, wire.SendOnlyInv, 0, regCount+winOwn, 0, 0, 3),
		),
		script(
			rc,
			pkt(more, wire.ReadRequest, 0, regCount+winOwn, 0, 6, 0),
			[]byte{15, 0, 0, 0, 0, 0, 0, 0},
		), script(rc, pkt(0, wire.ReadRequest, 0, regCount+winOther, 0, 4, 0)),
		script(
			rc,
			pkt(0, wire.ReadRequest, 0, regCount+winType1, 0, 2, 0),
			pkt(0, wire.FetchAdd, 0, regCount+winOwn, 0, 2, 3),
			pkt(0, wire.WriteOnly, 0, regCount+winOwn, 0x41, 2, 3),
		),
		script(
			"\x00\x00\x80\x01",
			pkt(more, wire.ReadRequest, 0, regRead, 0, 9, 0),
			pkt(0, wire.ReadRequest, 0, regRead, 0, 9, 0),
		),
	}
}
