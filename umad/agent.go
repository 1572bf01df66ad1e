package umad

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/secret"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// A Registration selects the requests that an agent receives (umad_register).
type Registration struct {
	Class        uint8
	ClassVersion uint8    // 0 means any
	Methods      []uint8  // without the response bit; none: only answers to Call
	Attributes   []uint16 // none: all
	PortNum      uint8    // of the device, at whose addresses the requests arrive; 0 means any
	OUI          uint32   // the vendor in requests of the classes 0x30 to 0x4F, 24 bits; 0 means any

	// Handler is called for each request, in the goroutine of the port. It must neither block nor close an Agent or
	// a Port of the device. r and the MAD are valid until it returns. Without a Handler, requests are queued for Recv.
	Handler func(r *Received)

	// QueueLen is the number of requests queued for Recv, 0 to 65536; 0 means 128. More are dropped and counted
	// (Counters.QueueFull).
	QueueLen int
}

const (
	defaultQueueLen = 128
	maxQueueLen     = 1 << 16
)

// An Agent is one user of a port (mad_agent of umad). It is safe for concurrent use.
type Agent struct {
	port *Port
	reg  Registration
	num  uint32
	mu   sync.Mutex
	// +checklocks:mu
	tids  *secret.Sequence // the lower halves of transaction IDs; under mu
	queue chan *Received
	done  chan struct{}
}

// Errors of agents. Each has its errno.
var (
	ErrClosed  error = &failure{"the agent or its port is closed", syscall.EINVAL}
	ErrTimeout error = &failure{"no answer within the time-out", syscall.ETIMEDOUT}
)

type failure struct {
	text  string
	errno syscall.Errno
}

func (e *failure) Error() string { return "umad: " + e.text }
func (e *failure) Unwrap() error { return e.errno }

func fail(errno syscall.Errno, format string, args ...any) error {
	return &failure{fmt.Sprintf(format, args...), errno}
}

// Register adds an agent (umad_register); r is copied. Agent.Close removes it. EBUSY if another one has the same class,
// version, method, attribute, port and OUI. EINVAL for a method with the response bit, for a QueueLen or an OUI out of
// range, for an OUI with another class, and for a port that the device does not have. ErrClosed after the last Close of
// the device's Ports.
func (p *Port) Register(r Registration) (*Agent, error) {
	if r.QueueLen < 0 || r.QueueLen > maxQueueLen {
		return nil, fail(syscall.EINVAL, "register: QueueLen %d: must be 0 to %d", r.QueueLen, maxQueueLen)
	}
	if r.QueueLen == 0 {
		r.QueueLen = defaultQueueLen
	}
	if r.OUI >= 1<<24 || r.OUI != 0 && !hasOUI(r.Class) {
		return nil, fail(syscall.EINVAL, "register: class %#x, OUI %#x: must be 24 bits, of a class of %#x to %#x", r.Class,
			r.OUI, firstOUI, lastOUI)
	}
	for _, m := range r.Methods {
		if m&MethodResponse != 0 {
			return nil, fail(syscall.EINVAL, "register: method %#x: must not have the response bit", m)
		}
	}
	r.Methods, r.Attributes = slices.Clone(r.Methods), slices.Clone(r.Attributes)
	a := &Agent{port: p, reg: r, queue: make(chan *Received, r.QueueLen), done: make(chan struct{})}
	a.tids = secret.NewSequence(1<<32-1, nil)
	if err := p.share.add(a); err != nil {
		return nil, err
	}
	return a, nil
}

// ID returns the upper half of the transaction IDs of the agent's requests (the agent ID of umad_register).
func (a *Agent) ID() uint32 { return a.num }

// Close ends the agent (umad_unregister). Calls in progress return ErrClosed. It waits for the Handler that runs, of
// whichever agent, so no Handler may call it. ErrClosed if the agent is closed already.
func (a *Agent) Close() error { return a.port.share.remove(a) }

// TID returns a transaction ID whose answers belong to this agent. It has no C twin. Its lower half is unpredictable:
// hosts that cannot read the request cannot forge an answer.
func (a *Agent) TID() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return uint64(a.num)<<32 | uint64(a.tids.Next())
}

// Send sends a copy of one datagram (umad_send), which may be lost. EINVAL if mad is not of Size bytes, to is nil, or a
// field of to is out of its range. EADDRNOTAVAIL if to.Local is not an address of the device. ENOBUFS if the send queue
// stays full. ErrClosed after Close.
func (a *Agent) Send(to *Address, mad MAD) error {
	switch {
	case to == nil:
		return fail(syscall.EINVAL, "send: the address is nil")
	case len(mad) != Size:
		return fail(syscall.EINVAL, "send: %d bytes: must be %d", len(mad), Size)
	}
	select {
	case <-a.done:
		return a.port.share.closed()
	default:
	}
	return a.port.share.way.send(a, to, mad)
}

// Flush waits until the datagrams that Send has accepted are handed to the network. Send may leave that to another
// goroutine, so a program that exits after its last Send calls Flush first. An agent that is closed has nothing to
// flush.
func (a *Agent) Flush() { a.port.share.way.flush() }

// Call sends a request and waits for its answer (mad_rpc). It sends the request again each time that timeout passes,
// retries times at most. Only the destination can answer. Call writes the transaction ID into the request. It does not
// check the status of the answer.
//
// Errors: ErrTimeout without an answer, ctx.Err() if ctx is done, ErrClosed if the agent is closed, EINVAL for a MAD
// with the response bit, and those of Send except ENOBUFS.
func (a *Agent) Call(ctx context.Context, to *Address, request MAD, timeout time.Duration, retries int) (*Received,
	error) {
	switch {
	case to == nil:
		return nil, fail(syscall.EINVAL, "call: the address is nil")
	case len(request) != Size || request.IsResponse():
		return nil, fail(syscall.EINVAL, "call: must be a request of %d bytes", Size)
	}
	h := request.Header()
	h.TID = a.TID()
	request.Put(h)
	answer := make(chan *Received, 1)
	a.port.share.expect(h.TID, question{h.Class, to.Remote.Unmap().WithZone(""), answer})
	defer a.port.share.forget(h.TID)
	return a.port.share.way.ask(ctx, a, to, request, retry{timeout, max(0, retries)}, answer)
}

// Reply answers a request: with its header, the response bit (GetResp for a Set) and the given status, followed by the
// first DataSize bytes of data. It has no C twin. The hop limit of the reply is 64, and it does not keep the request's
// mark of congestion. The errors are those of Send.
func (a *Agent) Reply(r *Received, status uint16, data []byte) error {
	h := r.MAD.Header()
	h.Status = status
	if h.Method |= MethodResponse; h.Method == 0x02|MethodResponse {
		h.Method = MethodGetResp // it answers Set as well
	}
	to := r.From
	to.QKey, to.HopLimit = 0, 0       // routers have decremented the request's
	to.TClass &^= uint8(wire.ECNMask) // and set this field
	return a.Send(&to, New(h, data))
}

// Recv waits for a request that matches the registration (umad_recv). The result is the caller's. ctx.Err() if ctx is
// done, ErrClosed if the agent is closed, ENODEV if the device was removed.
func (a *Agent) Recv(ctx context.Context) (*Received, error) {
	select {
	case <-a.done: // also if requests are queued
		return nil, a.port.share.closed()
	default:
	}
	select {
	case r := <-a.queue:
		return r, nil
	case <-a.done:
		return nil, a.port.share.closed()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// The classes of vendors whose datagrams have an OUI (IBTA volume 1, 16.5).
const (
	firstOUI = 0x30
	lastOUI  = 0x4F
)

func hasOUI(class uint8) bool { return class >= firstOUI && class <= lastOUI }

// ouiOf is the OUI of a datagram of such a class.
func ouiOf(m MAD) uint32 { return binary.BigEndian.Uint32(m[36:]) & 0xFFFFFF }

// takes reports whether a request matches the registration, but for the port.
func (a *Agent) takes(m MAD) bool {
	r := &a.reg
	return r.Class == m.Class() && (r.ClassVersion == 0 || r.ClassVersion == m.ClassVersion()) &&
		slices.Contains(r.Methods, m.Method()) && (len(r.Attributes) == 0 || slices.Contains(r.Attributes, m.AttrID())) &&
		(r.OUI == 0 || r.OUI == ouiOf(m))
}

// rivals reports whether a request can match the registrations of both agents.
func (a *Agent) rivals(b *Agent) bool {
	x, y := &a.reg, &b.reg
	return x.Class == y.Class && (x.ClassVersion == y.ClassVersion || x.ClassVersion == 0 || y.ClassVersion == 0) &&
		(x.PortNum == y.PortNum || x.PortNum == 0 || y.PortNum == 0) && (x.OUI == y.OUI || x.OUI == 0 || y.OUI == 0) &&
		slices.ContainsFunc(x.Methods, func(m uint8) bool { return slices.Contains(y.Methods, m) }) &&
		(len(x.Attributes) == 0 || len(y.Attributes) == 0 ||
			slices.ContainsFunc(x.Attributes, func(m uint16) bool { return slices.Contains(y.Attributes, m) }))
}
