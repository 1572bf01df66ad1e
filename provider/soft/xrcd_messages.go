package soft

import (
	"encoding/binary"
	"encoding/json"
	"net/netip"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// The messages between two members of an XRC domain, after package transport's turn.go. A connection carries those of
// the QPs of the member that has dialed it. Each begins with its kind, the QPN and the life of the QP: the number of
// times that its guests have ended. A message of an earlier life has no effect.
type message byte

const (
	msgFeed   message = 1 // home: first message; the connection is for the guests of QPs
	msgHandle message = 2 // first message: the connection is for a handle of the QP, see xrcd_handle.go

	msgAttr   message = 10 // home: guestAttr
	msgTurn   message = 11 // both: Turn and packet
	msgPacket message = 12 // both: a packet
	msgRepeat message = 13 // home: a packet
	msgAged   message = 14 // both: PSN
	msgEnd    message = 15 // home: a byte: whether the receive that was taken is flushed
	msgFailed message = 16 // guest: guestFailure
)

const msgHeadLen = 9

func putHead(b []byte, kind message, qpn, life uint32) []byte {
	b = append(b, byte(kind))
	b = binary.BigEndian.AppendUint32(b, qpn)
	return binary.BigEndian.AppendUint32(b, life)
}

// parseHead returns the head of a message and its content.
func parseHead(b []byte) (kind message, qpn, life uint32, body []byte, ok bool) {
	if len(b) < msgHeadLen {
		return 0, 0, 0, nil, false
	}
	return message(b[0]), binary.BigEndian.Uint32(b[1:]), binary.BigEndian.Uint32(b[5:]), b[msgHeadLen:], true
}

// guestAttr is the attributes that a guest has of its QP.
type guestAttr struct {
	Src, Dst      netip.Addr
	TClass        uint8
	HopLimit      uint8
	FlowLabel     uint32
	Rate          uint64
	DestQPN       uint32
	MTU           int
	PKeyIndex     uint16
	PKey          uint16
	Access        uint32
	MaxDestRdAtom int
	MinRNRTimer   uint8
	Port          uint8
	AltSrc        netip.Addr // of the alternate path; not valid without one
	AltDst        netip.Addr
	Mig           transport.MigState
}

func guestAttrOf(a *transport.Attr) guestAttr {
	p := &a.Path
	return guestAttr{
		Src: p.Src, Dst: p.Dst, TClass: p.TClass, HopLimit: p.HopLimit, FlowLabel: p.FlowLabel, Rate: p.Rate,
		DestQPN: a.DestQPN, MTU: a.MTU, PKeyIndex: a.PKeyIndex, PKey: a.PKey, Access: a.Access,
		MaxDestRdAtom: a.MaxDestRdAtom, MinRNRTimer: a.MinRNRTimer, Port: a.Port,
		AltSrc: a.Alt.Src, AltDst: a.Alt.Dst, Mig: a.Mig,
	}
}

// valid reports whether a device with some ports, and an address of its own, can have the attributes.
func (g *guestAttr) valid(ports int, own func(netip.Addr) bool) bool {
	return own(g.Src) && g.Dst.IsValid() && g.Dst.Is4() == g.Src.Is4() && g.Dst == g.Dst.Unmap() &&
		g.DestQPN <= 0xffffff && g.MTU >= 256 && g.MTU <= 4096 && g.MTU&(g.MTU-1) == 0 &&
		g.MaxDestRdAtom >= 0 && g.MaxDestRdAtom <= maxRdAtom && g.MinRNRTimer < 32 &&
		g.Port >= 1 && int(g.Port) <= ports && g.Mig <= transport.Armed &&
		g.AltSrc.BitLen() == g.AltDst.BitLen() && g.AltDst == g.AltDst.Unmap() && (!g.AltSrc.IsValid() || own(g.AltSrc))
}

// guestMask is what guestAttr has.
const guestMask = transport.MaskPKeyIndex | transport.MaskPort | transport.MaskAccess | transport.MaskAV |
	transport.MaskPathMTU | transport.MaskDestQPN | transport.MaskMaxDestRdAtom | transport.MaskMinRNRTimer

func (g *guestAttr) attr(s transport.State) transport.Attr {
	return transport.Attr{
		State: s, DestQPN: g.DestQPN, MTU: g.MTU, PKeyIndex: g.PKeyIndex, PKey: g.PKey, Access: g.Access,
		MaxDestRdAtom: g.MaxDestRdAtom, MinRNRTimer: g.MinRNRTimer, Port: g.Port,
		Path: link.Path{
			Src: g.Src, Dst: g.Dst, TClass: g.TClass, HopLimit: g.HopLimit, FlowLabel: g.FlowLabel, Rate: g.Rate,
		},
	}
}

// guestFailure is why a guest has moved to ERR.
type guestFailure struct {
	Status   transport.Status
	Reason   string
	Syndrome uint8
	Event    transport.Event // 0: none
}

// putJSON appends the encoding of a value, which cannot fail.
func putJSON(b []byte, v any) []byte {
	text, _ := json.Marshal(v)
	return append(b, text...)
}

// Bits of the first byte of a packet.
const (
	packetTrain = 1 << iota
	packetIPv6
)

// putPacket appends a packet: flags, hop limit, addresses, and the bytes from BTH to pad. If the payload was no longer
// valid when it was copied, the receiver drops the packet. The traffic class is left out: the home has answered a
// congestion mark.
func putPacket(b []byte, p *link.RxPacket) []byte {
	var flags byte
	if p.Train {
		flags |= packetTrain
	}
	if p.Src.Is6() {
		flags |= packetIPv6
	}
	b = append(b, flags, p.HopLimit)
	b = append(append(b, p.Src.AsSlice()...), p.Dst.AsSlice()...)
	at := len(b)
	if b = p.Append(b); p.Epoch.Over() {
		wire.BTH(b[at:]).SetPKey(0)
	}
	return b
}

// putTurn appends a turn and the packet that comes with it.
func putTurn(b []byte, t *transport.Turn, p *link.RxPacket) []byte { return putPacket(t.Append(b), p) }

// parseTurn decodes them.
func parseTurn(b []byte) (t transport.Turn, p link.RxPacket, ok bool) {
	if len(b) < transport.TurnLen {
		return t, p, false
	}
	if t, ok = transport.ParseTurn(b[:transport.TurnLen]); ok {
		p, ok = parsePacket(b[transport.TurnLen:])
	}
	return t, p, ok
}

// parsePacket decodes a packet, which refers to b. It reports whether it is one that a link may deliver.
func parsePacket(b []byte) (p link.RxPacket, ok bool) {
	if len(b) < 2 {
		return p, false
	}
	p.Train, p.HopLimit = b[0]&packetTrain != 0, b[1]
	n := 4
	if b[0]&packetIPv6 != 0 {
		n = 16
	}
	if b = b[2:]; len(b) < 2*n {
		return p, false
	}
	p.Src, _ = netip.AddrFromSlice(b[:n])
	p.Dst, _ = netip.AddrFromSlice(b[n : 2*n])
	data, err := wire.Parse(b[2*n:])
	p.Data = data
	return p, err == nil
}
