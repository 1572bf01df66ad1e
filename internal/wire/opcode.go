package wire

// Opcode is byte 0 of the BTH: a transport in the upper three bits, an operation in the lower five.
type Opcode uint8

// Transport prefixes of an opcode (IBTA volume 1, table 38).
const (
	RC  Opcode = 0x00
	UC  Opcode = 0x20
	RD  Opcode = 0x40
	UD  Opcode = 0x60
	XRC Opcode = 0xA0

	transportMask Opcode = 0xE0
	operationMask Opcode = 0x1F
)

// Operations: the lower five bits of an opcode, the same in every transport that has them.
const (
	SendFirst      Opcode = 0x00
	SendMiddle     Opcode = 0x01
	SendLast       Opcode = 0x02
	SendLastImm    Opcode = 0x03
	SendOnly       Opcode = 0x04
	SendOnlyImm    Opcode = 0x05
	WriteFirst     Opcode = 0x06
	WriteMiddle    Opcode = 0x07
	WriteLast      Opcode = 0x08
	WriteLastImm   Opcode = 0x09
	WriteOnly      Opcode = 0x0A
	WriteOnlyImm   Opcode = 0x0B
	ReadRequest    Opcode = 0x0C
	ReadRespFirst  Opcode = 0x0D
	ReadRespMiddle Opcode = 0x0E
	ReadRespLast   Opcode = 0x0F
	ReadRespOnly   Opcode = 0x10
	Ack            Opcode = 0x11
	AtomicAck      Opcode = 0x12
	CompareSwap    Opcode = 0x13
	FetchAdd       Opcode = 0x14
	SendLastInv    Opcode = 0x16
	SendOnlyInv    Opcode = 0x17
	Flush          Opcode = 0x1C
	AtomicWrite    Opcode = 0x1D

	// CNP is the whole opcode of a RoCEv2 congestion notification packet.
	CNP Opcode = 0x81
)

// Transport is the opcode's upper three bits.
func (o Opcode) Transport() Opcode { return o & transportMask }

// Operation is the opcode's lower five bits.
func (o Opcode) Operation() Opcode { return o & operationMask }

// Flags describe an opcode and the position of its packets in a message.
type Flags uint16

// The flags of an opcode.
const (
	Start         Flags = 1 << iota // first packet of a message (FIRST or ONLY)
	End                             // last packet of a message (LAST or ONLY)
	IsSend                          // SEND in any form
	IsWrite                         // RDMA WRITE in any form
	IsRead                          // RDMA READ request
	IsAtomic                        // compare and swap, fetch and add
	Response                        // travels from responder to requester
	HasImm                          // carries immediate data
	HasInv                          // carries an R_Key to invalidate
	HasData                         // may carry payload
	IsFlush                         // FLUSH
	IsAtomicWrite                   // ATOMIC WRITE, which is neither a WRITE nor an atomic here
)

// Info describes one opcode. Offsets count from the first byte of the BTH; 0: the header is absent.
type Info struct {
	Name      string // as in IBTA table 38, for instance "RC SEND ONLY"
	Flags     Flags
	Len       int // bytes of BTH and extended headers together; 0 for an undefined opcode
	MinData   int // minimum payload of one packet, bytes
	MaxData   int // maximum payload of one packet, bytes, at the largest path MTU
	DETH      int
	XRCETH    int
	FETH      int
	RETH      int
	AtomicETH int
	AETH      int
	AtomicAck int
	Imm       int
	IETH      int
}

// Info returns the description of the opcode, with Len 0 if RoCEv2 does not define it. It must not be changed.
func (o Opcode) Info() *Info { return &infos[o] }

// Is reports whether the opcode has all the given flags.
func (o Opcode) Is(f Flags) bool { return infos[o].Flags&f == f }

// String names the opcode.
func (o Opcode) String() string {
	if n := infos[o].Name; n != "" {
		return n
	}
	const hex = "0123456789abcdef"
	return "opcode 0x" + string([]byte{hex[o>>4], hex[o&15]})
}

var infos = buildInfos()

type opShape struct {
	op    Opcode
	name  string
	flags Flags
}

var opShapes = []opShape{
	{SendFirst, "SEND FIRST", Start | IsSend | HasData},
	{SendMiddle, "SEND MIDDLE", IsSend | HasData},
	{SendLast, "SEND LAST", End | IsSend | HasData},
	{SendLastImm, "SEND LAST WITH IMMEDIATE", End | IsSend | HasImm | HasData},
	{SendOnly, "SEND ONLY", Start | End | IsSend | HasData},
	{SendOnlyImm, "SEND ONLY WITH IMMEDIATE", Start | End | IsSend | HasImm | HasData},
	{WriteFirst, "RDMA WRITE FIRST", Start | IsWrite | HasData},
	{WriteMiddle, "RDMA WRITE MIDDLE", IsWrite | HasData},
	{WriteLast, "RDMA WRITE LAST", End | IsWrite | HasData},
	{WriteLastImm, "RDMA WRITE LAST WITH IMMEDIATE", End | IsWrite | HasImm | HasData},
	{WriteOnly, "RDMA WRITE ONLY", Start | End | IsWrite | HasData},
	{WriteOnlyImm, "RDMA WRITE ONLY WITH IMMEDIATE", Start | End | IsWrite | HasImm | HasData},
	{ReadRequest, "RDMA READ REQUEST", Start | End | IsRead},
	{ReadRespFirst, "RDMA READ RESPONSE FIRST", Start | Response | HasData},
	{ReadRespMiddle, "RDMA READ RESPONSE MIDDLE", Response | HasData},
	{ReadRespLast, "RDMA READ RESPONSE LAST", End | Response | HasData},
	{ReadRespOnly, "RDMA READ RESPONSE ONLY", Start | End | Response | HasData},
	{Ack, "ACKNOWLEDGE", Start | End | Response},
	{AtomicAck, "ATOMIC ACKNOWLEDGE", Start | End | Response},
	{CompareSwap, "COMPARE SWAP", Start | End | IsAtomic},
	{FetchAdd, "FETCH ADD", Start | End | IsAtomic},
	{SendLastInv, "SEND LAST WITH INVALIDATE", End | IsSend | HasInv | HasData},
	{SendOnlyInv, "SEND ONLY WITH INVALIDATE", Start | End | IsSend | HasInv | HasData},
	{Flush, "FLUSH", Start | End | IsFlush},
	{AtomicWrite, "ATOMIC WRITE", Start | End | IsAtomicWrite | HasData},
}

func buildInfos() (t [256]Info) {
	for _, s := range opShapes {
		t[RC|s.op] = s.info("RC ", RC)
		t[XRC|s.op] = s.info("XRC ", XRC)
		if s.op <= WriteOnlyImm {
			t[UC|s.op] = s.info("UC ", UC)
		}
		if s.op == SendOnly || s.op == SendOnlyImm {
			t[UD|s.op] = s.info("UD ", UD)
		}
	}
	t[CNP] = Info{Name: "CNP", Len: BTHLen + CNPReserved, Flags: Start | End}
	return t
}

// info computes the offsets of one opcode's extended headers, in the order in which they follow the BTH.
func (s opShape) info(prefix string, transport Opcode) Info {
	in := Info{Name: prefix + s.name, Flags: s.flags, Len: BTHLen}
	place := func(where *int, length int) {
		*where = in.Len
		in.Len += length
	}
	if transport == UD {
		place(&in.DETH, DETHLen)
	}
	if transport == XRC && s.flags&Response == 0 {
		place(&in.XRCETH, XRCETHLen)
	}
	switch {
	case s.op == Flush:
		place(&in.FETH, FETHLen)
		place(&in.RETH, RETHLen)
	case s.op == AtomicWrite, s.flags&IsRead != 0, s.flags&IsWrite != 0 && s.flags&Start != 0:
		place(&in.RETH, RETHLen)
	case s.flags&IsAtomic != 0:
		place(&in.AtomicETH, AtomicETHLen)
	case s.flags&Response != 0 && s.op != ReadRespMiddle:
		place(&in.AETH, AETHLen)
	}
	if s.op == AtomicAck {
		place(&in.AtomicAck, AtomicAckLen)
	}
	if s.flags&HasImm != 0 {
		place(&in.Imm, ImmLen)
	}
	if s.flags&HasInv != 0 {
		place(&in.IETH, IETHLen)
	}
	switch {
	case s.op == AtomicWrite:
		in.MinData, in.MaxData = AtomicWriteLen, AtomicWriteLen
	case s.flags&HasData != 0:
		in.MaxData = MaxPayload
	}
	return in
}
