package iwarp

// Lengths of the data of messages that carry a header of their own, in bytes.
const (
	ReadRequestLen    = 28
	AtomicRequestLen  = 52
	AtomicResponseLen = 12
	ImmediateLen      = 8
)

// Read is the request of a Read Request: Size bytes at SrcTO of the responder's SrcSTag, for SinkTO of the requester's
// SinkSTag.
type Read struct {
	SinkSTag uint32
	SinkTO   uint64
	Size     uint32
	SrcSTag  uint32
	SrcTO    uint64
}

// ParseRead decodes the ReadRequestLen bytes of a Read Request.
func ParseRead(b []byte) Read {
	_ = b[ReadRequestLen-1]
	return Read{
		SinkSTag: be.Uint32(b), SinkTO: be.Uint64(b[4:]), Size: be.Uint32(b[12:]),
		SrcSTag: be.Uint32(b[16:]), SrcTO: be.Uint64(b[20:]),
	}
}

// Put encodes r into ReadRequestLen bytes.
func (r *Read) Put(b []byte) {
	_ = b[ReadRequestLen-1]
	be.PutUint32(b, r.SinkSTag)
	be.PutUint64(b[4:], r.SinkTO)
	be.PutUint32(b[12:], r.Size)
	be.PutUint32(b[16:], r.SrcSTag)
	be.PutUint64(b[20:], r.SrcTO)
}

// AtomicOp is the kind of an Atomic Request.
type AtomicOp uint8

// The atomic operations. RFC 7306 leaves 1 out.
const (
	FetchAdd AtomicOp = 0
	CmpSwap  AtomicOp = 2
)

// Atomic is an Atomic Request on 8 bytes.
type Atomic struct {
	Op          AtomicOp
	ID          uint32 // comes back in the response
	STag        uint32
	TO          uint64
	Data        uint64 // to add, or to store
	Mask        uint64 // FetchAdd: the highest bits of fields, from which no carry leaves; CmpSwap: the bits to store
	Compare     uint64 // CmpSwap only
	CompareMask uint64
}

// ParseAtomic decodes the AtomicRequestLen bytes of an Atomic Request.
func ParseAtomic(b []byte) Atomic {
	_ = b[AtomicRequestLen-1]
	return Atomic{
		Op: AtomicOp(be.Uint32(b) & 15), ID: be.Uint32(b[4:]), STag: be.Uint32(b[8:]), TO: be.Uint64(b[12:]),
		Data: be.Uint64(b[20:]), Mask: be.Uint64(b[28:]), Compare: be.Uint64(b[36:]), CompareMask: be.Uint64(b[44:]),
	}
}

// Put encodes a into AtomicRequestLen bytes.
func (a *Atomic) Put(b []byte) {
	_ = b[AtomicRequestLen-1]
	be.PutUint32(b, uint32(a.Op))
	be.PutUint32(b[4:], a.ID)
	be.PutUint32(b[8:], a.STag)
	be.PutUint64(b[12:], a.TO)
	be.PutUint64(b[20:], a.Data)
	be.PutUint64(b[28:], a.Mask)
	be.PutUint64(b[36:], a.Compare)
	be.PutUint64(b[44:], a.CompareMask)
}

// ParseAtomicResponse decodes the AtomicResponseLen bytes of an Atomic Response: the request's ID, and the content of
// the memory before the operation.
func ParseAtomicResponse(b []byte) (id uint32, was uint64) { return be.Uint32(b), be.Uint64(b[4:]) }

// PutAtomicResponse encodes an Atomic Response.
func PutAtomicResponse(b []byte, id uint32, was uint64) {
	be.PutUint32(b, id)
	be.PutUint64(b[4:], was)
}

// ParseImmediate decodes the ImmediateLen bytes of an Immediate Data message as Verbena uses them: the immediate data
// of a WRITE, and its length in bytes, which the receiver of a WRITE does not otherwise know.
func ParseImmediate(b []byte) (imm, length uint32) { return be.Uint32(b), be.Uint32(b[4:]) }

// PutImmediate encodes what ParseImmediate decodes.
func PutImmediate(b []byte, imm, length uint32) {
	be.PutUint32(b, imm)
	be.PutUint32(b[4:], length)
}
