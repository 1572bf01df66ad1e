//go:build linux && cgo

package main

// #include "engine.h"
import "C"

import (
	"errors"
	"sync"
	"syscall"
	"unsafe"

	"github.com/verbena-rdma/verbena/verbs"
)

// batch is the number of requests that a post call converts at once.
const batch = 32

// maxSGE limits the lists of SGEs that are read at all; each QP has a limit of its own below this.
const maxSGE = 1 << 16

// sgesAt returns a list of struct ibv_sge, which verbs.SGE equals.
func sgesAt(list unsafe.Pointer, n int32) ([]verbs.SGE, bool) {
	switch {
	case n < 0 || n > maxSGE || list == nil && n > 0:
		return nil, false
	case n == 0:
		return nil, true // list may be anything
	}
	return unsafe.Slice((*verbs.SGE)(list), int(n)), true
}

var _ = [1]struct{}{}[unsafe.Sizeof(verbs.SGE{})-16]

// sender converts send requests.
type sender struct {
	mu sync.Mutex
	// +checklocks:mu
	wrs [batch]verbs.SendWR
	// +checklocks:mu
	binds [batch]verbs.MWBindInfo
	// +checklocks:mu
	tsos [batch]verbs.TSO
	// +checklocks:mu
	inline []byte // of requests with several SGEs
}

const (
	solicited = 1<<verbs.WRSend | 1<<verbs.WRSendWithImm | 1<<verbs.WRSendWithInv | 1<<verbs.WRRDMAWriteWithImm
	inlinable = solicited | 1<<verbs.WRRDMAWrite | 1<<verbs.WRAtomicWrite
	// datagrams are the requests in which the union of the destination is that of UD.
	datagrams uint32 = 1<<verbs.WRSend | 1<<verbs.WRSendWithImm | 1<<verbs.WRTSO
)

// flags drops flags without a meaning for the request, which package verbs refuses and adapters ignore.
func (q *qpObj) flags(op verbs.WROpcode, f verbs.SendFlags) verbs.SendFlags {
	if f&^verbs.SendSignaled == 0 || op > 31 {
		return f
	}
	if solicited>>op&1 == 0 {
		f &^= verbs.SendSolicited
	}
	if inlinable>>op&1 == 0 {
		f &^= verbs.SendInline
	}
	if !q.rc {
		f &^= verbs.SendFence
	}
	return f
}

// convert converts one request to element i. It reports whether the request could be read.
//
// +checklocks:q.send.mu
func (q *qpObj) convert(i int, w *cSendWR) bool {
	sges, ok := sgesAt(w.sgList, w.numSGE)
	if !ok {
		return false
	}
	s, op := &q.send.wrs[i], verbs.WROpcode(w.opcode)
	*s = verbs.SendWR{WRID: w.wrID, Opcode: op, Flags: q.flags(op, verbs.SendFlags(w.flags)), SGList: sges}
	switch op {
	case verbs.WRSendWithInv, verbs.WRLocalInv:
		s.InvalidateRKey = w.imm
	case verbs.WRAtomicCmpAndSwp, verbs.WRAtomicFetchAndAdd:
		s.RemoteAddr, s.CompareAdd, s.Swap, s.RKey = w.addr, w.arg, w.swap, w.rkey
	case verbs.WRBindMW:
		q.convertBind(i, w)
	case verbs.WRTSO:
		q.convertTSO(i, w)
	default:
		s.ImmData, s.RemoteAddr, s.RKey = big32(w.imm), w.addr, uint32(w.arg)
	}
	if q.ud && datagrams>>op&1 != 0 {
		s.RemoteQPN, s.RemoteQKey = (*[2]uint32)(unsafe.Pointer(&w.arg))[0], (*[2]uint32)(unsafe.Pointer(&w.arg))[1]
		if ah := handleAt(*(*unsafe.Pointer)(unsafe.Pointer(&w.addr)), handleOfAH); ah != nil {
			s.AH = (*ahObj)(ah).AH
		}
	}
	s.RemoteSRQN = w.srqn & q.srqMask()
	if s.Flags&verbs.SendInline != 0 {
		return q.convertInline(s)
	}
	return true
}

func (q *qpObj) srqMask() uint32 {
	if q.Type() == verbs.QPTypeXRCSend {
		return ^uint32(0)
	}
	return 0 // other programs leave the member as it is
}

// convertInline makes the memory of the SGEs the data of the request.
//
// +checklocks:q.send.mu
func (q *qpObj) convertInline(s *verbs.SendWR) bool {
	list := s.SGList
	s.SGList = nil
	var total uint64
	for i := range list {
		if total += uint64(list[i].Length); list[i].Addr == 0 && list[i].Length > 0 {
			return false
		}
	}
	switch {
	case total == 0:
		s.Flags &^= verbs.SendInline
	case total > 1<<20: // more than any QP permits
		return false
	case len(list) == 1:
		s.Inline = dataOf(&list[0])
	default:
		at := len(q.send.inline)
		for i := range list {
			if list[i].Length == 0 {
				continue // its address may be anything
			}
			q.send.inline = append(q.send.inline, dataOf(&list[i])...)
		}
		s.Inline = q.send.inline[at:]
	}
	return true
}

// dataOf returns the memory of an inline SGE, whose key is not used.
func dataOf(e *verbs.SGE) []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&e.Addr)), int(e.Length))
}

// +checklocks:q.send.mu
func (q *qpObj) convertBind(i int, w *cSendWR) {
	s := &q.send.wrs[i]
	if mw := handleAt(w.special, handleOfMW); mw != nil {
		s.MW = (*mwObj)(mw).MW
	}
	s.RKey = w.short
	q.send.binds[i] = bindInfo(handleAt(w.bind.mr, handleOfMR), w.bind.addr, w.bind.length, w.bind.access)
	s.BindInfo = &q.send.binds[i]
}

// +checklocks:q.send.mu
func (q *qpObj) convertTSO(i int, w *cSendWR) {
	half := (*[2]uint16)(unsafe.Pointer(&w.short))
	q.send.tsos[i] = verbs.TSO{MSS: half[1]}
	if w.special != nil {
		q.send.tsos[i].Hdr = unsafe.Slice((*byte)(w.special), int(half[0]))
	}
	q.send.wrs[i].TSO = &q.send.tsos[i]
}

//export vrb_post_send
func vrb_post_send(h, wr, bad unsafe.Pointer) C.int {
	q := (*qpObj)(h)
	q.send.mu.Lock()
	defer q.send.mu.Unlock()
	for w := (*cSendWR)(wr); w != nil; {
		first, n, readable := w, 0, true
		q.send.inline = q.send.inline[:0]
		for ; w != nil && n < batch && readable; n++ {
			if readable = q.convert(n, w); readable {
				w = w.next
			}
		}
		if !readable {
			n--
		}
		var err error
		if n > 0 || readable {
			err = q.PostSend(q.send.wrs[:n]...)
		}
		if err == nil && readable {
			continue
		}
		if err == nil {
			err = syscall.EINVAL
		} else {
			for n = postIndex(err); n > 0; n-- {
				first = first.next
			}
			w = first
		}
		setBad(bad, unsafe.Pointer(w))
		return errno(err)
	}
	return 0
}

// setBad sets a pointer of the program, which has any value before. To the collector a store to a pointer of Go would
// show that value, and it ends the process if memory of Go was there once.
func setBad(bad, wr unsafe.Pointer) { *(*uintptr)(bad) = uintptr(wr) }

// postIndex returns the index of the bad request.
func postIndex(err error) int {
	if e := (*verbs.PostError)(nil); errors.As(err, &e) {
		return e.Index
	}
	return 0
}

// receiver converts receive requests.
type receiver struct {
	mu sync.Mutex
	// +checklocks:mu
	wrs [batch]verbs.RecvWR
}

// post posts a list of requests, a batch at a time.
func (r *receiver) post(to interface{ PostRecv(...verbs.RecvWR) error }, w *cRecvWR, bad unsafe.Pointer) C.int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for w != nil {
		first, n, readable := w, 0, true
		for ; w != nil && n < batch; w = w.next {
			r.wrs[n].WRID = w.wrID
			if r.wrs[n].SGList, readable = sgesAt(w.sgList, w.numSGE); !readable {
				break
			}
			n++
		}
		if n > 0 {
			if err := to.PostRecv(r.wrs[:n]...); err != nil {
				for n = postIndex(err); n > 0; n-- {
					first = first.next
				}
				setBad(bad, unsafe.Pointer(first))
				return errno(err)
			}
		}
		if !readable {
			setBad(bad, unsafe.Pointer(w))
			return C.int(syscall.EINVAL)
		}
	}
	return 0
}

//export vrb_post_recv
func vrb_post_recv(h, wr, bad unsafe.Pointer) C.int {
	q := (*qpObj)(h)
	return q.recv.post(q.QP, (*cRecvWR)(wr), bad)
}
