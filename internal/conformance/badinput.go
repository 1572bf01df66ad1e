package conformance

import (
	"fmt"
	"math/rand/v2"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/verbs"
)

// badInput is a kind of invalid packets. All of them are dropped and counted, and change nothing.
type badInput struct {
	name    string
	types   []verbs.QPType
	counter string // counter of the drops; empty if the packets are counted by several
	// send sends the packets and returns their number.
	send func(p *rawPeer) int
}

var (
	all       = []verbs.QPType{rc, uc, ud}
	connected = []verbs.QPType{rc, uc}
)

var badInputs = []badInput{
	{"Truncated", all, "rx_malformed", sendTruncated},
	{"Oversized", all, "rx_malformed", sendOversized},
	{"UnknownOpcode", all, "rx_malformed", sendUnknownOpcodes},
	{"OpcodeOfAnotherTransport", all, "bad_opcode", sendForeignOpcodes},
	{"UnknownVersion", all, "rx_malformed", sendVersions},
	{"MorePadThanData", all, "rx_malformed", sendPads},
	{"WrongPKey", all, "bad_pkey", sendPKeys},
	{"WrongQKey", []verbs.QPType{ud}, "bad_qkey", sendQKeys},
	{"WrongICRC", all, "rx_icrc_errors", sendDamaged},
	{"SpoofedSource", connected, "bad_source", sendSpoofed},
	{"UnknownQPN", all, "unknown_qpn", sendToUnknownQPN},
	{"UnknownGroup", all, "unknown_group", sendToUnknownGroup},
	{"LongerThanTheMTU", []verbs.QPType{uc}, "resp_local_length_error", sendAboveMTU},
	{"Garbage", all, "", sendGarbage},
}

// badInputCases returns a case for each kind and QP type.
func badInputCases() (cases []testCase) {
	for _, b := range badInputs {
		for _, typ := range b.types {
			cases = append(cases, testCase{fmt.Sprintf("BadInput_%v_%s", typ, b.name), func(t *T) { b.run(t, typ) }})
		}
	}
	return cases
}

func (b *badInput) run(t *T, typ verbs.QPType) {
	e := t.end()
	p := e.target(typ)
	n := b.send(p)
	if b.counter != "" {
		e.counted(b.counter, uint64(n))
	}
	p.checkUnchanged()
}

// target returns a working QP with a receive, connected to a raw peer.
func (e *end) target(typ verbs.QPType) *rawPeer {
	e.t.Helper()
	var p *rawPeer
	if typ == ud {
		p = e.rawPeerFor(e.datagrams())
	} else {
		p = e.rawPeer(typ, slow)
	}
	e.t.must(p.qp.PostRecv(e.recv(1, 0, memory)))
	e.blank()
	return p
}

// checkUnchanged checks that the QP has not changed and executes the next valid packet.
func (p *rawPeer) checkUnchanged() {
	t, e := p.t, p.dev
	t.Helper()
	p.expectNothing("the packets were bad")
	t.silent("the packets were bad", e.sendCQ, e.rcvQ)
	e.noEvent("the packets were bad")
	t.is(p.qp, verbs.QPSRTS)
	if !untouched(e.buf) {
		t.Error("a bad packet changed memory")
	}
	p.request(wire.Fields{Opcode: wire.SendOnly, AckReq: p.qp.Type() == rc, Payload: []byte("good")})
	wc := t.good(e.rcvQ, 1)[0]
	at := wc.ByteLen - 4
	same(t, "the good packet", string(e.buf[at:wc.ByteLen]), "good")
	if p.qp.Type() == rc {
		same(t, "the answer", p.expect(wire.Ack).Syndrome, wire.SynAck)
	}
}

// good returns a valid packet of each kind that the QP's type supports.
func (p *rawPeer) good() (fs []wire.Fields) {
	mr := p.dev.mr
	send := wire.Fields{Opcode: wire.SendOnlyImm, Payload: full[:16]}
	write := wire.Fields{Opcode: wire.WriteOnlyImm, Addr: mr.Addr(), RKey: mr.RKey(), DMALen: 16, Payload: full[:16]}
	read := wire.Fields{Opcode: wire.ReadRequest, Addr: mr.Addr(), RKey: mr.RKey(), DMALen: 16}
	add := wire.Fields{Opcode: wire.FetchAdd, Addr: mr.Addr(), RKey: mr.RKey(), SwapAdd: 1}
	kinds := map[verbs.QPType][]wire.Fields{rc: {send, write, read, add}, uc: {send, write}, ud: {send}}
	for _, f := range kinds[p.qp.Type()] {
		fs = append(fs, p.packet(f))
	}
	return fs
}

// each sends a variation of each valid packet.
func (p *rawPeer) each(change func(f *wire.Fields)) (n int) {
	for _, f := range p.good() {
		change(&f)
		p.put(f.Build())
		n++
	}
	return n
}

func sendTruncated(p *rawPeer) (n int) {
	to := p.t.Addr(p.dev.ctx)
	for _, f := range p.good() {
		pkt := f.Build()
		for cut := range f.Opcode.Info().Len {
			if cut >= wire.BTHLen { // with a correct ICRC, as from a faulty peer
				p.put(pkt[:cut])
			} else {
				p.host.Send(to, pkt[:cut])
			}
			n++
		}
	}
	return n
}

func sendOversized(p *rawPeer) (n int) {
	f := p.packet(wire.Fields{Opcode: wire.SendOnly})
	for _, size := range []int{wire.MaxPayload + 1, wire.MaxPayload + 4, wire.MaxPayload + 1000} {
		f.Payload = make([]byte, size)
		p.put(f.Build())
		n++
	}
	return n
}

func sendUnknownOpcodes(p *rawPeer) (n int) {
	for op := range 256 {
		if wire.Opcode(op).Info().Len != 0 {
			continue
		}
		f := p.packet(wire.Fields{Payload: full[:32]})
		f.Opcode = wire.Opcode(op)
		p.put(f.Build())
		n++
	}
	return n
}

func sendForeignOpcodes(p *rawPeer) (n int) {
	for op := range 256 {
		o := wire.Opcode(op)
		if o.Info().Len == 0 || o.Transport() == p.prefix() {
			continue
		}
		if o == wire.CNP && p.qp.Type() != ud { // of all transports that have connections
			continue
		}
		f := p.packet(wire.Fields{Payload: make([]byte, o.Info().MinData)})
		f.Opcode = o
		pkt := f.Build()
		p.put(pkt)
		n++
	}
	return n
}

func sendVersions(p *rawPeer) (n int) {
	for v := byte(1); v < 16; v++ {
		for _, f := range p.good() {
			pkt := f.Build()
			pkt[1] |= v
			p.put(pkt)
			n++
		}
	}
	return n
}

func sendPads(p *rawPeer) (n int) {
	f := p.packet(wire.Fields{Opcode: wire.SendOnly})
	for pad := byte(1); pad < 4; pad++ {
		pkt := f.Build()
		pkt[1] |= pad << 4 // without data
		p.put(pkt)
		n++
	}
	return n
}

func sendPKeys(p *rawPeer) (n int) {
	for _, key := range []uint16{0, 1, 0x8000, 0x8001, 0x7ffe, 0xfffe, 0xefff} {
		n += p.each(func(f *wire.Fields) { f.PKey = key })
	}
	return n
}

func sendQKeys(p *rawPeer) (n int) {
	for _, key := range []uint32{0, verbs.DefaultQKey + 1, 0x80000000, 0xffffffff} {
		n += p.each(func(f *wire.Fields) { f.QKey = key })
	}
	return n
}

func sendDamaged(p *rawPeer) (n int) {
	to := p.t.Addr(p.dev.ctx)
	for _, f := range p.good() {
		for _, at := range []int{2, 3, 5, 6, 8, 9, 10, 11, 12, 15, -1, -2, -3, -4, -5, -8} { // the remaining bytes parse
			d := p.host.Seal(to, f.Build())
			d[(at+len(d))%len(d)] ^= 0x10
			p.host.Send(to, d)
			n++
		}
	}
	return n
}

func sendSpoofed(p *rawPeer) int {
	stranger := *p
	stranger.host = p.t.Host()
	return stranger.each(func(*wire.Fields) {})
}

func sendToUnknownQPN(p *rawPeer) (n int) {
	for _, qpn := range []uint32{0, 1, 2, p.qp.QPN() ^ 1, p.qp.QPN() ^ 0x800000, 0xfffffe} {
		n += p.each(func(f *wire.Fields) { f.DestQPN = qpn })
	}
	return n
}

func sendToUnknownGroup(p *rawPeer) int {
	return p.each(func(f *wire.Fields) { f.DestQPN = wire.MulticastQPN })
}

func sendAboveMTU(p *rawPeer) (n int) {
	for _, size := range []int{1025, 1028, 4096} {
		// An unreliable connection accepts any first packet as a new message, so these packets consume
		// PSNs.
		p.request(wire.Fields{Opcode: wire.SendOnly, Payload: make([]byte, size)})
		n++
	}
	return n
}

func sendGarbage(p *rawPeer) int {
	to := p.t.Addr(p.dev.ctx)
	dice := rand.New(rand.NewPCG(1, uint64(p.qp.Type())))
	for range 200 {
		b := make([]byte, dice.IntN(100))
		for i := range b {
			b[i] = byte(dice.Uint32())
		}
		p.host.Send(to, b)
		if len(b) >= wire.BTHLen { // random bytes with a correct ICRC, for another QP
			wire.BTH(b).Put(wire.Opcode(b[0]), int(b[1]), wire.DefaultPKey, p.qp.QPN()^1, 0, 0)
			p.put(b[:len(b)&^3])
		}
	}
	return 0
}
