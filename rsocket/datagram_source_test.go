package rsocket_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/rs"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rsocket"
	"github.com/verbena-rdma/verbena/verbs"
)

// A host cannot send datagrams in the name of another one, by the address in their header: neither to a socket that
// receives from anybody, nor to one that receives from its peer only.
func TestDatagramInTheNameOfAnotherHost(t *testing.T) {
	p := overUDP(t)
	defer p.Close()
	r := p.rawPackets()
	defer r.close(p)
	another := netip.MustParseAddrPort("203.0.113.9:53")
	everybody := must((&rsocket.ListenConfig{Host: p.B.Host}).ListenPacket(bg, "udp", p.B.At(0)))(p)
	defer everybody.Close()
	r.toUDP(p, everybody.LocalAddr(), rs.OpData, "asks for the QP")
	_, qpn, _, _ := r.fromUDP(p)
	p.OK(everybody.SetReadDeadline(time.Now().Add(20 * time.Second)))
	buf := make([]byte, 4096)
	_, _, err := everybody.ReadFrom(buf)
	p.OK(err)
	ah := must(r.PD().CreateAH(&verbs.AHAttr{IsGlobal: true, PortNum: r.PortNum(), GRH: verbs.GlobalRoute{
		DGID: verbs.GIDFromAddr(p.B.Addr), SGIDIndex: p.gidOf(r), HopLimit: 64}}))(p)
	defer ah.Close()
	send := func(from netip.AddrPort, text string) {
		t.Helper()
		p.OK(r.QP().PostSend(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline | verbs.SendSignaled,
			Inline: append(rs.AppendHeader(nil, from), text...), AH: ah, RemoteQPN: qpn, RemoteQKey: rdmacm.UDPQKey}))
	}
	send(another, "forged")
	send(netip.AddrPortFrom(p.A.Addr, 9), "own")
	p.OK(everybody.SetReadDeadline(time.Now().Add(5 * time.Second)))
	n, from, err := everybody.ReadFrom(buf)
	p.OK(err)
	if string(buf[:n]) != "own" {
		t.Errorf("a datagram of the host at %v: %q from %v", p.A.Addr, buf[:n], from)
	}
}

// gidOf is the index of the address of a peer without an rsocket.
func (p *places) gidOf(r *rawPackets) int {
	p.Helper()
	for _, e := range must(r.Verbs().QueryGIDTable())(p) {
		if e.GID == verbs.GIDFromAddr(p.A.Addr) && e.Port == r.PortNum() {
			return e.Index
		}
	}
	p.Fatal("no GID")
	return 0
}
