package wire

import "errors"

// MaxPayload is the largest payload of a packet: the largest path MTU of RoCE, in bytes.
const MaxPayload = 4096

// MaxPacketLen is the length of the largest packet, BTH to pad, in bytes.
const MaxPacketLen = BTHLen + XRCETHLen + RETHLen + ImmLen + MaxPayload

// The reasons why Parse refuses a packet, one for each counter.
var (
	ErrShort   = errors.New("wire: packet is shorter than its headers")
	ErrVersion = errors.New("wire: transport header version is not 0")
	ErrOpcode  = errors.New("wire: opcode is not defined by RoCEv2")
	ErrPad     = errors.New("wire: pad count does not fit the packet length")
	ErrPayload = errors.New("wire: payload has a length that the opcode does not allow")
)

// Packet is one packet from the first byte of its BTH to its last pad byte, without the ICRC. It aliases the bytes
// that it was made from. Once Parse has accepted it, no method fails, and only String allocates.
type Packet []byte

// Parse checks b, the bytes from BTH to pad, and returns them as a Packet. An error is one of the Err values above,
// unwrapped: a refused packet does not allocate either.
//
// Parse looks at this one packet: it does not check path MTU, position in the message, keys and addresses.
func Parse(b []byte) (Packet, error) {
	if len(b) < BTHLen {
		return nil, ErrShort
	}
	h := BTH(b)
	if h.Version() != 0 {
		return nil, ErrVersion
	}
	in := h.Opcode().Info()
	if in.Len == 0 {
		return nil, ErrOpcode
	}
	if len(b) < in.Len {
		return nil, ErrShort
	}
	n := len(b) - in.Len - h.Pad()
	switch {
	case n < 0 || len(b)&3 != 0:
		return nil, ErrPad
	case n < in.MinData || n > in.MaxData:
		return nil, ErrPayload
	}
	return b, nil
}

// MaxHeaderLen is at least the length of the headers of any packet, in bytes.
const MaxHeaderLen = 64

// ParseHead is Parse for a packet of n bytes, BTH to pad, of which head holds only the first MaxHeaderLen, or all
// if it is shorter. most is the largest payload for opcodes with payload of any length. ParseHead returns the
// length of the headers and the pad count, and sets the pad count in the header to 0, so that the headers alone are
// a packet that Parse would accept, except that its payload is missing.
func ParseHead(head []byte, n, most int) (headers, pad int, err error) {
	if len(head) < BTHLen {
		return 0, 0, ErrShort
	}
	h := BTH(head)
	if h.Version() != 0 {
		return 0, 0, ErrVersion
	}
	in := h.Opcode().Info()
	if in.Len == 0 {
		return 0, 0, ErrOpcode
	}
	if len(head) < in.Len {
		return 0, 0, ErrShort
	}
	pad = h.Pad()
	data, limit := n-in.Len-pad, in.MaxData
	if limit == MaxPayload {
		limit = most
	}
	switch {
	case data < 0 || n&3 != 0:
		return 0, 0, ErrPad
	case data < in.MinData || data > limit:
		return 0, 0, ErrPayload
	}
	head[1] &^= 0x30
	return in.Len, pad, nil
}

// BTH is the base transport header, which every packet has.
func (p Packet) BTH() BTH { return BTH(p[:BTHLen]) }

// Opcode is the packet's opcode.
func (p Packet) Opcode() Opcode { return Opcode(p[0]) }

// Info describes the packet's opcode.
func (p Packet) Info() *Info { return Opcode(p[0]).Info() }

// ext returns the extended header of length n at offset off; nil if off is 0, since the packet has none.
func (p Packet) ext(off, n int) []byte {
	if off == 0 {
		return nil
	}
	return p[off : off+n : off+n]
}

// DETH is the datagram extended header, nil if the packet has none.
func (p Packet) DETH() DETH { return p.ext(p.Info().DETH, DETHLen) }

// XRCETH is the XRC extended header, nil if the packet has none.
func (p Packet) XRCETH() XRCETH { return p.ext(p.Info().XRCETH, XRCETHLen) }

// FETH is the flush extended header, nil if the packet has none.
func (p Packet) FETH() FETH { return p.ext(p.Info().FETH, FETHLen) }

// RETH is the RDMA extended header, nil if the packet has none.
func (p Packet) RETH() RETH { return p.ext(p.Info().RETH, RETHLen) }

// AtomicETH is the atomic extended header, nil if the packet has none.
func (p Packet) AtomicETH() AtomicETH { return p.ext(p.Info().AtomicETH, AtomicETHLen) }

// AETH is the ACK extended header, nil if the packet has none.
func (p Packet) AETH() AETH { return p.ext(p.Info().AETH, AETHLen) }

// AtomicAck is the value in memory before an atomic operation, 0 if the packet carries none.
func (p Packet) AtomicAck() uint64 {
	if off := p.Info().AtomicAck; off != 0 {
		return be.Uint64(p[off:])
	}
	return 0
}

// Imm is the immediate data, 0 if the packet carries none. Its four bytes are defined by the application; this is
// their big-endian value, which C programs pass as htonl(x).
func (p Packet) Imm() uint32 {
	if off := p.Info().Imm; off != 0 {
		return be.Uint32(p[off:])
	}
	return 0
}

// IETH is the R_Key to invalidate, 0 if the packet carries none.
func (p Packet) IETH() uint32 {
	if off := p.Info().IETH; off != 0 {
		return be.Uint32(p[off:])
	}
	return 0
}

// Payload is the data without the pad bytes; empty if there is none.
func (p Packet) Payload() []byte {
	off, end := p.Info().Len, len(p)-p.BTH().Pad()
	return p[off:end:end]
}
