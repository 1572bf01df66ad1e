package kmad

import (
	"encoding/binary"
	"syscall"
)

// Size is the length of a datagram in bytes.
const Size = 256

// Sizes of structures, and numbers of ioctls.
const (
	headerLen  = 64 // struct ib_user_mad_hdr
	requestLen = 40 // struct ib_user_mad_reg_req2

	abiVersion = 5 // IB_USER_MAD_ABI_VERSION

	cmdUnregister = 1<<30 | 4<<16 | 0x1B<<8 | 2          // IB_USER_MAD_UNREGISTER_AGENT
	cmdRegister   = 3<<30 | requestLen<<16 | 0x1B<<8 | 4 // IB_USER_MAD_REGISTER_AGENT2
)

var (
	ne = binary.NativeEndian
	be = binary.BigEndian
)

// Header is struct ib_user_mad_hdr without the fields that InfiniBand alone has: where a datagram goes or comes from.
type Header struct {
	Agent              uint32        // the kernel's number of it
	Status             syscall.Errno // of what is read: ETIMEDOUT of a request without an answer, which comes back
	TimeoutMS, Retries uint32        // of a request: without a time-out no answer is passed on
	QPN, QKey          uint32
	GRH                bool // always on RoCE
	GIDIndex           uint8
	HopLimit, TClass   uint8
	GID                [16]byte // the peer's
	FlowLabel          uint32
	PKeyIndex          uint16
}

// put writes the header to b, which has headerLen bytes and is zero.
func (h *Header) put(b []byte) {
	ne.PutUint32(b, h.Agent)
	ne.PutUint32(b[8:], h.TimeoutMS)
	ne.PutUint32(b[12:], h.Retries)
	be.PutUint32(b[20:], h.QPN)
	be.PutUint32(b[24:], h.QKey)
	if h.GRH {
		b[32] = 1
	}
	b[33], b[34], b[35] = h.GIDIndex, h.HopLimit, h.TClass
	copy(b[36:], h.GID[:])
	be.PutUint32(b[52:], h.FlowLabel)
	ne.PutUint16(b[56:], h.PKeyIndex)
}

// headerOf reads a header.
func headerOf(b []byte) Header {
	return Header{
		Agent: ne.Uint32(b), Status: syscall.Errno(ne.Uint32(b[4:])), TimeoutMS: ne.Uint32(b[8:]), Retries: ne.Uint32(b[12:]),
		QPN: be.Uint32(b[20:]), QKey: be.Uint32(b[24:]), GRH: b[32] != 0, GIDIndex: b[33], HopLimit: b[34], TClass: b[35],
		GID: [16]byte(b[36:52]), FlowLabel: be.Uint32(b[52:]), PKeyIndex: ne.Uint16(b[56:]),
	}
}

// A Request selects the requests that an agent gets. Without methods it gets only answers.
type Request struct {
	Class, Version uint8
	Methods        []uint8 // below 128
	OUI            uint32  // of the vendor, for the classes 0x30 to 0x4F
}

// put writes struct ib_user_mad_reg_req2 to b, which has requestLen bytes and is zero.
func (r *Request) put(b []byte) {
	ne.PutUint32(b[4:], 1) // QP 1
	if len(r.Methods) == 0 {
		return
	}
	b[8], b[9] = r.Class, r.Version
	ne.PutUint32(b[32:], r.OUI)
	for _, m := range r.Methods {
		word := b[16+m/64*8:]
		ne.PutUint64(word, ne.Uint64(word)|1<<(m%64))
	}
}
