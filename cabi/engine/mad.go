//go:build linux && cgo

package main

// #include "mad.h"
import "C"

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/notify"
	"github.com/verbena-rdma/verbena/umad"
	"github.com/verbena-rdma/verbena/verbs"
)

const (
	kindMADPort kind = 300
	// maxMADs is the limit of received datagrams, and of requests whose answers are awaited.
	maxMADs = 1024
)

// madPort is an open port of libibumad: agents, and the queue of what they have received.
type madPort struct {
	*umad.Port
	ctx    *verbs.Context // for the GID table
	num    uint8          // of the device's port
	cancel context.CancelFunc
	done   context.Context

	mu sync.Mutex
	// +checklocks:mu
	agents map[uint32]*umad.Agent
	// +checklocks:mu
	next uint32
	// +checklocks:mu
	queue []C.struct_vrb_mad
	// +checklocks:mu
	calls int
	// One for each datagram of the queue.
	// +checklocks:mu
	units notify.Semaphore
}

//export vrb_mad_open
func vrb_mad_open(name *C.char, portnum, fd C.int, out *unsafe.Pointer) C.int {
	ctx, err := verbs.Open(C.GoString(name))
	if err != nil {
		return errno(err)
	}
	p := &madPort{ctx: ctx, agents: map[uint32]*umad.Agent{}}
	if p.num, err = madPortNum(ctx, int(portnum)); err == nil {
		p.units, err = notify.NewSemaphore(int(fd))
	}
	if err == nil {
		p.Port, err = umad.Open(ctx.Device())
	}
	if err != nil {
		_ = ctx.Close()
		return errno(err)
	}
	p.done, p.cancel = context.WithCancel(context.Background())
	*out = keep(nil, kindMADPort, p, p.close)
	return 0
}

// madPortNum returns the number of a port of a device; of 0 that of the first active one, or of the first one.
func madPortNum(ctx *verbs.Context, num int) (uint8, error) {
	attr, err := ctx.QueryDevice()
	switch {
	case err != nil:
		return 0, err
	case num > int(attr.PhysPortCnt):
		return 0, syscall.EINVAL
	case num != 0:
		return uint8(num), nil
	}
	for n := uint8(1); n <= attr.PhysPortCnt; n++ {
		if port, err := ctx.QueryPort(n); err == nil && port.State == verbs.PortActive {
			return n, nil
		}
	}
	return 1, nil
}

func (p *madPort) close() error {
	p.cancel()
	p.mu.Lock()
	p.units = notify.Semaphore{}
	agents := p.agents
	p.agents = nil
	p.mu.Unlock()
	for _, a := range agents {
		_ = a.Close()
	}
	_ = p.Port.Close()
	return p.ctx.Close()
}

// madPortOf returns the port of a handle; nil if it was closed, which another thread may do at any time.
func madPortOf(h unsafe.Pointer) *madPort {
	live.mu.Lock()
	defer live.mu.Unlock()
	if e := live.entries[h]; e == nil || e.kind != kindMADPort {
		return nil
	}
	return (*madPort)(h)
}

//export vrb_mad_close
func vrb_mad_close(h unsafe.Pointer) C.int { return errno(drop(h)) }

//export vrb_mad_add_agent
func vrb_mad_add_agent(h unsafe.Pointer, class, version C.uint8_t, mask *C.uint64_t, oui C.uint32_t,
	out *C.uint32_t) C.int {
	p := madPortOf(h)
	if p == nil {
		return C.int(syscall.EINVAL)
	}
	r := umad.Registration{Class: uint8(class), ClassVersion: uint8(version), PortNum: p.num, OUI: uint32(oui)}
	for i, word := range unsafe.Slice(mask, 2) {
		for bit := range 64 {
			if word>>bit&1 != 0 {
				r.Methods = append(r.Methods, uint8(64*i+bit))
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.agents == nil {
		return C.int(syscall.EINVAL)
	}
	id := p.next
	r.Handler = func(got *umad.Received) { p.push(id, got, got.MAD, 0) }
	a, err := p.Register(r)
	if err != nil {
		return errno(err)
	}
	p.agents[id] = a
	p.next++
	*out = C.uint32_t(id)
	return 0
}

//export vrb_mad_drop_agent
func vrb_mad_drop_agent(h unsafe.Pointer, id C.uint32_t) C.int {
	p := madPortOf(h)
	if p == nil {
		return C.int(syscall.EINVAL)
	}
	p.mu.Lock()
	a := p.agents[uint32(id)]
	delete(p.agents, uint32(id))
	p.mu.Unlock()
	if a == nil {
		return C.int(syscall.EINVAL)
	}
	return errno(a.Close())
}

// push queues a datagram; it is dropped if the queue is full.
func (p *madPort) push(agent uint32, got *umad.Received, mad umad.MAD, status syscall.Errno) {
	m := C.struct_vrb_mad{agent: C.uint32_t(agent), status: C.uint32_t(status)}
	f := &got.From
	*(*verbs.GID)(unsafe.Pointer(&m.gid)) = verbs.GIDFromAddr(f.Remote)
	m.qpn, m.qkey, m.flow_label = C.uint32_t(f.QPN), C.uint32_t(f.QKey), C.uint32_t(f.FlowLabel)
	m.hop_limit, m.traffic_class = C.uint8_t(f.HopLimit), C.uint8_t(f.TClass)
	m.gid_index, m.pkey_index = C.uint8_t(p.gidIndex(f.Local)), C.uint16_t(f.PKeyIndex)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&m.data)), C.VRB_MAD_LEN), mad)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) < maxMADs {
		p.queue = append(p.queue, m)
		p.units.Add(1)
	}
}

// gidIndex is the index of a local address in the GID table of the port, 0 if it is not there.
func (p *madPort) gidIndex(a netip.Addr) int {
	table, _ := p.ctx.QueryGIDTable()
	gid := verbs.GIDFromAddr(a)
	at := slices.IndexFunc(table, func(e verbs.GIDEntry) bool { return e.GID == gid && e.Port == p.num })
	if at < 0 {
		return 0
	}
	return table[at].Index
}

// address is the destination of a datagram.
func (p *madPort) address(m *C.struct_vrb_mad) (*umad.Address, error) {
	from, err := p.ctx.QueryGIDEntry(p.num, int(m.gid_index))
	if err != nil {
		return nil, err
	}
	to := *(*verbs.GID)(unsafe.Pointer(&m.gid))
	return &umad.Address{Local: from.GID.Addr(), Remote: to.Addr(), QPN: uint32(m.qpn), QKey: uint32(m.qkey),
		TClass: uint8(m.traffic_class), HopLimit: uint8(m.hop_limit), FlowLabel: uint32(m.flow_label),
		PKeyIndex: uint16(m.pkey_index)}, nil
}

//export vrb_mad_send
func vrb_mad_send(h unsafe.Pointer, m *C.struct_vrb_mad, ms, retries C.int) C.int {
	p := madPortOf(h)
	if p == nil {
		return C.int(syscall.EINVAL)
	}
	to, err := p.address(m)
	if err != nil {
		return errno(err)
	}
	mad, err := umad.Parse(C.GoBytes(unsafe.Pointer(&m.data), C.VRB_MAD_LEN))
	if err != nil {
		return errno(err)
	}
	id := uint32(m.agent)
	p.mu.Lock()
	a, room := p.agents[id], p.calls < maxMADs
	wait := ms != 0 && !mad.IsResponse()
	if a != nil && room && wait {
		p.calls++
	}
	p.mu.Unlock()
	switch {
	case a == nil:
		return C.int(syscall.EINVAL)
	case !wait:
		return errno(a.Send(to, mad))
	case !room:
		return C.int(syscall.ENOBUFS)
	}
	// A negative time-out is for ever: the kernel takes it for a large number without a sign.
	go p.call(a, id, to, mad, time.Duration(uint32(ms))*time.Millisecond, int(retries))
	return 0
}

// call waits for the answer to a request. Without one the request itself comes back, with a status, unless the program
// has unregistered the agent.
func (p *madPort) call(a *umad.Agent, id uint32, to *umad.Address, mad umad.MAD, timeout time.Duration, retries int) {
	own := mad.Header() // with the program's transaction ID
	r, err := a.Call(p.done, to, mad, timeout, retries)
	p.mu.Lock()
	p.calls--
	p.mu.Unlock()
	if errors.Is(err, umad.ErrClosed) {
		return // the agent is no more
	}
	if err != nil {
		mad.Put(own)
		p.push(id, &umad.Received{From: *to}, mad, errnoOf(err))
		return
	}
	answer := r.MAD.Header()
	answer.TID = own.TID
	r.MAD.Put(answer)
	p.push(id, r, r.MAD, 0)
}

//export vrb_mad_take
func vrb_mad_take(h unsafe.Pointer, out *C.struct_vrb_mad) C.int {
	p := madPortOf(h)
	if p == nil {
		return C.int(syscall.EINVAL)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.units.Popped(len(p.queue) > 0)
	if len(p.queue) == 0 {
		return C.int(syscall.EAGAIN)
	}
	*out = p.queue[0]
	p.queue = p.queue[1:]
	return 0
}
