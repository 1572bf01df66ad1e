package umad

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/kmad"
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/verbs"
)

// kernelFile is an open port of the kernel: a *kmad.Port. Tests have another one.
type kernelFile interface {
	Close() error
	Register(r kmad.Request) (uint32, error)
	Unregister(agent uint32) error
	Send(h *kmad.Header, mad []byte) error
	Next(h *kmad.Header, mad []byte) (int, error)
}

// openFile opens a port of the kernel.
var openFile = func(device string, port uint8) (kernelFile, error) { return kmad.Open(device, port) }

// kernel is QP 1 of an adapter, which is the kernel's.
type kernel struct {
	share *share
	ctx   *verbs.Context // for the tables of GIDs
	files map[uint8]kernelFile

	closing sync.Once
	closed  error // of closing

	mu sync.Mutex
	// +checklocks:mu
	ended bool
	// +checklocks:mu
	agents map[kernelAgent]*Agent
	// +checklocks:mu
	numbers map[*Agent]map[uint8]uint32 // by port, of the agents that send
}

// kernelAgent is an agent of the kernel.
type kernelAgent struct {
	port   uint8
	number uint32
}

// openKernel opens the files of a device's ports.
func openKernel(s *share, dev *verbs.Device) (way, error) {
	const op = "open_port"
	refuse := func(format string, args ...any) error {
		return &verbs.Error{Op: op, Obj: dev.Name(), Errno: verbs.EOPNOTSUPP, Detail: fmt.Sprintf(format, args...)}
	}
	if dev.TransportType() == verbs.TransportIWARP {
		return nil, refuse("an iWARP device has no QP 1")
	}
	ctx, err := dev.Open()
	if err != nil {
		return nil, err
	}
	k := &kernel{share: s, ctx: ctx, files: map[uint8]kernelFile{}, agents: map[kernelAgent]*Agent{},
		numbers: map[*Agent]map[uint8]uint32{}}
	attr, err := ctx.QueryDevice()
	for n := uint8(1); err == nil && n <= attr.PhysPortCnt; n++ {
		err = k.open(dev, n)
	}
	if err == nil && len(k.files) == 0 {
		err = refuse("the ports must be of RoCE, as addresses are IP addresses")
	}
	if err != nil {
		_ = k.close()
		return nil, err
	}
	return k, nil
}

// open opens the file of a port. Ports of InfiniBand, whose peers have no IP address, are left out.
func (k *kernel) open(dev *verbs.Device, port uint8) error {
	attr, err := k.ctx.QueryPort(port)
	if err != nil || attr.LinkLayer != verbs.LinkLayerEthernet {
		return err
	}
	f, err := openFile(dev.Name(), port)
	if err != nil {
		errno := syscall.EIO
		errors.As(err, &errno)
		return &verbs.Error{Op: "open_port", Obj: dev.Name(), Errno: errno, Err: err}
	}
	k.files[port] = f
	return nil
}

// run dispatches the datagrams of all ports until stop, or until the device is removed.
func (k *kernel) run() {
	var all sync.WaitGroup
	for port, f := range k.files {
		all.Go(func() { k.receive(port, f) })
	}
	all.Wait()
}

// receive dispatches the datagrams of a port.
func (k *kernel) receive(port uint8, f kernelFile) {
	var h kmad.Header
	buf := make([]byte, Size)
	for {
		n, err := f.Next(&h, buf)
		if err != nil {
			k.mu.Lock()
			stopped := k.ended
			k.mu.Unlock()
			if !stopped {
				k.share.end(fail(syscall.ENODEV, "%s was removed (%v)", k.ctx.Device().Name(), err))
				_ = k.close() // the kernel waits for the end of all contexts of the device
			}
			return
		}
		k.take(port, &h, buf[:n])
	}
}

// take dispatches a datagram.
func (k *kernel) take(port uint8, h *kmad.Header, buf []byte) {
	k.mu.Lock()
	a := k.agents[kernelAgent{port, h.Agent}]
	k.mu.Unlock()
	mad, err := Parse(buf)
	switch {
	case a == nil: // closed just now
	case h.Status != 0: // the header of a request comes back: it had no answer
		if len(buf) >= wire.MADHeaderLen {
			k.share.unanswered(a.tid(buf))
		}
	case err != nil:
		k.share.received.Add(1)
		k.share.malformed.Add(1)
	default:
		k.share.received.Add(1)
		if mad.IsResponse() { // the kernel has put a number of its own in place of the agent's
			head := mad.Header()
			head.TID = a.tid(mad)
			mad.Put(head)
		}
		k.share.dispatch(&Received{MAD: mad, From: k.sender(port, h)}, func() uint8 { return port })
	}
}

// tid is the transaction ID that the agent's request had.
func (a *Agent) tid(mad MAD) uint64 { return uint64(a.num)<<32 | mad.TID()&math.MaxUint32 }

// sender is where a datagram comes from. Its local address is invalid if the port has lost it meanwhile.
func (k *kernel) sender(port uint8, h *kmad.Header) Address {
	a := Address{QPN: h.QPN, TClass: h.TClass, HopLimit: h.HopLimit, FlowLabel: h.FlowLabel, PKeyIndex: h.PKeyIndex}
	if !h.GRH {
		return a
	}
	a.Remote = netip.AddrFrom16(h.GID).Unmap()
	if e, err := k.ctx.QueryGIDEntry(port, int(h.GIDIndex)); err == nil {
		a.Local = e.GID.Addr()
	}
	return a
}

// anyVersions are the versions of classes that there are, for agents that take any.
var anyVersions = []uint8{1, 2}

// register makes the kernel's agents. One of the first version sends.
func (k *kernel) register(a *Agent) error {
	r := &a.reg
	switch {
	case len(r.Methods) == 0:
	case r.Class == 0, r.Class > lastOUI:
		return fail(syscall.EINVAL, "register: class %#x: must be 1 to %#x on an adapter", r.Class, lastOUI)
	case hasOUI(r.Class) && r.OUI == 0:
		return fail(verbs.EOPNOTSUPP, "register: class %#x without an OUI: the kernel needs one for the classes %#x to %#x",
			r.Class, firstOUI, lastOUI)
	}
	versions := anyVersions
	switch {
	case len(r.Methods) == 0:
		versions = anyVersions[:1]
	case r.ClassVersion != 0:
		versions = []uint8{r.ClassVersion}
	}
	if r.PortNum != 0 && k.files[r.PortNum] == nil {
		return fail(syscall.EINVAL, "register: port %d: must be a port of RoCE", r.PortNum)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.numbers[a] = map[uint8]uint32{}
	for port, f := range k.files {
		if r.PortNum != 0 && r.PortNum != port {
			continue
		}
		for _, v := range versions {
			n, err := f.Register(kmad.Request{Class: r.Class, Version: v, Methods: r.Methods, OUI: r.OUI})
			if err != nil {
				k.forget(a)
				return registerError(r, err)
			}
			k.agents[kernelAgent{port, n}] = a
			if v == versions[0] {
				k.numbers[a][port] = n
			}
		}
	}
	return nil
}

// registerError explains why the kernel refuses an agent.
func registerError(r *Registration, err error) error {
	switch {
	case errors.Is(err, syscall.EINVAL): // the values are right: they were checked
		return fail(syscall.EBUSY, "register: class %#x: the kernel or another program receives these requests", r.Class)
	case errors.Is(err, syscall.ENOMEM):
		return fail(syscall.ENOMEM, "register: no memory, or too many agents: the kernel permits 32 of a port; one of any "+
			"version counts as %d", len(anyVersions))
	case errors.Is(err, syscall.EIO):
		return fail(syscall.ENODEV, "register: the device was removed")
	}
	errno := syscall.EIO
	errors.As(err, &errno)
	return fail(errno, "register: %v", err)
}

// unregister ends the kernel's agents.
func (k *kernel) unregister(a *Agent) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.forget(a)
}

// +checklocks:k.mu
func (k *kernel) forget(a *Agent) {
	delete(k.numbers, a)
	for n, of := range k.agents {
		if of == a {
			_ = k.files[n.port].Unregister(n.number)
			delete(k.agents, n)
		}
	}
}

// send sends a datagram whose answer nobody waits for.
func (k *kernel) send(a *Agent, to *Address, mad MAD) error {
	return k.transmit(a, to, mad, &kmad.Header{})
}

// ask sends a request, which the kernel repeats.
func (k *kernel) ask(ctx context.Context, a *Agent, to *Address, request MAD, r retry,
	answer <-chan *Received) (*Received, error) {
	ms := (max(r.after, 1)-1)/time.Millisecond + 1 // rounded up, of any duration
	h := &kmad.Header{TimeoutMS: uint32(min(ms, math.MaxInt32)), Retries: uint32(min(r.times, math.MaxInt32))}
	if err := k.transmit(a, to, request, h); err != nil {
		return nil, err
	}
	select {
	case r := <-answer:
		switch {
		case r != nil:
			return r, nil
		case to.Local.Unmap().Is4():
			return nil, errIPv4
		}
		return nil, ErrTimeout
	case <-a.done:
		return nil, a.port.share.closed()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// errIPv4 is ErrTimeout with a reason. To find the request of an answer the kernel compares the local GID with bytes of
// the packet where IPv4 has others.
var errIPv4 = fmt.Errorf("%w: the kernel passes no answer on that comes over IPv4: use IPv6 addresses", ErrTimeout)

// transmit completes the header and sends a datagram.
func (k *kernel) transmit(a *Agent, to *Address, mad MAD, h *kmad.Header) error {
	local, err := localEntry(k.ctx, to)
	switch {
	case err != nil:
		return err
	case k.files[local.Port] == nil:
		return fail(syscall.EADDRNOTAVAIL, "send: local address %v: must be one of a port of RoCE", to.Local)
	case a.reg.PortNum != 0 && a.reg.PortNum != local.Port:
		return fail(syscall.EADDRNOTAVAIL, "send: local address %v: must be one of port %d, at which the agent is registered",
			to.Local, a.reg.PortNum)
	case local.Index > math.MaxUint8:
		return fail(syscall.EADDRNOTAVAIL, "send: local address %v has GID index %d: must be 0 to 255, as the kernel takes "+
			"8 bits of it", to.Local, local.Index)
	case to.QKey != 0 && to.QKey != QKey:
		return fail(verbs.EOPNOTSUPP, "send: Q_Key %#x: must be %#x, as the kernel sends no other", to.QKey, uint32(QKey))
	case to.Remote.Is4() != to.Local.Is4(), !to.Remote.IsValid():
		return fail(syscall.EINVAL, "send: from %v to %v: must be addresses of one family", to.Local, to.Remote)
	case to.QPN > maxQPN:
		return fail(syscall.EINVAL, "send: QP number %#x: must be at most %#x", to.QPN, maxQPN)
	case to.FlowLabel > maxFlowLabel:
		return fail(syscall.EINVAL, "send: flow label %#x: must be at most %#x", to.FlowLabel, maxFlowLabel)
	}
	k.mu.Lock()
	number, registered := k.numbers[a][local.Port]
	k.mu.Unlock()
	if !registered {
		return a.port.share.closed()
	}
	h.Agent, h.QPN, h.QKey, h.GRH, h.GIDIndex, h.HopLimit = number, to.QPN, QKey, true, uint8(local.Index), to.HopLimit
	h.TClass, h.GID, h.FlowLabel, h.PKeyIndex = to.TClass, verbs.GIDFromAddr(to.Remote), to.FlowLabel, to.PKeyIndex
	if h.QPN == 0 {
		h.QPN = QPN
	}
	if h.HopLimit == 0 {
		h.HopLimit = defaultHopLimit
	}
	if err := k.files[local.Port].Send(h, mad); err != nil {
		return k.sendError(to, err)
	}
	k.share.sent.Add(1)
	return nil
}

// Limits of the fields of an Address.
const (
	maxQPN       = 1<<24 - 1
	maxFlowLabel = 1<<20 - 1
)

// sendError explains why the kernel sends nothing.
func (k *kernel) sendError(to *Address, err error) error {
	errno := syscall.EIO
	errors.As(err, &errno)
	k.mu.Lock()
	ended := k.ended
	k.mu.Unlock()
	switch {
	case ended:
		return k.share.closed()
	case errno == syscall.EIO:
		return fail(syscall.ENODEV, "send: %s was removed", k.ctx.Device().Name())
	}
	return fail(errno, "send: from %v to %v: %v", to.Local, to.Remote, err)
}

// flush does nothing: the kernel has the datagrams when Send returns.
func (*kernel) flush() {}

// stop closes the files, which ends run and the kernel's agents.
func (k *kernel) stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended {
		return
	}
	k.ended = true
	clear(k.numbers)
	clear(k.agents)
	for _, f := range k.files {
		_ = f.Close()
	}
}

// removed is false: until the files report the removal, nothing shows it.
func (*kernel) removed() bool { return false }

// close closes what is open, once.
func (k *kernel) close() error {
	k.stop()
	k.closing.Do(func() { k.closed = k.ctx.Close() })
	return k.closed
}
