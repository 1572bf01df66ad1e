//go:build linux && cgo

package main

// #include "cm.h"
import "C"

import (
	"bytes"
	"context"
	"net/netip"
	"syscall"
	"time"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/seam"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// Objects of rdma_cm belong to no context.
const (
	kindCMID kind = iota + 100
	kindCMChannel
)

type cmChannelObj struct{ *rdmacm.EventChannel }

// cmIDObj is an ID. Its Context is the pointer that C gave.
type cmIDObj struct{ *rdmacm.ID }

func cmID(h unsafe.Pointer) *rdmacm.ID { return (*cmIDObj)(h).ID }

//export vrb_cm_channel
func vrb_cm_channel(fd C.int, out *unsafe.Pointer) C.int {
	ch, err := rdmacm.CreateEventChannel()
	if err != nil {
		return errno(err)
	}
	if err := seam.CountCMEvents(ch, int(fd)); err != nil {
		_ = ch.Close()
		return errno(err)
	}
	*out = keep(nil, kindCMChannel, &cmChannelObj{ch}, ch.Close)
	return 0
}

// addID makes id an object of C.
func addID(id *rdmacm.ID) unsafe.Pointer {
	return keep(nil, kindCMID, &cmIDObj{id}, func() error {
		err := id.Close()
		if errnoOf(err) == syscall.EINVAL { // its channel was closed, which closed it
			err = nil
		}
		return err
	})
}

//export vrb_cm_create_id
func vrb_cm_create_id(ch unsafe.Pointer, ps C.uint32_t, context unsafe.Pointer, out *unsafe.Pointer) C.int {
	if ps > 0xffff {
		return C.int(syscall.EINVAL)
	}
	id, err := rdmacm.CreateID((*cmChannelObj)(ch).EventChannel, rdmacm.PortSpace(ps), context)
	if err != nil {
		return errno(err)
	}
	*out = addID(id)
	return 0
}

//export vrb_cm_create_ep
func vrb_cm_create_ep(ch unsafe.Pointer, ai *C.struct_vrb_cm_ai, ctx unsafe.Pointer, out *unsafe.Pointer) C.int {
	if ai.ps > 0xffff {
		return C.int(syscall.EINVAL)
	}
	res := &rdmacm.AddrInfo{Flags: rdmacm.AIFlags(ai.flags), QPType: verbs.QPType(ai.qp_type),
		PortSpace: rdmacm.PortSpace(ai.ps)}
	if err := endpointAddrs(res, ai.src, ai.dst); err != nil {
		return errno(err)
	}
	route, err := bytesAt(ai.route, ai.route_len)
	if ai.route_len == 0 {
		route, err = nil, nil
	}
	if err != nil {
		return errno(err)
	}
	res.Route = bytes.Clone(route)
	if ai.connect_len > 0 {
		res.Connect = C.GoBytes(ai.connect, C.int(min(ai.connect_len, 256)))
	}
	id, err := rdmacm.CreateEP(context.Background(), res, nil, nil)
	if err != nil {
		return errno(err)
	}
	id.Context = ctx
	if err := id.Migrate((*cmChannelObj)(ch).EventChannel); err != nil {
		_ = id.Close()
		return errno(err)
	}
	*out = addID(id)
	return 0
}

// endpointAddrs reads the addresses of an endpoint, which are of one family.
func endpointAddrs(res *rdmacm.AddrInfo, src, dst unsafe.Pointer) (err error) {
	read := addrAt
	if familyAt(src) == rdmacm.AFIB || familyAt(dst) == rdmacm.AFIB {
		res.Family = rdmacm.AFIB
		read = func(p unsafe.Pointer) (netip.AddrPort, error) { return ibAddrAt(p, res.PortSpace) }
	}
	if res.SrcAddr, err = read(src); err == nil {
		res.DstAddr, err = read(dst)
	}
	return err
}

// ibAddrAt reads a struct sockaddr_ib as an IP address; the zero AddrPort for no address.
func ibAddrAt(p unsafe.Pointer, ps rdmacm.PortSpace) (netip.AddrPort, error) {
	switch familyAt(p) {
	case rdmacm.AFUnspec:
		return netip.AddrPort{}, nil
	case rdmacm.AFIB:
	default:
		return netip.AddrPort{}, syscall.EINVAL
	}
	a := ibAt(p)
	const spaceBits, anyPKey = ^uint64(0xFFFF), 0xFFFF
	if a.SIDMask == 0 {
		a.SIDMask = ^uint64(0)
	}
	switch {
	case a.PKey != 0 && a.PKey != anyPKey:
		return netip.AddrPort{}, syscall.EINVAL
	case (a.SID^rdmacm.ServiceID(ps, 0))&a.SIDMask&spaceBits != 0:
		return netip.AddrPort{}, syscall.EPROTONOSUPPORT
	}
	return netip.AddrPortFrom(a.GID.Addr(), uint16(a.SID&a.SIDMask)), nil
}

//export vrb_cm_set_context
func vrb_cm_set_context(h, context unsafe.Pointer) C.int {
	cmID(h).Context = context
	return 0
}

//export vrb_cm_destroy
func vrb_cm_destroy(h unsafe.Pointer) C.int { return errno(drop(h)) }

//export vrb_cm_migrate
func vrb_cm_migrate(h, ch unsafe.Pointer) C.int {
	return errno(cmID(h).Migrate((*cmChannelObj)(ch).EventChannel))
}

//export vrb_cm_bind
func vrb_cm_bind(h, addr unsafe.Pointer) C.int {
	if familyAt(addr) == rdmacm.AFIB {
		return errno(cmID(h).BindAddrIB(ibAt(addr)))
	}
	a, err := addrAt(addr)
	if err == nil {
		err = cmID(h).BindAddr(a)
	}
	return errno(err)
}

//export vrb_cm_resolve_addr
func vrb_cm_resolve_addr(h, src, dst unsafe.Pointer, ms C.int) C.int {
	id, ctx, timeout := cmID(h), context.Background(), time.Duration(uint32(ms))*time.Millisecond
	if familyAt(dst) == rdmacm.AFIB {
		var from *rdmacm.SockaddrIB
		if src != nil {
			a := ibAt(src)
			from = &a
		}
		return errno(id.ResolveAddrIB(ctx, from, ibAt(dst), timeout))
	}
	from, err := addrAt(src)
	if err != nil {
		return errno(err)
	}
	to, err := addrAt(dst)
	if err != nil {
		return errno(err)
	}
	return errno(id.ResolveAddr(ctx, from, to, timeout))
}

//export vrb_cm_resolve_route
func vrb_cm_resolve_route(h unsafe.Pointer, ms C.int) C.int {
	return errno(cmID(h).ResolveRoute(context.Background(), time.Duration(uint32(ms))*time.Millisecond))
}

//export vrb_cm_info
func vrb_cm_info(h unsafe.Pointer, out *C.struct_vrb_cm_info) C.int {
	id := cmID(h)
	*out = C.struct_vrb_cm_info{ps: C.uint32_t(id.PS()), qp_type: C.uint32_t(id.QPType()),
		port_num: C.uint8_t(id.PortNum())}
	src := unsafe.Slice((*byte)(unsafe.Pointer(&out.src)), len(out.src))
	dst := unsafe.Slice((*byte)(unsafe.Pointer(&out.dst)), len(out.dst))
	if id.IsAFIB() {
		putIB(src, id.LocalAddrIB())
		putIB(dst, id.PeerAddrIB())
	} else {
		putAddr(src, id.LocalAddr())
		putAddr(dst, id.PeerAddr())
	}
	if ctx := id.Verbs(); ctx != nil {
		putString(out.device[:], ctx.Device().Name())
	}
	r := id.Route()
	*(*verbs.GID)(unsafe.Pointer(&out.sgid)), *(*verbs.GID)(unsafe.Pointer(&out.dgid)) = r.SGID, r.DGID
	out.pkey = C.uint16_t(r.PKey)
	if len(r.PathRec) > 0 {
		out.num_paths = 1
		fillPath(&out.path, &r.PathRec[0])
	}
	return 0
}

func fillPath(to *C.struct_vrb_cm_path, p *rdmacm.PathRec) {
	*to = C.struct_vrb_cm_path{
		flow_label: C.uint32_t(p.FlowLabel), pkey: C.uint16_t(p.PKey), hop_limit: C.uint8_t(p.HopLimit),
		traffic_class: C.uint8_t(p.TrafficClass), reversible: C.uint8_t(flag(p.Reversible)),
		numb_path: C.uint8_t(p.NumbPath), sl: C.uint8_t(p.SL), mtu: C.uint8_t(p.MTU), rate: C.uint8_t(p.Rate),
		packet_life_time: C.uint8_t(p.PacketLifeTime), preference: C.uint8_t(p.Preference),
	}
	*(*verbs.GID)(unsafe.Pointer(&to.dgid)), *(*verbs.GID)(unsafe.Pointer(&to.sgid)) = p.DGID, p.SGID
}

//export vrb_cm_listen
func vrb_cm_listen(h unsafe.Pointer, backlog C.int) C.int { return errno(cmID(h).Listen(int(backlog))) }

// connParam reads the parameters of a connection. In C a number that is 0 means 0.
func connParam(p *C.struct_vrb_cm_param) *rdmacm.ConnParam {
	number := func(n C.uint8_t) uint8 {
		switch n {
		case 0:
			return rdmacm.Zero
		case rdmacm.Zero:
			return rdmacm.Zero - 1 // out of range as well
		}
		return uint8(n)
	}
	return &rdmacm.ConnParam{
		PrivateData:        C.GoBytes(p.private_data, C.int(p.private_len)),
		ResponderResources: number(p.responder_resources), InitiatorDepth: number(p.initiator_depth),
		FlowControl: p.flow_control != 0, RetryCount: number(p.retry_count), RNRRetryCount: number(p.rnr_retry_count),
		SRQ: p.srq != 0, QPNum: uint32(p.qp_num),
	}
}

//export vrb_cm_connect
func vrb_cm_connect(h unsafe.Pointer, p *C.struct_vrb_cm_param) C.int {
	return errno(cmID(h).Connect(context.Background(), connParam(p)))
}

//export vrb_cm_accept
func vrb_cm_accept(h unsafe.Pointer, p *C.struct_vrb_cm_param) C.int {
	return errno(cmID(h).Accept(context.Background(), connParam(p)))
}

//export vrb_cm_establish
func vrb_cm_establish(h unsafe.Pointer) C.int { return errno(cmID(h).Establish()) }

//export vrb_cm_reject
func vrb_cm_reject(h, data unsafe.Pointer, n C.uint32_t, ece C.int) C.int {
	private := C.GoBytes(data, C.int(n))
	if ece != 0 {
		return errno(cmID(h).RejectECE(private))
	}
	return errno(cmID(h).Reject(private))
}

//export vrb_cm_disconnect
func vrb_cm_disconnect(h unsafe.Pointer) C.int {
	return errno(cmID(h).Disconnect(context.Background()))
}

//export vrb_cm_notify
func vrb_cm_notify(h unsafe.Pointer, event C.uint32_t) C.int {
	return errno(cmID(h).Notify(verbs.EventType(event)))
}

//export vrb_cm_set_option
func vrb_cm_set_option(h unsafe.Pointer, level, name C.int, value unsafe.Pointer, n C.uint64_t) C.int {
	err := cmID(h).SetOption(int(level), int(name), C.GoBytes(value, C.int(min(n, 4096))))
	if e := errno(err); e != C.int(syscall.EOPNOTSUPP) {
		return e
	}
	return C.int(syscall.ENOSYS) // of an option that does not exist, as from the kernel
}

//export vrb_cm_init_qp_attr
func vrb_cm_init_qp_attr(h, attr unsafe.Pointer, mask *C.int) C.int {
	a := verbs.QPAttr{QPState: verbs.QPState((*cQPAttr)(attr).state)}
	m, err := cmID(h).InitQPAttr(&a)
	if err == nil {
		*(*cQPAttr)(attr), *mask = qpAttrOf(&a), C.int(m)
	}
	return errno(err)
}

//export vrb_cm_join
func vrb_cm_join(h, addr unsafe.Pointer, flags C.uint32_t, userContext unsafe.Pointer) C.int {
	a, err := addrAt(addr)
	if err == nil {
		err = cmID(h).JoinMulticastEx(context.Background(), &rdmacm.JoinMCAttr{
			CompMask: rdmacm.JoinMCAttrAddress | rdmacm.JoinMCAttrJoinFlags, JoinFlags: rdmacm.JoinFlags(flags), Addr: a,
		}, userContext)
	}
	return errno(err)
}

//export vrb_cm_leave
func vrb_cm_leave(h, addr unsafe.Pointer) C.int {
	a, err := addrAt(addr)
	if err == nil {
		err = cmID(h).LeaveMulticast(a)
	}
	return errno(err)
}

//export vrb_cm_remote_ece
func vrb_cm_remote_ece(h unsafe.Pointer, out *C.uint32_t) C.int {
	e := cmID(h).RemoteECE()
	to := unsafe.Slice(out, 2)
	to[0], to[1] = C.uint32_t(e.VendorID), C.uint32_t(e.Options)
	return 0
}

//export vrb_cm_set_ece
func vrb_cm_set_ece(h unsafe.Pointer, vendor, options C.uint32_t) C.int {
	return errno(cmID(h).SetLocalECE(rdmacm.ECE{VendorID: uint32(vendor), Options: uint32(options)}))
}

//export vrb_cm_write_event
func vrb_cm_write_event(h unsafe.Pointer, kind C.uint32_t, status C.int, arg C.uint64_t) C.int {
	return errno(cmID(h).WriteEvent(rdmacm.EventType(kind), int(status), uint64(arg)))
}

//export vrb_cm_take
func vrb_cm_take(h unsafe.Pointer, out *C.struct_vrb_cm_event) C.int {
	ev, err := (*cmChannelObj)(h).TryGetEvent()
	if err != nil {
		return C.int(errnoOf(err))
	}
	defer func() { _ = ev.Ack() }() // the C library counts
	*out = C.struct_vrb_cm_event{_type: C.uint32_t(ev.Type), status: C.int32_t(ev.Status), arg: C.uint64_t(ev.Arg)}
	if ev.Type == rdmacm.EventConnectRequest {
		out.context, out.request = pointer(ev.ListenID.Context), addID(ev.ID)
	} else {
		out.context = pointer(ev.ID.Context)
	}
	if err := ev.Err(); err != nil {
		errno(err) // for VERBENA_EXPLAIN
	}
	private := ev.Conn.PrivateData
	switch {
	case ev.ID.QPType() == verbs.QPTypeUD:
		out.ud = 1
		private = ev.UD.PrivateData
		*(*cAHAttr)(unsafe.Pointer(&out.ah_attr)) = ahAttrOf(&ev.UD.AHAttr)
		out.qp_num, out.qkey, out.group = C.uint32_t(ev.UD.QPNum), C.uint32_t(ev.UD.QKey), pointer(ev.UD.Context)
	default:
		p := &ev.Conn
		out.qp_num, out.srq, out.flow_control = C.uint32_t(p.QPNum), C.uint8_t(flag(p.SRQ)), C.uint8_t(flag(p.FlowControl))
		out.responder_resources, out.initiator_depth = C.uint8_t(p.ResponderResources), C.uint8_t(p.InitiatorDepth)
		out.retry_count, out.rnr_retry_count = C.uint8_t(p.RetryCount), C.uint8_t(p.RNRRetryCount)
	}
	out.private_len = C.uint32_t(copy(unsafe.Slice((*byte)(unsafe.Pointer(&out.private_data)), len(out.private_data)),
		private))
	return 0
}
