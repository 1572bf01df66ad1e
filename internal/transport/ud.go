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
		r.qp.badQKey(p)
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
	r.qp.bytes.received += uint64(len(data))
	e := r.newCQE(CQRecv, uint32(n))
	e.Flags, e.SrcQP, e.SL = WithGRH, pk.DETH().SrcQPN(), slOverIPv6
	if r.qp.Num == wire.GSIQPN {
		e.PKeyIndex = r.pkeyIndex
	}
	if p.Src.Is4() {
		e.SL = slOverIPv4
	}
	if o := r.qp.IPOffload; o != nil && o.Verify(data) {
		e.Flags |= IPCsumOK
	}
	if s := r.steered; s != nil {
		e.Frame, e.Tag = true, uint64(s.Tag)
	}
	r.finish(e, pk, info)
}

// Steered has the properties that a flow rule adds to a datagram that it delivers, or an Ethernet frame in its place.
type Steered struct {
	Frame  []byte // nil of a datagram
	Tag    uint32 // the flow tag
	CsumOK bool   // the checksums of Frame are right
}

// OnSteered handles a datagram that a flow rule steers to this UD QP, as OnPacket does. If p is nil, it receives the
// frame of s behind 40 bytes that it leaves as they are.
func (qp *QP) OnSteered(now int64, p *link.RxPacket, s *Steered) {
	r := &qp.resp
	if p != nil {
		r.steered = s
		qp.OnPacket(now, p)
		r.steered = nil
		return
	}
	if st := qp.State(); st == Reset || st == Init || st == Err {
		qp.Counters.BadState++
		return
	}
	r.onFrame(s)
}

// onFrame receives an Ethernet frame (V-RECV-06: without a GRH the first 40 bytes are undefined).
func (r *responder) onFrame(s *Steered) {
	c := &r.qp.Counters
	n := wire.GRHLen + len(s.Frame)
	if ok, small := r.takeFor(uint64(n)); !ok {
		c.RecvDropped++
		if small {
			c.RespLocalLengthError++
		}
		return
	}
	r.leaveOut(wire.GRHLen)
	if !r.scatter(payload{bytes: s.Frame}, 0) {
		r.refuse(faultReceive, 0)
		return
	}
	r.qp.bytes.received += uint64(len(s.Frame))
	e := r.newCQE(CQRecv, uint32(n))
	e.Frame, e.Tag = true, uint64(s.Tag)
	if s.CsumOK {
		e.Flags |= IPCsumOK
	}
	r.held = false
	r.phase = between
	r.cq.Push(e)
}

// leaveOut moves n bytes on in the receive.
func (r *responder) leaveOut(n uint64) {
	v := &r.recv
	for n > 0 {
		s := &v.wqe.SGEs[v.sge]
		m := min(uint64(s.Length-v.off), n)
		if m == 0 {
			v.sge, v.off = v.sge+1, 0
			continue
		}
		v.off += uint32(m)
		n -= m
	}
}

const udpHeader = 8 // bytes

// The SL of a received datagram is what adapters report on RoCE: 8, for the GRH, and the packet type. Programs tell
// from it whether the 40 bytes hold a GRH or an IPv4 header.
const (
	slOverIPv6 = 8 | 1
	slOverIPv4 = 8 | 2
)
