//go:build linux && cgo

package main

// #include "engine.h"
import "C"

import (
	"syscall"
	"unsafe"

	"github.com/verbena-rdma/verbena/verbs"
)

//export vrb_post_list
func vrb_post_list(h unsafe.Pointer, wrs *C.struct_vrb_wr, n C.uint32_t, sges unsafe.Pointer, data *C.uint8_t) C.int {
	q := (*qpObj)(h)
	x, err := q.Ex()
	if err != nil {
		return errno(err)
	}
	x.Start()
	b := builder{x: x, sges: (*verbs.SGE)(sges), data: (*byte)(unsafe.Pointer(data)), q: q}
	for i := range unsafe.Slice(wrs, int(n)) {
		w := &unsafe.Slice(wrs, int(n))[i]
		if !b.add(w) {
			x.Abort()
			return C.int(syscall.EINVAL)
		}
	}
	return errno(x.Complete())
}

// builder gives the requests of a list to a QPEx.
type builder struct {
	x    *verbs.QPEx
	q    *qpObj
	sges *verbs.SGE
	data *byte
}

// add adds one request. It reports whether the opcode is known.
func (b *builder) add(w *C.struct_vrb_wr) bool {
	x, op := b.x, verbs.WROpcode(w.opcode)
	x.WRID = uint64(w.wr_id)
	x.WRFlags = b.q.flags(op, verbs.SendFlags(w.flags)) &^ verbs.SendInline
	rkey, addr, imm := uint32(w.rkey), uint64(w.remote_addr), big32(uint32(w.imm))
	switch op {
	case verbs.WRSend:
		x.Send()
	case verbs.WRSendWithImm:
		x.SendImm(imm)
	case verbs.WRSendWithInv:
		x.SendInv(uint32(w.imm))
	case verbs.WRRDMAWrite:
		x.RDMAWrite(rkey, addr)
	case verbs.WRRDMAWriteWithImm:
		x.RDMAWriteImm(rkey, addr, imm)
	case verbs.WRRDMARead:
		x.RDMARead(rkey, addr)
	case verbs.WRAtomicCmpAndSwp:
		x.AtomicCmpSwp(rkey, addr, uint64(w.compare_add), uint64(w.swap))
	case verbs.WRAtomicFetchAndAdd:
		x.AtomicFetchAdd(rkey, addr, uint64(w.compare_add))
	case verbs.WRLocalInv:
		x.LocalInv(uint32(w.imm))
	case verbs.WRTSO:
		x.SendTSO(b.bytes(w.hdr_start, w.hdr_len), uint16(w.mss))
	case verbs.WRBindMW:
		b.bind(w)
	case verbs.WRAtomicWrite:
		x.AtomicWrite(rkey, addr, [8]byte(b.bytes(w.data_start, 8)))
	case verbs.WRFlush:
		x.Flush(rkey, addr, uint32(w.flush_length), verbs.PlacementType(w.flush_type),
			verbs.SelectivityLevel(w.flush_level))
	default:
		return false
	}
	b.set(op, w)
	return true
}

func (b *builder) bind(w *C.struct_vrb_wr) {
	info := bindInfo(w.mr, uint64(w.bind_addr), uint64(w.bind_length), uint32(w.bind_access))
	var mw *verbs.MW
	if w.mw != nil {
		mw = (*mwObj)(w.mw).MW
	}
	b.x.BindMW(mw, uint32(w.rkey), &info)
}

// set gives the request its data and address.
func (b *builder) set(op verbs.WROpcode, w *C.struct_vrb_wr) {
	const noData = 1<<verbs.WRLocalInv | 1<<verbs.WRBindMW | 1<<verbs.WRAtomicWrite | 1<<verbs.WRFlush
	switch x := b.x; {
	case noData>>op&1 != 0:
	case verbs.SendFlags(w.flags)&verbs.SendInline != 0:
		x.SetInlineData(b.bytes(w.data_start, w.data_len))
	default:
		x.SetSGEList(unsafe.Slice(b.sges, int(w.first_sge+w.num_sge))[w.first_sge:])
	}
	if w.ah != nil {
		b.x.SetUDAddr((*ahObj)(w.ah).AH, uint32(w.remote_qpn), uint32(w.remote_qkey))
	}
	if b.q.Type() == verbs.QPTypeXRCSend {
		b.x.SetXRCSRQN(uint32(w.remote_srqn))
	}
}

func (b *builder) bytes(start, n C.uint32_t) []byte {
	return unsafe.Slice(b.data, int(start+n))[start:]
}
