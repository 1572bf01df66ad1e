//go:build linux && cgo

package main

// #include "engine.h"
import "C"

import (
	"encoding/binary"
	"syscall"
	"unsafe"

	"github.com/verbena-rdma/verbena/verbs"
)

type wqObj struct {
	*verbs.WQ
	recv receiver
}

//export vrb_create_wq
func vrb_create_wq(h unsafe.Pointer, init *C.struct_vrb_wq_init, out *unsafe.Pointer) C.int {
	c := (*contextObj)(h)
	if init.pd == nil || init.cq == nil {
		return C.int(syscall.EINVAL)
	}
	in := verbs.WQInitAttr{
		Context: init.context, Type: verbs.WQType(init._type), MaxWR: uint32(init.max_wr), MaxSGE: uint32(init.max_sge),
		PD: (*pdObj)(init.pd).PD, CQ: (*cqObj)(init.cq).CQ, CreateFlags: verbs.WQFlags(init.create_flags),
	}
	wq, err := c.CreateWQ(&in)
	if err != nil {
		return errno(err)
	}
	init.max_wr, init.max_sge, init.wq_num = C.uint32_t(in.MaxWR), C.uint32_t(in.MaxSGE), C.uint32_t(wq.WQN())
	*out = keep(c, kindWQ, &wqObj{WQ: wq}, wq.Close)
	return 0
}

//export vrb_modify_wq
func vrb_modify_wq(h unsafe.Pointer, mask, state, current, flags, flagsMask C.uint32_t) C.int {
	return errno((*wqObj)(h).Modify(&verbs.WQAttr{AttrMask: verbs.WQAttrMask(mask), State: verbs.WQState(state),
		CurrState: verbs.WQState(current), Flags: verbs.WQFlags(flags), FlagsMask: verbs.WQFlags(flagsMask)}))
}

//export vrb_post_wq_recv
func vrb_post_wq_recv(h, wr, bad unsafe.Pointer) C.int {
	w := (*wqObj)(h)
	return w.recv.post(w.WQ, (*cRecvWR)(wr), bad)
}

type tableObj struct{ *verbs.RWQIndTable }

//export vrb_create_ind_table
func vrb_create_ind_table(h unsafe.Pointer, log C.uint32_t, wqs *unsafe.Pointer, num *C.uint32_t,
	out *unsafe.Pointer) C.int {
	c := (*contextObj)(h)
	if log > 16 || wqs == nil {
		return C.int(syscall.EINVAL)
	}
	init := verbs.RWQIndTableInitAttr{LogIndTblSize: uint32(log)}
	for _, wq := range unsafe.Slice(wqs, 1<<log) {
		if wq == nil {
			return C.int(syscall.EINVAL)
		}
		init.IndTbl = append(init.IndTbl, (*wqObj)(wq).WQ)
	}
	t, err := c.CreateRWQIndTable(&init)
	if err != nil {
		return errno(err)
	}
	*num = C.uint32_t(t.Num())
	*out = keep(c, kindIndTable, &tableObj{t}, t.Close)
	return 0
}

type flowObj struct{ *verbs.Flow }

// handles resolves the C pointers in the specifications of a flow.
type handles struct{}

func (handles) Counters(p uint64) *verbs.Counters {
	if h := handleAt(*(*unsafe.Pointer)(unsafe.Pointer(&p)), handleOfCounters); h != nil {
		return (*countersObj)(h).Counters
	}
	return nil
}

func (handles) Action(p uint64) *verbs.FlowAction {
	if h := handleAt(*(*unsafe.Pointer)(unsafe.Pointer(&p)), handleOfAction); h != nil {
		return (*actionObj)(h).FlowAction
	}
	return nil
}

// flowBytes returns a copy of a rule with its actual size: libibverbs goes by the number and the sizes of the
// specifications, and programs leave the size of the whole as it is.
func flowBytes(attr unsafe.Pointer) []byte {
	const header = 20
	n := binary.NativeEndian
	size := header
	for range unsafe.Slice((*byte)(attr), header)[12] {
		size += int(n.Uint16(unsafe.Slice((*byte)(unsafe.Add(attr, size)), 6)[4:]))
	}
	b := append([]byte(nil), unsafe.Slice((*byte)(attr), size)...)
	n.PutUint16(b[8:], uint16(size))
	return b
}

//export vrb_create_flow
func vrb_create_flow(h, attr unsafe.Pointer, out *unsafe.Pointer) C.int {
	q := (*qpObj)(h)
	a, err := verbs.ParseFlowAttr(flowBytes(attr), handles{})
	if err != nil {
		return errno(err)
	}
	if a.Type == verbs.FlowAttrNormal && a.Flags&verbs.FlowEgress == 0 {
		a.Flags |= verbs.FlowAllowLoopBack // as adapters do: verbs.h has no name for the flag
	}
	f, err := q.CreateFlow(a)
	if err != nil {
		return errno(err)
	}
	*out = keep(q.ctx, kindFlow, &flowObj{f}, f.Close)
	return 0
}

type countersObj struct{ *verbs.Counters }

//export vrb_create_counters
func vrb_create_counters(h unsafe.Pointer, out *unsafe.Pointer) C.int {
	c := (*contextObj)(h)
	k, err := c.CreateCounters()
	if err != nil {
		return errno(err)
	}
	*out = keep(c, kindCounters, &countersObj{k}, k.Close)
	return 0
}

//export vrb_attach_counters
func vrb_attach_counters(h, flow unsafe.Pointer, desc, index C.uint32_t) C.int {
	var f *verbs.Flow // nil: described before the rule is made
	if flow != nil {
		f = (*flowObj)(flow).Flow
	}
	return errno((*countersObj)(h).AttachPointFlow(&verbs.CounterAttachAttr{CounterDesc: verbs.CounterDescription(desc),
		Index: uint32(index)}, f))
}

//export vrb_read_counters
func vrb_read_counters(h unsafe.Pointer, values *C.uint64_t, n, flags C.uint32_t) C.int {
	if values == nil && n > 0 || n > 1<<16 {
		return C.int(syscall.EINVAL)
	}
	return errno((*countersObj)(h).Read(unsafe.Slice((*uint64)(unsafe.Pointer(values)), int(n)),
		verbs.ReadCountersFlags(flags)))
}
