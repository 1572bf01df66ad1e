package transport

import (
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// onUD handles a datagram addressed to this QP or to a multicast group that it is attached to. A datagram with a
// wrong Q_Key, without a receive or longer than the receive is dropped and counted. The first 40 bytes of the receive
// get the packet's GRH or IPv4 header (V-RECV-06).
func (r *responder) onUD(p *link.RxPacket, info *wire.Info) {
	pk, c := wire.Packet(p.Data), &r.qp.Counters
	if pk.DETH().QKey() != r.qp.attr.QKey {
		c.BadQKey++
		return
	}
	data := r.data.bytes
	n := wire.GRHLen + len(data)
	if ok, small := r.takeFor(uint64(n)); !ok {
		c.RecvDropped++
		if small {
			c.RespLocalLengthError++
		}
		return
	}
	wire.GRH(r.grh[:]).Put(p.Src, p.Dst, p.TClass, p.HopLimit, 0, udpHeader+p.Len()+wire.ICRCLen)
	if !r.scatter(payload{bytes: r.grh[:]}, 0) || !r.scatter(r.data, 0) {
		r.refuse(faultReceive, pk.BTH().PSN())
		return
	}
	c.RxDataBytes += uint64(len(data))
	e := r.newCQE(CQRecv, uint32(n))
	e.Flags, e.SrcQP, e.SL = WithGRH, pk.DETH().SrcQPN(), slOverIPv6
	if p.Src.Is4() {
		e.SL = slOverIPv4
	}
	r.finish(e, pk, info)
}

const udpHeader = 8 // bytes

// The SL of a received datagram is what adapters report on RoCE: 8, for the GRH, and the packet type. Programs tell
// from it whether the 40 bytes hold a GRH or an IPv4 header.
const (
	slOverIPv6 = 8 | 1
	slOverIPv4 = 8 | 2
)
