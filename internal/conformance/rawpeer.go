package conformance

import (
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/verbs"
)

// rawPeer is a peer whose packets the case builds one by one.
type rawPeer struct {
	t    *T
	host Host
	qp   *verbs.QP // of the device under test
	dev  *end      // the end of qp
	psn  uint32    // PSN that the QP expects in the next request
}

// The QP of the raw peer.
const (
	rawPeerQPN = 0x4711
	rawPeerPSN = 0xfffffe // the PSN wraps around after its first requests
)

// slow configures a connection without retransmissions during a case: an ACK timeout of 17 s.
var slow = &verbs.ConnectOptions{Timeout: 22}

// rawPeer connects a QP of e to a raw peer.
func (e *end) rawPeer(typ verbs.QPType, opts *verbs.ConnectOptions) *rawPeer {
	e.t.Helper()
	p := e.rawPeerFor(e.qp(typ, nil))
	e.t.must(p.qp.Connect(p.info(), longTimeout(opts)))
	return p
}

// rawPeerFor returns a raw peer for a QP without connecting it.
func (e *end) rawPeerFor(qp *verbs.QP) *rawPeer {
	e.t.Helper()
	return &rawPeer{t: e.t, host: e.t.Host(), qp: qp, dev: e, psn: rawPeerPSN}
}

// info returns the connection data of the peer for the QP under test.
func (p *rawPeer) info() verbs.QPInfo {
	return verbs.QPInfo{
		Type: p.qp.Type(), QPN: rawPeerQPN, PSN: rawPeerPSN, GID: verbs.GIDFromAddr(p.host.Addr()), MTU: verbs.MTU1024,
		RdAtomic: 4,
	}
}

// prefix returns the transport bits of the peer's opcodes.
func (p *rawPeer) prefix() wire.Opcode {
	return map[verbs.QPType]wire.Opcode{verbs.QPTypeRC: wire.RC, verbs.QPTypeUC: wire.UC,
		verbs.QPTypeUD: wire.UD}[p.qp.Type()]
}

// packet sets the common fields of packets to the QP. The PSN is the expected one.
func (p *rawPeer) packet(f wire.Fields) wire.Fields {
	f.Opcode |= p.prefix()
	f.PKey, f.DestQPN, f.PSN = wire.DefaultPKey, p.qp.QPN(), p.psn
	f.QKey, f.SrcQPN = verbs.DefaultQKey, rawPeerQPN
	return f
}

// put sends a packet unchanged.
func (p *rawPeer) put(pkt []byte) {
	to := p.t.Addr(p.dev.ctx)
	p.host.Send(to, p.host.Seal(to, pkt))
}

// request sends the next request.
func (p *rawPeer) request(f wire.Fields) {
	p.put(p.packet(f).Build())
	p.psn = (p.psn + 1) & 0xffffff
}

// answer sends a response to the packet with this PSN.
func (p *rawPeer) answer(op wire.Opcode, psn uint32, syndrome uint8, data []byte) {
	f := p.packet(wire.Fields{Opcode: op, Syndrome: syndrome, Payload: data})
	f.PSN = psn
	p.put(f.Build())
}

// next waits for a packet from the QP.
func (p *rawPeer) next() wire.Fields {
	p.t.Helper()
	var pkt []byte
	if !p.t.Await(func() bool { pkt = p.host.Recv(); return pkt != nil }, waitLimit) {
		p.t.Fatal("the QP sent nothing")
	}
	parsed, err := wire.Parse(pkt)
	p.t.must(err)
	f := parsed.Fields()
	same(p.t, "the destination QPN", f.DestQPN, rawPeerQPN)
	return f
}

// expect waits for a packet with this opcode from the QP.
func (p *rawPeer) expect(op wire.Opcode) wire.Fields {
	p.t.Helper()
	f := p.next()
	if want := p.prefix() | op; f.Opcode != want {
		p.t.Fatalf("the QP sent %v, want %v", f.Opcode, want)
	}
	return f
}

// expectNothing checks that the QP sends nothing.
func (p *rawPeer) expectNothing(why string) {
	p.t.Helper()
	p.t.Pause(moment)
	if pkt := p.host.Recv(); pkt != nil {
		p.t.Errorf("the QP sent %v although %s", wire.BTH(pkt).Opcode(), why)
	}
}
