//go:build linux && cgo

package main

// #include "engine.h"
import "C"

import (
	"math/bits"
	"sync"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/seam"
	"github.com/verbena-rdma/verbena/verbs"
)

type channelObj struct{ *verbs.CompChannel }

//export vrb_create_channel
func vrb_create_channel(h unsafe.Pointer, fd C.int, out *unsafe.Pointer) C.int {
	c := (*contextObj)(h)
	ch, err := c.CreateCompChannel()
	if err != nil {
		return errno(err)
	}
	if err := seam.CountEvents(ch, int(fd)); err != nil {
		_ = ch.Close()
		return errno(err)
	}
	*out = keep(c, kindChannel, &channelObj{ch}, ch.Close)
	return 0
}

//export vrb_take_comp
func vrb_take_comp(h unsafe.Pointer, out *unsafe.Pointer) C.int {
	cq, err := (*channelObj)(h).TryGetEvent()
	if err != nil {
		return noEvent(err)
	}
	cq.AckEvents(1) // the C library counts
	*out = pointer(cq.CQContext())
	return 0
}

// cqObj is a CQ with room for the completions of a poll.
type cqObj struct {
	*verbs.CQ
	mu sync.Mutex
	// +checklocks:mu
	wcs [64]verbs.WC
}

//export vrb_create_cq
func vrb_create_cq(h unsafe.Pointer, init *C.struct_vrb_cq_init, out *unsafe.Pointer) C.int {
	c := (*contextObj)(h)
	o := verbs.CQOptions{Context: init.context, CompVector: int(init.comp_vector),
		WCFlags: verbs.CreateCQWCFlags(init.wc_flags), Flags: verbs.CreateCQFlags(init.flags)}
	q := &cqObj{}
	if init.channel != nil {
		o.Channel = (*channelObj)(init.channel).CompChannel
	}
	if init.parent_domain != nil {
		o.ParentDomain = (*pdObj)(init.parent_domain).PD
	}
	var err error
	if q.CQ, err = c.CreateCQ(int(init.cqe), &o); err != nil {
		return errno(err)
	}
	driver.Of[interface{ CountMissed() }](q.CQ).CountMissed()
	init.cqe = C.int32_t(q.Cap())
	*out = keep(c, kindCQ, q, q.Close)
	return 0
}

//export vrb_resize_cq
func vrb_resize_cq(h unsafe.Pointer, cqe C.int, got *C.int) C.int {
	q := (*cqObj)(h)
	err := q.Resize(int(cqe))
	*got = C.int(q.Cap())
	return errno(err)
}

//export vrb_moderate_cq
func vrb_moderate_cq(h unsafe.Pointer, mask C.uint32_t, count, period C.uint16_t) C.int {
	return errno((*cqObj)(h).Modify(&verbs.ModifyCQAttr{AttrMask: verbs.CQAttrMask(mask),
		Moderate: verbs.ModerateCQ{Count: uint16(count), Period: uint16(period)}}))
}

// vrb_req_notify requests an event. kept says that the C library keeps completions for the program: they count as those
// that the CQ holds.
//
//export vrb_req_notify
func vrb_req_notify(h unsafe.Pointer, solicited, kept C.int) C.int {
	q := (*cqObj)(h)
	err := q.ReqNotify(solicited != 0)
	if err == nil && kept != 0 {
		driver.Of[interface{ Wake() }](q.CQ).Wake()
	}
	return errno(err)
}

// take polls up to n completions, as many as there is room for, and reports whether there may be more.
//
// +checklocks:q.mu
func (q *cqObj) take(n int) (wcs []verbs.WC, more bool, err error) {
	wcs = q.wcs[:min(n, len(q.wcs))]
	got, err := q.Poll(wcs)
	if explain {
		for i := range wcs[:got] {
			if wcs[i].Status != verbs.WCSuccess {
				errno(wcs[i].Err())
			}
		}
	}
	return wcs[:got], got == len(wcs) && got < n, err
}

//export vrb_poll
func vrb_poll(h unsafe.Pointer, n C.int, out unsafe.Pointer) C.int {
	q := (*cqObj)(h)
	got := 0
	q.mu.Lock()
	for more := n > 0; more; {
		var wcs []verbs.WC
		var err error
		wcs, more, err = q.take(int(n) - got)
		to := unsafe.Slice((*cWC)(unsafe.Add(out, got*int(unsafe.Sizeof(cWC{})))), len(wcs))
		for i := range wcs {
			fillWC(&to[i], &wcs[i])
		}
		if got += len(wcs); err != nil && got == 0 {
			got = -1
			errno(err)
		}
	}
	q.mu.Unlock()
	return C.int(got)
}

func fillWC(to *cWC, w *verbs.WC) {
	*to = cWC{
		wrID: w.WRID, status: uint32(w.Status), opcode: uint32(w.Opcode), vendorErr: w.VendorErr, byteLen: w.ByteLen,
		imm: big32(w.ImmData), qpNum: w.QPNum, srcQP: w.SrcQP, flags: uint32(w.WCFlags), pkeyIndex: w.PKeyIndex,
		slid: w.SLID, sl: w.SL, dlidPathBits: w.DLIDPathBits,
	}
	if w.WCFlags&verbs.WCWithInv != 0 {
		to.imm = w.InvalidatedRKey
	}
}

//export vrb_poll_ex
func vrb_poll_ex(h unsafe.Pointer, n C.int, out *C.struct_vrb_wc) C.int {
	q := (*cqObj)(h)
	q.mu.Lock()
	defer q.mu.Unlock()
	wcs, _, err := q.take(int(n))
	if err != nil && len(wcs) == 0 {
		errno(err)
		return -1
	}
	to := unsafe.Slice(out, len(wcs))
	for i := range wcs {
		fillWCEx(&to[i], &wcs[i])
	}
	return C.int(len(wcs))
}

func fillWCEx(to *C.struct_vrb_wc, w *verbs.WC) {
	*to = C.struct_vrb_wc{
		wr_id: C.uint64_t(w.WRID), timestamp: C.uint64_t(w.Timestamp), wallclock: C.uint64_t(w.Wallclock),
		tm_tag: C.uint64_t(w.TM.Tag), tm_priv: C.uint32_t(w.TM.Priv), status: C.uint32_t(w.Status),
		opcode: C.uint32_t(w.Opcode), vendor_err: C.uint32_t(w.VendorErr), byte_len: C.uint32_t(w.ByteLen),
		imm: C.uint32_t(big32(w.ImmData)), qp_num: C.uint32_t(w.QPNum), src_qp: C.uint32_t(w.SrcQP),
		wc_flags: C.uint32_t(w.WCFlags), flow_tag: C.uint32_t(w.FlowTag), slid: C.uint32_t(w.SLID),
		pkey_index: C.uint16_t(w.PKeyIndex), cvlan: C.uint16_t(big16(w.CVLAN)), sl: C.uint8_t(w.SL),
		dlid_path_bits: C.uint8_t(w.DLIDPathBits),
	}
	if w.WCFlags&verbs.WCWithInv != 0 {
		to.imm = C.uint32_t(w.InvalidatedRKey)
	}
	if untagged := w.Opcode == verbs.WCTMNoTag || w.Opcode == verbs.WCTMRecv; untagged && w.WCFlags&verbs.WCTMMatch == 0 {
		// As adapters report it: that no buffer matched says that the message was unexpected, and its header has the
		// tag.
		to.wc_flags &^= C.uint32_t(verbs.WCTMSyncReq)
		to.tm_tag, to.tm_priv = 0, 0
	}
}

// littleEndian: host order is not network order, as on every system that Go and libibverbs have in common but few.
var littleEndian = *(*byte)(unsafe.Pointer(&[]uint16{1}[0])) == 1

// big32 converts between host order and network order.
func big32(v uint32) uint32 {
	if littleEndian {
		return bits.ReverseBytes32(v)
	}
	return v
}

func big16(v uint16) uint16 {
	if littleEndian {
		return bits.ReverseBytes16(v)
	}
	return v
}
