// Package cmtest makes requests for connections with forged sources, for the tests of listeners. It imports
// internal/wire and internal/wire/cmmsg.
package cmtest

import (
	"encoding/binary"
	"net/netip"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// Flood makes REQs to a TCP port, each with another communication ID, another QPN and another source in 10.0.0.0/8.
type Flood struct {
	To      netip.AddrPort
	Private []byte // behind the IP header
	Timeout uint8  // the time code for the answer, and the number of repetitions
	Retries uint8

	n uint32
}

// SourcePort is the UDP source port of the datagrams.
const SourcePort = 0xC123

// Next returns a datagram, with its ICRC, and its source.
func (f *Flood) Next() (from netip.Addr, datagram []byte) {
	f.n++
	n := f.n * 2654435761
	from = netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
	mad := make([]byte, wire.MADLen)
	m := cmmsg.Make(mad, cmmsg.KindREQ, uint64(f.n))
	cmmsg.REQ(m.Data()).Put(cmmsg.REQFields{
		LocalID: f.n, ServiceID: cmmsg.PSTCP.Service(f.To.Port()), LocalGUID: 0x6666, LocalQPN: f.n&0x7FFFFF<<1 | 1,
		RemoteTimeout: 20,
		LocalTimeout:  f.Timeout, MaxRetries: f.Retries, PKey: wire.DefaultPKey, MTU: 3, RetryCount: 7, RNRRetry: 7,
		InitiatorDepth: 1, ResponderResources: 1,
		Primary: cmmsg.PathFields{LocalGID: cmmsg.GID(from), RemoteGID: cmmsg.GID(f.To.Addr()), HopLimit: 64, AckTimeout: 17},
	})
	m.SetPrivate(append(cmmsg.AppendIPHeader(nil, netip.AddrPortFrom(from, 4000), f.To.Addr()), f.Private...))
	p := wire.Fields{
		Opcode: wire.UD | wire.SendOnly, PKey: wire.DefaultPKey, DestQPN: wire.GSIQPN, QKey: wire.GSIQKey,
		SrcQPN: wire.GSIQPN, Payload: mad,
	}
	b := binary.BigEndian.AppendUint32(p.Append(nil), 0)
	wire.NewFlow(from, f.To.Addr(), SourcePort, wire.Port).Seal(b, 0)
	return from, b
}
