//go:build linux && cgo

package main

// #include "engine.h"
import "C"

import (
	"errors"
	"net"
	"syscall"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/seam"
	_ "github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

type contextObj struct{ *verbs.Context }

//export vrb_devices
func vrb_devices(out *C.struct_vrb_device, n C.int) C.int {
	list, err := verbs.Devices()
	if err != nil && len(list) == 0 {
		return -errno(err)
	}
	to := unsafe.Slice(out, int(n))
	for i, d := range list[:min(len(list), int(n))] {
		to[i] = C.struct_vrb_device{node_type: C.int32_t(d.NodeType()), transport_type: C.int32_t(d.TransportType())}
		for j, b := range d.GUID() {
			to[i].guid[j] = C.uint8_t(b)
		}
		putString(to[i].name[:], d.Name())
		putString(to[i].iface[:], d.Interface())
		to[i].ifindex = C.uint32_t(ifIndex(d.Interface()))
	}
	return C.int(min(len(list), int(n)))
}

// putString copies s to C with a 0 at its end.
func putString(to []C.char, s string) {
	for i := range min(len(to)-1, len(s)) {
		to[i] = C.char(s[i])
	}
}

func ifIndex(name string) int {
	if name == "" {
		return 0
	}
	i, err := net.InterfaceByName(name)
	if err != nil {
		return 0
	}
	return i.Index
}

//export vrb_open
func vrb_open(name *C.char, asyncFD C.int, vectors, cmdFD *C.int, out *unsafe.Pointer) C.int {
	ctx, err := verbs.Open(C.GoString(name))
	if err != nil {
		return errno(err)
	}
	return addContext(ctx, asyncFD, vectors, cmdFD, out)
}

//export vrb_import_device
func vrb_import_device(fd, asyncFD C.int, name *C.char, vectors, cmdFD *C.int, out *unsafe.Pointer) C.int {
	ctx, err := verbs.ImportDevice(int(fd))
	if err != nil {
		return errno(err)
	}
	putString(unsafe.Slice(name, 64), ctx.Device().Name())
	return addContext(ctx, asyncFD, vectors, cmdFD, out)
}

func addContext(ctx *verbs.Context, asyncFD C.int, vectors, cmdFD *C.int, out *unsafe.Pointer) C.int {
	fd, err := ctx.CmdFD()
	if err == nil {
		err = seam.CountEvents(ctx, int(asyncFD))
	}
	if err != nil {
		_ = ctx.Close()
		return errno(err)
	}
	c := &contextObj{ctx}
	*vectors, *cmdFD = C.int(ctx.NumCompVectors()), C.int(fd)
	*out = keep(c, kindContext, c, c.close)
	dropped.watch(ctx.Device())
	return 0
}

func (c *contextObj) close() error {
	dropped.look(c.Device())
	closeChildren(c)
	return c.Context.Close()
}

// noEvent is the errno of an event queue without an event: EIO once the device was removed, else EAGAIN, so that the
// library waits for the next one.
func noEvent(err error) C.int {
	if errors.Is(err, syscall.EIO) {
		return C.int(syscall.EIO)
	}
	return C.int(syscall.EAGAIN)
}

//export vrb_take_async
func vrb_take_async(h unsafe.Pointer, out *C.struct_vrb_async) C.int {
	ev, err := (*contextObj)(h).TryGetAsyncEvent()
	if err != nil {
		return noEvent(err)
	}
	ev.Ack() // the C library counts
	*out = C.struct_vrb_async{_type: C.int32_t(ev.Type)}
	switch {
	case ev.CQ != nil:
		out.kind, out.context = C.VRB_ASYNC_CQ, pointer(ev.CQ.CQContext())
	case ev.QP != nil:
		out.kind, out.context = C.VRB_ASYNC_QP, pointer(ev.QP.QPContext())
	case ev.SRQ != nil:
		out.kind, out.context = C.VRB_ASYNC_SRQ, pointer(ev.SRQ.SRQContext())
	case ev.WQ != nil:
		out.kind, out.context = C.VRB_ASYNC_WQ, pointer(ev.WQ.WQContext())
	case ev.Port != 0:
		out.kind, out.port = C.VRB_ASYNC_PORT, C.int32_t(ev.Port)
	}
	return 0
}

// pointer returns the pointer that C gave as the context of an object.
func pointer(context any) unsafe.Pointer {
	p, _ := context.(unsafe.Pointer)
	return p
}

//export vrb_query_port
func vrb_query_port(h unsafe.Pointer, port C.int, out unsafe.Pointer) C.int {
	if port < 0 || port > 255 {
		return C.int(syscall.EINVAL)
	}
	p, err := (*contextObj)(h).QueryPort(uint8(port))
	if err != nil {
		return errno(err)
	}
	*(*cPortAttr)(out) = cPortAttr{
		state: uint32(p.State), maxMTU: uint32(p.MaxMTU), mtu: uint32(p.ActiveMTU), gids: int32(p.GIDTblLen),
		caps: uint32(p.PortCapFlags), maxMsg: p.MaxMsgSz, badPKey: p.BadPKeyCntr, qkeyViol: p.QKeyViolCntr,
		pkeys: p.PKeyTblLen, lid: p.LID, smLID: p.SMLID, lmc: p.LMC, maxVL: p.MaxVLNum, smSL: p.SMSL,
		timeout: p.SubnetTimeout, initType: p.InitTypeReply, width: uint8(p.ActiveWidth), speed: uint8(p.ActiveSpeed),
		phys: uint8(p.PhysState), layer: uint8(p.LinkLayer), flags: uint8(p.Flags), caps2: uint16(p.PortCapFlags2),
	}
	if p.ActiveSpeed > 255 {
		(*cPortAttr)(out).speed, (*cPortAttr)(out).speedEx = 128, uint32(p.ActiveSpeed)
	}
	return 0
}

//export vrb_query_rt_values
func vrb_query_rt_values(h unsafe.Pointer, clock *C.uint64_t) C.int {
	v, err := (*contextObj)(h).QueryRTValues()
	*clock = C.uint64_t(v.RawClock)
	return errno(err)
}

func fillGID(to *cGIDEntry, e *verbs.GIDEntry) {
	*to = cGIDEntry{gid: e.GID, index: uint32(e.Index), port: uint32(e.Port), typ: uint32(e.Type),
		ifindex: uint32(ifIndex(e.NetDev))}
}

//export vrb_query_gid
func vrb_query_gid(h unsafe.Pointer, port, index C.uint32_t, out unsafe.Pointer) C.int {
	if port > 255 || index > 1<<30 {
		return C.int(syscall.EINVAL)
	}
	e, err := (*contextObj)(h).QueryGIDEntry(uint8(port), int(index))
	if errors.Is(err, verbs.ENODATA) {
		return C.int(syscall.ENODATA) // frequent, and not worth an explanation
	}
	if err != nil {
		return errno(err)
	}
	fillGID((*cGIDEntry)(out), &e)
	return 0
}

//export vrb_query_gid_table
func vrb_query_gid_table(h unsafe.Pointer, out unsafe.Pointer, n C.uint64_t) C.int {
	list, err := (*contextObj)(h).QueryGIDTable()
	if err != nil {
		return -errno(err)
	}
	if uint64(len(list)) > uint64(n) {
		return -C.int(syscall.EINVAL)
	}
	for i := range list {
		fillGID((*cGIDEntry)(unsafe.Add(out, i*int(unsafe.Sizeof(cGIDEntry{})))), &list[i])
	}
	return C.int(len(list))
}

//export vrb_query_pkey
func vrb_query_pkey(h unsafe.Pointer, port, index C.int, out *C.uint16_t) C.int {
	if port < 0 || port > 255 {
		return C.int(syscall.EINVAL)
	}
	p, err := (*contextObj)(h).QueryPKey(uint8(port), int(index))
	if err == nil {
		*out = C.uint16_t(big16(p))
	}
	return errno(err)
}
