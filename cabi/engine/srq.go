//go:build linux && cgo

package main

// #include "engine.h"
import "C"

import (
	"errors"
	"os"
	"syscall"
	"unsafe"

	"github.com/verbena-rdma/verbena/verbs"
	"golang.org/x/sys/unix"
)

type srqObj struct {
	*verbs.SRQ
	recv receiver
}

//export vrb_create_srq
func vrb_create_srq(_, h unsafe.Pointer, init *C.struct_vrb_srq_init, out *unsafe.Pointer) C.int {
	pd := (*pdObj)(h)
	in := verbs.SRQInitAttr{
		Context: init.context, Attr: verbs.SRQAttr{MaxWR: uint32(init.max_wr), MaxSGE: uint32(init.max_sge)},
		Type:  verbs.SRQType(init._type),
		TMCap: verbs.TMCap{MaxNumTags: uint32(init.max_num_tags), MaxOps: uint32(init.max_ops)},
	}
	if init.xrcd != nil {
		in.XRCD = (*xrcdObj)(init.xrcd).XRCD
	}
	if init.cq != nil {
		in.CQ = (*cqObj)(init.cq).CQ
	}
	s, err := pd.CreateSRQ(&in)
	if err != nil {
		return errno(err)
	}
	init.max_wr, init.max_sge = C.uint32_t(in.Attr.MaxWR), C.uint32_t(in.Attr.MaxSGE)
	if in.Type == verbs.SRQTypeXRC {
		n, _ := s.Num()
		init.srq_num = C.uint32_t(n)
	}
	*out = keep(pd.ctx, kindSRQ, &srqObj{SRQ: s}, s.Close)
	return 0
}

//export vrb_modify_srq
func vrb_modify_srq(h, attr unsafe.Pointer, mask C.int) C.int {
	a := (*cSRQAttr)(attr)
	return errno((*srqObj)(h).Modify(&verbs.SRQAttr{MaxWR: a.maxWR, MaxSGE: a.maxSGE, SRQLimit: a.limit},
		verbs.SRQAttrMask(mask)))
}

//export vrb_query_srq
func vrb_query_srq(h, attr unsafe.Pointer) C.int {
	a, err := (*srqObj)(h).Query()
	if err == nil {
		*(*cSRQAttr)(attr) = cSRQAttr{a.MaxWR, a.MaxSGE, a.SRQLimit}
	}
	return errno(err)
}

//export vrb_post_srq_recv
func vrb_post_srq_recv(h, wr, bad unsafe.Pointer) C.int {
	s := (*srqObj)(h)
	return s.recv.post(s.SRQ, (*cRecvWR)(wr), bad)
}

//export vrb_post_srq_ops
func vrb_post_srq_ops(h, wr, bad unsafe.Pointer) C.int {
	for w := (*cOpsWR)(wr); w != nil; w = w.next {
		sges, ok := sgesAt(w.sgList, w.numSGE)
		if w.opcode != uint32(verbs.TagAdd) {
			sges, ok = nil, true // the members of an ADD are not set
		}
		err := error(syscall.EINVAL)
		if ok {
			op := [1]verbs.OpsWR{{WRID: w.wrID, Opcode: verbs.OpsWROpcode(w.opcode), Flags: verbs.OpsFlags(w.flags),
				UnexpectedCnt: w.unexpected, Handle: w.handle}}
			if w.opcode == uint32(verbs.TagAdd) {
				op[0].RecvWRID, op[0].SGList, op[0].Tag, op[0].Mask = w.recvWRID, sges, w.tag, w.mask
			}
			err = (*srqObj)(h).PostOps(op[:]...)
			w.handle = op[0].Handle
		}
		if err != nil {
			setBad(bad, unsafe.Pointer(w))
			return errno(err)
		}
	}
	return 0
}

//export vrb_open_xrcd
func vrb_open_xrcd(h unsafe.Pointer, fd, oflags C.int, out *unsafe.Pointer) C.int {
	c := (*contextObj)(h)
	init := verbs.XRCDInitAttr{OFlags: int(oflags)}
	if fd != -1 {
		dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return errno(err)
		}
		init.File = os.NewFile(uintptr(dup), "xrcd")
		defer init.File.Close()
	}
	d, err := c.OpenXRCD(&init)
	if errors.Is(err, syscall.EOPNOTSUPP) && init.File != nil {
		// Another process has the domain of the file. Programs that each use their own objects of the domain work
		// with a private one.
		d, err = c.OpenXRCD(&verbs.XRCDInitAttr{OFlags: os.O_CREATE})
	}
	if err != nil {
		return errno(err)
	}
	*out = keep(c, kindXRCD, &xrcdObj{d, c}, d.Close)
	return 0
}
