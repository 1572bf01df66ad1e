package wire

// Fields is the decoded form of a packet, for tests and tools; the data path works on the bytes. Fields of headers
// that the opcode does not have are 0 after decoding and ignored when building. Reserved bits and pad bytes are not
// kept: they are built as 0.
type Fields struct {
	Opcode    Opcode
	Solicited bool
	MigReq    bool
	FECN      bool
	BECN      bool
	AckReq    bool
	PKey      uint16
	DestQPN   uint32
	PSN       uint32

	QKey   uint32 // DETH
	SrcQPN uint32

	SRQN uint32 // XRCETH

	Placement   uint8 // FETH
	Selectivity uint8

	Addr   uint64 // RETH and AtomicETH
	RKey   uint32
	DMALen uint32 // RETH

	SwapAdd uint64 // AtomicETH
	Compare uint64

	Syndrome uint8 // AETH
	MSN      uint32

	Orig   uint64 // AtomicAckETH
	Imm    uint32 // ImmDt
	InvKey uint32 // IETH

	Payload []byte // without pad
}

// Fields decodes the packet. Payload aliases the packet.
func (p Packet) Fields() Fields {
	h := p.BTH()
	f := Fields{
		Opcode: h.Opcode(), Solicited: h.Solicited(), MigReq: h.MigReq(), FECN: h.FECN(), BECN: h.BECN(),
		AckReq: h.AckReq(), PKey: h.PKey(), DestQPN: h.DestQPN(), PSN: h.PSN(),
		Orig: p.AtomicAck(), Imm: p.Imm(), InvKey: p.IETH(), Payload: p.Payload(),
	}
	if x := p.DETH(); x != nil {
		f.QKey, f.SrcQPN = x.QKey(), x.SrcQPN()
	}
	if x := p.XRCETH(); x != nil {
		f.SRQN = x.SRQN()
	}
	if x := p.FETH(); x != nil {
		f.Placement, f.Selectivity = x.Placement(), x.Selectivity()
	}
	if x := p.RETH(); x != nil {
		f.Addr, f.RKey, f.DMALen = x.Addr(), x.RKey(), x.DMALen()
	}
	if x := p.AtomicETH(); x != nil {
		f.Addr, f.RKey, f.SwapAdd, f.Compare = x.Addr(), x.RKey(), x.SwapAdd(), x.Compare()
	}
	if x := p.AETH(); x != nil {
		f.Syndrome, f.MSN = x.Syndrome(), x.MSN()
	}
	return f
}

// Append builds the packet, BTH to pad, and appends it to b. It checks nothing, so that tests can build packets
// that Parse refuses. An undefined opcode gets a BTH and the payload.
func (f Fields) Append(b []byte) []byte {
	in := f.Opcode.Info()
	pad := -len(f.Payload) & 3
	start := len(b)
	b = append(b, make([]byte, max(in.Len, BTHLen))...)
	f.put(b[start:], in, pad)
	b = append(b, f.Payload...)
	return append(b, make([]byte, pad)...)
}

// Build builds the packet in new memory.
func (f Fields) Build() Packet { return f.Append(nil) }

// put writes the headers into p, whose bytes are zero.
func (f *Fields) put(p []byte, in *Info, pad int) {
	BTH(p).Put(f.Opcode, pad, f.PKey, f.DestQPN, f.PSN, f.flags())
	if f.FECN {
		p[4] |= 0x80
	}
	if f.BECN {
		p[4] |= 0x40
	}
	if in.DETH != 0 {
		DETH(p[in.DETH:]).Put(f.QKey, f.SrcQPN)
	}
	if in.XRCETH != 0 {
		XRCETH(p[in.XRCETH:]).Put(f.SRQN)
	}
	if in.FETH != 0 {
		FETH(p[in.FETH:]).Put(f.Placement, f.Selectivity)
	}
	if in.RETH != 0 {
		RETH(p[in.RETH:]).Put(f.Addr, f.RKey, f.DMALen)
	}
	if in.AtomicETH != 0 {
		AtomicETH(p[in.AtomicETH:]).Put(f.Addr, f.RKey, f.SwapAdd, f.Compare)
	}
	if in.AETH != 0 {
		AETH(p[in.AETH:]).Put(f.Syndrome, f.MSN)
	}
	if in.AtomicAck != 0 {
		be.PutUint64(p[in.AtomicAck:], f.Orig)
	}
	if in.Imm != 0 {
		be.PutUint32(p[in.Imm:], f.Imm)
	}
	if in.IETH != 0 {
		be.PutUint32(p[in.IETH:], f.InvKey)
	}
}

func (f *Fields) flags() uint32 {
	var bits uint32
	if f.Solicited {
		bits |= BTHSolicited
	}
	if f.MigReq {
		bits |= BTHMigReq
	}
	if f.AckReq {
		bits |= BTHAckReq
	}
	return bits
}
