package raw

import (
	"encoding/binary"
	"net/netip"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// Datagrams is the receiver of the rules of a UD QP. It passes RoCE datagrams on without their headers, whatever QP
// they name, and all other frames whole. A datagram that names the QP itself reaches it without a rule, so it is
// not passed on.
type Datagrams struct {
	Num uint32 // the QP's number
	// Deliver takes a datagram, or the frame of s if p is nil. Both are valid during the call. It must not block.
	Deliver func(p *link.RxPacket, s *transport.Steered)

	pkt     link.RxPacket
	steered transport.Steered
}

// receive processes a frame of a rule. The device's mu is held.
func (q *Datagrams) receive(d *Device, a *arrival, tag uint32) {
	s := &a.h.Outer
	q.steered = transport.Steered{Tag: tag}
	if !s.roce(a.b) {
		q.steered.Frame, q.steered.CsumOK = a.b, a.verified()
		q.Deliver(nil, &q.steered)
		return
	}
	if !q.datagram(a.b, s) {
		d.Counters.RxBadDatagram.Add(1)
		return
	}
	if wire.BTH(q.pkt.Data).DestQPN() != q.Num {
		q.Deliver(&q.pkt, &q.steered)
	}
}

// roce reports whether the frame carries a RoCE packet.
func (s *Stack) roce(b []byte) bool {
	return s.L4 >= 0 && s.Proto == protoUDP && binary.BigEndian.Uint16(b[s.L4+2:]) == wire.Port
}

// datagram parses a RoCE packet into q.pkt. It reports whether the packet is well-formed and its ICRC is right.
func (q *Datagrams) datagram(b []byte, s *Stack) bool {
	if !s.whole(b) || int(binary.BigEndian.Uint16(b[s.L4+4:])) != s.End-s.L4 {
		return false
	}
	p := &q.pkt
	ip, id := b[s.L3:], uint16(0)
	if s.IP == 4 {
		p.Src, p.Dst = netip.AddrFrom4([4]byte(ip[12:])), netip.AddrFrom4([4]byte(ip[16:]))
		p.TClass, p.HopLimit, id = ip[1], ip[8], binary.BigEndian.Uint16(ip[4:])
	} else {
		p.Src, p.Dst = netip.AddrFrom16([16]byte(ip[8:])), netip.AddrFrom16([16]byte(ip[24:]))
		p.TClass, p.HopLimit = uint8(binary.BigEndian.Uint16(ip)>>4), ip[7]
	}
	body := b[s.L4+8 : s.End]
	flow := wire.NewFlow(p.Src, p.Dst, binary.BigEndian.Uint16(b[s.L4:]), wire.Port)
	n := len(body) - wire.ICRCLen
	if n < wire.BTHLen || flow.ICRC(body[:n], id) != binary.LittleEndian.Uint32(body[n:]) {
		return false
	}
	p.Data = body[:n]
	_, err := wire.Parse(p.Data)
	return err == nil
}
