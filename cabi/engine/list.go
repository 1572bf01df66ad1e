//go:build linux && cgo

package main

// #include "engine.h"
import "C"

import (
	"slices"
	"sync"
	"unsafe"

	"github.com/verbena-rdma/verbena/verbs"
)

// list has room for the requests of an ibv_wr_complete, which are posted all or none.
type list struct {
	mu sync.Mutex
	// +checklocks:mu
	wrs []verbs.SendWR
	// +checklocks:mu
	binds []verbs.MWBindInfo
	// +checklocks:mu
	tsos []verbs.TSO
}

// source is the memory of C that the requests of a list refer to.
type source struct {
	sges *verbs.SGE
	data *byte
}

func (s *source) bytes(start, n C.uint32_t) []byte { return unsafe.Slice(s.data, int(start+n))[start:] }

//export vrb_post_list
func vrb_post_list(h unsafe.Pointer, wrs *C.struct_vrb_wr, n C.uint32_t, sges unsafe.Pointer, data *C.uint8_t) C.int {
	q := (*qpObj)(h)
	x, err := q.Ex()
	if err != nil {
		return errno(err)
	}
	l, from := &q.list, source{(*verbs.SGE)(sges), (*byte)(unsafe.Pointer(data))}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrs = slices.Grow(l.wrs[:0], int(n))[:n]
	l.binds = slices.Grow(l.binds[:0], int(n))[:n]
	l.tsos = slices.Grow(l.tsos[:0], int(n))[:n]
	for i := range unsafe.Slice(wrs, int(n)) {
		q.fill(i, &unsafe.Slice(wrs, int(n))[i], &from)
	}
	return errno(x.Post(l.wrs...))
}

// fill makes request i of the list.
//
// +checklocks:q.list.mu
func (q *qpObj) fill(i int, w *C.struct_vrb_wr, from *source) {
	s, op := &q.list.wrs[i], verbs.WROpcode(w.opcode)
	*s = verbs.SendWR{
		WRID: uint64(w.wr_id), Opcode: op, Flags: q.flags(op, verbs.SendFlags(w.flags)),
		RemoteAddr: uint64(w.remote_addr), RKey: uint32(w.rkey), CompareAdd: uint64(w.compare_add), Swap: uint64(w.swap),
		RemoteQPN: uint32(w.remote_qpn), RemoteQKey: uint32(w.remote_qkey), RemoteSRQN: uint32(w.remote_srqn) & q.srqMask(),
		ImmData: big32(uint32(w.imm)), InvalidateRKey: uint32(w.imm),
	}
	if w.ah != nil {
		s.AH = (*ahObj)(w.ah).AH
	}
	switch op {
	case verbs.WRBindMW:
		q.list.binds[i] = bindInfo(w.mr, uint64(w.bind_addr), uint64(w.bind_length), uint32(w.bind_access))
		if s.BindInfo = &q.list.binds[i]; w.mw != nil {
			s.MW = (*mwObj)(w.mw).MW
		}
		return
	case verbs.WRTSO:
		q.list.tsos[i] = verbs.TSO{Hdr: from.bytes(w.hdr_start, w.hdr_len), MSS: uint16(w.mss)}
		s.TSO = &q.list.tsos[i]
	case verbs.WRFlush:
		s.Flush = verbs.Flush{Length: uint32(w.flush_length), Type: verbs.PlacementType(w.flush_type),
			Level: verbs.SelectivityLevel(w.flush_level)}
		return
	case verbs.WRAtomicWrite:
		s.Flags |= verbs.SendInline
	}
	switch inline := s.Flags&verbs.SendInline != 0; {
	case inline && w.data_len > 0:
		s.Inline = from.bytes(w.data_start, w.data_len)
	case inline:
		s.Flags &^= verbs.SendInline
	default:
		s.SGList = unsafe.Slice(from.sges, int(w.first_sge+w.num_sge))[w.first_sge:]
	}
}
