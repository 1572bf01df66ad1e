//go:build linux && cgo

package main

// #include "rs.h"
import "C"

import (
	"net/netip"
	"syscall"
	"time"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/rsocket/socket"
)

// number returns n, or -errno if there is an error and nothing was done.
func number(n int, err error) C.int64_t {
	if err != nil && n <= 0 {
		return -C.int64_t(quiet(err))
	}
	return C.int64_t(n)
}

// quiet is errno for errors that are frequent and not worth an explanation.
func quiet(err error) C.int {
	switch e := errnoOf(err); e {
	case syscall.EAGAIN, syscall.EINPROGRESS:
		return C.int(e)
	}
	return errno(err)
}

//export vrb_rs_socket
func vrb_rs_socket(domain, typ, protocol C.int, out *unsafe.Pointer) C.int {
	s, err := socket.New(socket.Domain(domain), socket.Type(typ), int(protocol))
	if err != nil {
		return errno(err)
	}
	*out = addSocket(s)
	return 0
}

//export vrb_rs_close
func vrb_rs_close(h unsafe.Pointer) C.int { return errno(dropSocket(h)) }

//export vrb_rs_bind
func vrb_rs_bind(h, addr unsafe.Pointer) C.int {
	a, err := addrAt(addr)
	if err == nil {
		err = rs(h).Bind(a)
	}
	return errno(err)
}

//export vrb_rs_listen
func vrb_rs_listen(h unsafe.Pointer, backlog C.int) C.int { return errno(rs(h).Listen(int(backlog))) }

// fillAddr writes an address for C, which has 128 bytes of room, if it wants one.
func fillAddr(to unsafe.Pointer, a netip.AddrPort) {
	if to != nil {
		putAddr(unsafe.Slice((*byte)(to), 128), a)
	}
}

//export vrb_rs_accept
func vrb_rs_accept(h unsafe.Pointer, out *unsafe.Pointer, addr unsafe.Pointer) C.int {
	s, from, err := rs(h).Accept()
	if err != nil {
		return quiet(err)
	}
	fillAddr(addr, from)
	*out = addSocket(s)
	return 0
}

//export vrb_rs_connect
func vrb_rs_connect(h, addr unsafe.Pointer) C.int {
	a, err := addrAt(addr)
	if err == nil {
		err = rs(h).Connect(a)
	}
	return quiet(err)
}

//export vrb_rs_shutdown
func vrb_rs_shutdown(h unsafe.Pointer, how C.int) C.int {
	return errno(rs(h).Shutdown(socket.How(how)))
}

// buffers are the memory of a list of C.
func buffers(iov *C.struct_vrb_rs_iov, n C.int) ([][]byte, error) {
	if n < 0 || n > 1024 {
		return nil, syscall.EINVAL
	}
	if size := int(n) * int(unsafe.Sizeof(*iov)); size > 0 &&
		(iov == nil || mr.Readable(unsafe.Slice((*byte)(unsafe.Pointer(iov)), size)) < size) {
		return nil, syscall.EFAULT
	}
	list := make([][]byte, 0, 4)
	for _, v := range unsafe.Slice(iov, int(n)) {
		if v.length == 0 {
			continue
		}
		// A length may go beyond the end of all memory: less is received than there is room for.
		length, addr := uint64(v.length), uint64(uintptr(v.base))
		if addr < addressSpace-1 {
			length = min(length, addressSpace-1-addr)
		}
		b, err := bytesAt(v.base, C.uint64_t(length))
		if err != nil {
			return nil, syscall.EFAULT
		}
		list = append(list, b)
	}
	return list, nil
}

//export vrb_rs_recv
func vrb_rs_recv(h unsafe.Pointer, iov *C.struct_vrb_rs_iov, n, flags C.int, addr unsafe.Pointer) C.int64_t {
	list, err := buffers(iov, n)
	if err != nil {
		return number(-1, err)
	}
	if len(list) == 0 {
		list = [][]byte{nil}
	}
	got, from, err := rs(h).RecvFrom(list[0], socket.Flags(flags))
	if err == nil {
		fillAddr(addr, from)
	}
	return number(got, err)
}

//export vrb_rs_send
func vrb_rs_send(h unsafe.Pointer, iov *C.struct_vrb_rs_iov, n, flags C.int, addr unsafe.Pointer) C.int64_t {
	list, err := buffers(iov, n)
	if err != nil {
		return number(-1, err)
	}
	to, err := addrAt(addr)
	if err != nil {
		return number(-1, err)
	}
	s, f := rs(h), socket.Flags(flags)
	switch {
	case len(list) > 1:
		return number(s.SendMsg(&socket.Msg{Name: to, IOV: list}, f))
	case len(list) == 0:
		list = [][]byte{nil}
	}
	if to.IsValid() {
		return number(s.SendTo(list[0], f, to))
	}
	return number(s.Send(list[0], f))
}

//export vrb_rs_poll
func vrb_rs_poll(list *C.struct_vrb_rs_poll, n C.uint64_t, ms C.int) C.int64_t {
	entries := unsafe.Slice(list, int(n))
	fds := make([]socket.PollFD, len(entries))
	for i := range entries {
		e := &entries[i]
		fds[i] = socket.PollFD{FD: int(e.fd), Events: socket.Events(e.events)}
		if e.socket != nil {
			fds[i].Socket = rs(e.socket)
		}
	}
	timeout := time.Duration(ms) * time.Millisecond
	got, err := socket.Poll(fds, timeout)
	for i := range entries {
		entries[i].revents = C.int16_t(fds[i].Revents)
	}
	return number(got, err)
}

//export vrb_rs_name
func vrb_rs_name(h unsafe.Pointer, peer C.int, addr unsafe.Pointer) C.int {
	name := rs(h).SockName
	if peer != 0 {
		name = rs(h).PeerName
	}
	a, err := name()
	if err == nil {
		fillAddr(addr, a)
	}
	return errno(err)
}

//export vrb_rs_set_option
func vrb_rs_set_option(h unsafe.Pointer, level, name C.int, value unsafe.Pointer, n C.uint32_t) C.int {
	return errno(rs(h).SetOption(int(level), int(name), C.GoBytes(value, C.int(min(n, 4096)))))
}

//export vrb_rs_option
func vrb_rs_option(h unsafe.Pointer, level, name C.int, value unsafe.Pointer, n C.uint32_t) C.int64_t {
	var room []byte
	if value != nil {
		room = unsafe.Slice((*byte)(value), int(n))
	}
	return number(rs(h).Option(int(level), int(name), room))
}

//export vrb_rs_fcntl
func vrb_rs_fcntl(h unsafe.Pointer, cmd C.int, arg C.long) C.int64_t {
	return number(rs(h).Fcntl(int(cmd), int(arg)))
}

//export vrb_rs_iomap
func vrb_rs_iomap(h, buf unsafe.Pointer, n C.uint64_t, prot C.int, offset C.int64_t) C.int64_t {
	b, err := bytesAt(buf, n)
	if err != nil {
		return number(-1, err)
	}
	at, err := rs(h).IOMap(b, socket.Prot(prot), int64(offset))
	if err != nil {
		return number(-1, err)
	}
	return C.int64_t(at)
}

//export vrb_rs_iounmap
func vrb_rs_iounmap(h, buf unsafe.Pointer, n C.uint64_t) C.int {
	b, err := bytesAt(buf, n)
	if err != nil {
		return C.int(syscall.EINVAL) // as for other memory that is no map
	}
	return errno(rs(h).IOUnmap(b))
}

//export vrb_rs_iowrite
func vrb_rs_iowrite(h, buf unsafe.Pointer, n C.uint64_t, offset C.int64_t, flags C.int) C.int64_t {
	b, err := bytesAt(buf, n)
	if err != nil {
		return number(-1, err)
	}
	return number(rs(h).IOWrite(b, int64(offset), socket.Flags(flags)))
}
