//go:build linux && cgo

package main

// #include "engine.h"
import "C"

import (
	"errors"
	"syscall"
	"unsafe"

	"github.com/verbena-rdma/verbena/verbs"
)

type pdObj struct {
	*verbs.PD
	ctx *contextObj
}

func addPD(ctx *contextObj, k kind, pd *verbs.PD, out *unsafe.Pointer) {
	*out = keep(ctx, k, &pdObj{pd, ctx}, pd.Close)
}

//export vrb_alloc_pd
func vrb_alloc_pd(h unsafe.Pointer, handle *C.uint32_t, out *unsafe.Pointer) C.int {
	c := (*contextObj)(h)
	pd, err := c.AllocPD()
	if err != nil {
		return errno(err)
	}
	*handle = C.uint32_t(pd.Handle())
	addPD(c, kindPD, pd, out)
	return 0
}

//export vrb_import_pd
func vrb_import_pd(h unsafe.Pointer, handle C.uint32_t, out *unsafe.Pointer) C.int {
	c := (*contextObj)(h)
	pd, err := c.ImportPD(uint32(handle))
	if err != nil {
		return errno(err)
	}
	addPD(c, kindPD, pd, out)
	return 0
}

type tdObj struct{ *verbs.TD }

//export vrb_alloc_td
func vrb_alloc_td(h unsafe.Pointer, out *unsafe.Pointer) C.int {
	c := (*contextObj)(h)
	td, err := c.AllocTD()
	if err != nil {
		return errno(err)
	}
	*out = keep(c, kindTD, &tdObj{td}, td.Close)
	return 0
}

//export vrb_alloc_parent_domain
func vrb_alloc_parent_domain(h, pd, td unsafe.Pointer, out *unsafe.Pointer) C.int {
	c := (*contextObj)(h)
	init := verbs.ParentDomainInitAttr{}
	if pd != nil {
		init.PD = (*pdObj)(pd).PD
	}
	if td != nil {
		init.TD = (*tdObj)(td).TD
	}
	p, err := c.AllocParentDomain(&init)
	if err != nil {
		return errno(err)
	}
	addPD(c, kindParentDomain, p, out)
	return 0
}

type mrObj struct {
	*verbs.MR
	ctx *contextObj
}

func addMR(ctx *contextObj, mr *verbs.MR, keys *C.struct_vrb_mr, out *unsafe.Pointer) {
	m := &mrObj{mr, ctx}
	m.fill(keys)
	*out = keep(ctx, kindMR, m, mr.Close)
}

func (m *mrObj) fill(keys *C.struct_vrb_mr) {
	*keys = C.struct_vrb_mr{lkey: C.uint32_t(m.LKey()), rkey: C.uint32_t(m.RKey()), length: C.uint64_t(m.Length()),
		handle: C.uint32_t(m.Handle()), addr: unsafe.Pointer(unsafe.SliceData(m.Bytes()))}
}

// addressSpace bounds the addresses of a process: 56 bits on amd64 with page tables of 5 levels. arm64 has 48 or 52,
// and most of a program lies above 1<<47 there. Memory that is not mapped is found later.
const addressSpace = 1 << 56

// bytesAt returns memory of the program.
func bytesAt(addr unsafe.Pointer, n C.uint64_t) ([]byte, error) {
	switch {
	case addr == nil && n > 0:
		return nil, syscall.EFAULT
	case n >= addressSpace || uint64(uintptr(addr)) >= addressSpace-uint64(n):
		return nil, syscall.ENOMEM
	}
	return unsafe.Slice((*byte)(addr), int(n)), nil
}

//export vrb_reg_mr
func vrb_reg_mr(h, addr unsafe.Pointer, n, iova C.uint64_t, access C.uint32_t, keys *C.struct_vrb_mr,
	out *unsafe.Pointer) C.int {
	pd := (*pdObj)(h)
	buf, err := bytesAt(addr, n)
	if flags := verbs.AccessFlags(access); addr == nil && flags&verbs.AccessOnDemand != 0 {
		if buf, err = nil, nil; n != ^C.uint64_t(0) { // the whole address space has no other length
			err = syscall.EINVAL
		}
	} else if flags&verbs.AccessZeroBased != 0 {
		iova = 0
	}
	if err != nil {
		return errno(err)
	}
	mr, err := pd.RegMRIOVA(buf, uint64(iova), verbs.AccessFlags(access))
	if err != nil {
		return errno(err)
	}
	addMR(pd.ctx, mr, keys, out)
	return 0
}

//export vrb_reg_dm_mr
func vrb_reg_dm_mr(h, dm unsafe.Pointer, offset, n C.uint64_t, access C.uint32_t, keys *C.struct_vrb_mr,
	out *unsafe.Pointer) C.int {
	pd, flags := (*pdObj)(h), verbs.AccessFlags(access)
	if n == 0 {
		// Adapters register empty regions. One byte that can only be read locally is the next best.
		n, flags = 1, flags&verbs.AccessZeroBased
	}
	mr, err := pd.RegDMMR((*dmObj)(dm).DM, uint64(offset), uint64(n), flags)
	if err != nil {
		return errno(err)
	}
	addMR(pd.ctx, mr, keys, out)
	return 0
}

//export vrb_alloc_null_mr
func vrb_alloc_null_mr(h unsafe.Pointer, keys *C.struct_vrb_mr, out *unsafe.Pointer) C.int {
	pd := (*pdObj)(h)
	mr, err := pd.AllocNullMR()
	if err != nil {
		return errno(err)
	}
	addMR(pd.ctx, mr, keys, out)
	return 0
}

//export vrb_import_mr
func vrb_import_mr(h unsafe.Pointer, handle C.uint32_t, keys *C.struct_vrb_mr, out *unsafe.Pointer) C.int {
	pd := (*pdObj)(h)
	mr, err := pd.ImportMR(uint32(handle))
	if err != nil {
		return errno(err)
	}
	addMR(pd.ctx, mr, keys, out)
	return 0
}

//export vrb_rereg_mr
func vrb_rereg_mr(h unsafe.Pointer, flags C.int, pd, addr unsafe.Pointer, n C.uint64_t, access C.uint32_t,
	keys *C.struct_vrb_mr, code *C.int) C.int {
	m := (*mrObj)(h)
	*code = C.int(verbs.ReregErrInput)
	var domain *verbs.PD
	if pd != nil {
		domain = (*pdObj)(pd).PD
	}
	var buf []byte
	if f := verbs.ReregFlags(flags); f&verbs.ReregChangeTranslation != 0 {
		var err error
		if buf, err = bytesAt(addr, n); err != nil {
			return errno(err)
		}
	}
	err := m.Rereg(verbs.ReregFlags(flags), domain, buf, verbs.AccessFlags(access))
	if e := (*verbs.ReregError)(nil); errors.As(err, &e) {
		*code = C.int(e.Code)
	}
	if err == nil {
		*code = 0
		m.fill(keys)
	}
	return errno(err)
}

//export vrb_advise_mr
func vrb_advise_mr(h unsafe.Pointer, advice, flags C.uint32_t, list unsafe.Pointer, n C.uint32_t) C.int {
	sges, ok := sgesAt(list, int32(n))
	if !ok {
		return C.int(syscall.EINVAL)
	}
	return errno((*pdObj)(h).AdviseMR(verbs.AdviseMRAdvice(advice), verbs.AdviseMRFlags(flags), sges...))
}

type dmObj struct{ *verbs.DM }

//export vrb_alloc_dm
func vrb_alloc_dm(h unsafe.Pointer, n C.uint64_t, align C.uint32_t, handle *C.uint32_t, out *unsafe.Pointer) C.int {
	c := (*contextObj)(h)
	dm, err := c.AllocDM(verbs.AllocDMAttr{Length: uint64(n), LogAlignReq: uint32(align)})
	if err != nil {
		return errno(err)
	}
	*handle = C.uint32_t(dm.Handle())
	*out = keep(c, kindDM, &dmObj{dm}, dm.Close)
	return 0
}

//export vrb_import_dm
func vrb_import_dm(h unsafe.Pointer, handle C.uint32_t, out *unsafe.Pointer) C.int {
	c := (*contextObj)(h)
	dm, err := c.ImportDM(uint32(handle))
	if err != nil {
		return errno(err)
	}
	*out = keep(c, kindDM, &dmObj{dm}, dm.Close)
	return 0
}

// dmBytes returns the program's side of a copy to or from device memory, which adapters access in words of 4 bytes.
func dmBytes(addr unsafe.Pointer, offset uint64, n C.uint64_t) ([]byte, error) {
	if offset%4 != 0 || n%4 != 0 {
		return nil, syscall.EINVAL
	}
	return bytesAt(addr, n)
}

//export vrb_copy_to_dm
func vrb_copy_to_dm(h unsafe.Pointer, offset C.uint64_t, from unsafe.Pointer, n C.uint64_t) C.int {
	b, err := dmBytes(from, uint64(offset), n)
	if err == nil {
		err = (*dmObj)(h).CopyTo(uint64(offset), b)
	}
	return errno(err)
}

//export vrb_copy_from_dm
func vrb_copy_from_dm(to, h unsafe.Pointer, offset, n C.uint64_t) C.int {
	b, err := dmBytes(to, uint64(offset), n)
	if err == nil {
		err = (*dmObj)(h).CopyFrom(b, uint64(offset))
	}
	return errno(err)
}

type mwObj struct{ *verbs.MW }

//export vrb_alloc_mw
func vrb_alloc_mw(h unsafe.Pointer, typ C.int, rkey *C.uint32_t, out *unsafe.Pointer) C.int {
	pd := (*pdObj)(h)
	mw, err := pd.AllocMW(verbs.MWType(typ))
	if err != nil {
		return errno(err)
	}
	*rkey = C.uint32_t(mw.RKey())
	*out = keep(pd.ctx, kindMW, &mwObj{mw}, mw.Close)
	return 0
}

// bindInfo returns what a request binds a window to.
func bindInfo(mr unsafe.Pointer, addr, length uint64, access uint32) verbs.MWBindInfo {
	// A window gives rights to peers only, so that LOCAL_WRITE has no meaning: adapters ignore it.
	b := verbs.MWBindInfo{Addr: addr, Length: length, Access: verbs.AccessFlags(access) &^ verbs.AccessLocalWrite}
	if mr != nil {
		b.MR = (*mrObj)(mr).MR
	}
	return b
}

//export vrb_bind_mw
func vrb_bind_mw(qp, mw unsafe.Pointer, wr *C.struct_vrb_wr, rkey *C.uint32_t) C.int {
	b := verbs.MWBind{WRID: uint64(wr.wr_id), Flags: verbs.SendFlags(wr.flags)}
	b.Info = bindInfo(wr.mr, uint64(wr.bind_addr), uint64(wr.bind_length), uint32(wr.bind_access))
	m := (*mwObj)(mw)
	err := (*qpObj)(qp).BindMW(m.MW, &b)
	*rkey = C.uint32_t(m.RKey())
	return errno(err)
}
