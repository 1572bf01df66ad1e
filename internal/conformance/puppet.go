package conformance

import (
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/verbs"
)

// puppet is a peer that does nothing but what a case makes it do, packet by packet.
type puppet struct {
	t    *T
	host Host
	qp   *verbs.QP // of the device under test
	dev  *end      // which it belongs to
	psn  uint32    // that the QP expects of the puppet's next request
}

// The puppet's QP.
const (
	puppetQPN = 0x4711
	puppetPSN = 0xfffffe // its first requests wrap around
)

// slow is a connection that repeats nothing while a case thinks: an ACK timeout of 17 s.
var slow = &verbs.ConnectOptions{Timeout: 22}

// puppet connects a QP of e to a puppet.
func (e *end) puppet(typ verbs.QPType, opts *verbs.ConnectOptions) *puppet {
	e.t.Helper()
	p := e.puppetFor(e.qp(typ, nil))
	e.t.must(p.qp.Connect(p.info(), patient(opts)))
	return p
}

// puppetFor makes the peer of a QP without connecting it.
func (e *end) puppetFor(qp *verbs.QP) *puppet {
	e.t.Helper()
	return &puppet{t: e.t, host: e.t.Host(), qp: qp, dev: e, psn: puppetPSN}
}

// info is what the QP under test is told of the puppet.
func (p *puppet) info() verbs.QPInfo {
	return verbs.QPInfo{
		Type: p.qp.Type(), QPN: puppetQPN, PSN: puppetPSN, GID: verbs.GIDFromAddr(p.host.Addr()), MTU: verbs.MTU1024, RdAtomic: 4,
	}
}

// prefix is the transport of the puppet's packets.
func (p *puppet) prefix() wire.Opcode {
	return map[verbs.QPType]wire.Opcode{verbs.QPTypeRC: wire.RC, verbs.QPTypeUC: wire.UC, verbs.QPTypeUD: wire.UD}[p.qp.Type()]
}

// packet fills in what every packet to the QP has. Its PSN is the one expected next.
func (p *puppet) packet(f wire.Fields) wire.Fields {
	f.Opcode |= p.prefix()
	f.PKey, f.DestQPN, f.PSN = wire.DefaultPKey, p.qp.QPN(), p.psn
	f.QKey, f.SrcQPN = verbs.DefaultQKey, puppetQPN
	return f
}

// put sends a packet as it is.
func (p *puppet) put(pkt []byte) {
	to := p.t.Addr(p.dev.ctx)
	p.host.Send(to, p.host.Seal(to, pkt))
}

// request sends the next request.
func (p *puppet) request(f wire.Fields) {
	p.put(p.packet(f).Build())
	p.psn = (p.psn + 1) & 0xffffff
}

// answer sends a response to the packet of that PSN.
func (p *puppet) answer(op wire.Opcode, psn uint32, syndrome uint8, data []byte) {
	f := p.packet(wire.Fields{Opcode: op, Syndrome: syndrome, Payload: data})
	f.PSN = psn
	p.put(f.Build())
}

// next waits for a packet of the QP.
func (p *puppet) next() wire.Fields {
	p.t.Helper()
	var pkt []byte
	if !p.t.Await(func() bool { pkt = p.host.Recv(); return pkt != nil }, patience) {
		p.t.Fatal("the QP sent nothing")
	}
	parsed, err := wire.Parse(pkt)
	p.t.must(err)
	f := parsed.Fields()
	same(p.t, "the destination QPN", f.DestQPN, puppetQPN)
	return f
}

// hears waits for a packet of the QP that must have an opcode.
func (p *puppet) hears(op wire.Opcode) wire.Fields {
	p.t.Helper()
	f := p.next()
	if want := p.prefix() | op; f.Opcode != want {
		p.t.Fatalf("the QP sent %v, want %v", f.Opcode, want)
	}
	return f
}

// hearsNothing checks that the QP sends nothing.
func (p *puppet) hearsNothing(why string) {
	p.t.Helper()
	p.t.Pause(moment)
	if pkt := p.host.Recv(); pkt != nil {
		p.t.Errorf("the QP sent %v although %s", wire.BTH(pkt).Opcode(), why)
	}
}
