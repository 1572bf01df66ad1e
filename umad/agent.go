package umad

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"syscall"
	"time"
)

// Registration says which requests of others an agent gets (umad_register).
type Registration struct {
	Class        uint8
	ClassVersion uint8    // 0 means any
	Methods      []uint8  // without the response bit; none: only the answers to the agent's own Calls
	Attributes   []uint16 // none: all

	// Handler gets each request. It runs in the port's goroutine, so it must not wait for anything; r and
	// the MAD are valid until it returns. Without a Handler requests wait for Recv.
	Handler func(r *Received)

	// QueueLen is how many requests wait for Recv, 0 means 128. More are dropped.
	QueueLen int
}

const defaultQueueLen = 128

// Agent is one user of a port (umad's mad_agent). It is safe for concurrent use.
type Agent struct {
	port  *Port
	reg   Registration
	num   uint32
	next  atomic.Uint32 // the lower half of transaction IDs
	queue chan *Received
	done  chan struct{}
}

// Errors of agents. Each has its errno.
var (
	ErrClosed  error = &failure{"the agent or its port is closed", syscall.EINVAL}
	ErrTimeout error = &failure{"no answer came", syscall.ETIMEDOUT}
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

// Register adds an agent. EBUSY if another one has the same class, version, method and attribute.
func (p *Port) Register(r Registration) (*Agent, error) {
	if r.QueueLen == 0 {
		r.QueueLen = defaultQueueLen
	}
	for _, m := range r.Methods {
		if m&MethodResponse != 0 {
			return nil, fail(syscall.EINVAL, "register: method %#x is an answer; answers go to the agent that asked", m)
		}
	}
	r.Methods, r.Attributes = slices.Clone(r.Methods), slices.Clone(r.Attributes)
	a := &Agent{port: p, reg: r, queue: make(chan *Received, r.QueueLen), done: make(chan struct{})}
	return a, p.share.add(a)
}

// ID is the upper half of the transaction IDs of the agent's requests.
func (a *Agent) ID() uint32 { return a.num }

// Close ends the agent (umad_unregister). Calls under way return ErrClosed. The Handler is not running any
// more when it returns, so it must not be called by the Handler.
func (a *Agent) Close() error { return a.port.share.remove(a) }

// TID makes a transaction ID that leads answers to this agent.
func (a *Agent) TID() uint64 { return uint64(a.num)<<32 | uint64(a.next.Add(1)) }

// Send sends one datagram (umad_send). It is copied. Like any datagram it may be lost. EADDRNOTAVAIL if to.Local is no address
// of the device, ENOBUFS if the send queue stays full.
func (a *Agent) Send(to *Address, mad MAD) error {
	if len(mad) != Size {
		return fail(syscall.EINVAL, "send: %d bytes, a MAD has %d", len(mad), Size)
	}
	select {
	case <-a.done:
		return ErrClosed
	default:
	}
	return a.port.share.send(to, mad)
}

// Call sends a request and waits for its answer (mad_rpc). The request is sent again each time that
// timeout passes, retries times at most; then it is ErrTimeout. Only the address that was asked can answer. The transaction ID is Call's: it writes
// it into the request. The answer's status is the caller's to look at.
func (a *Agent) Call(ctx context.Context, to *Address, request MAD, timeout time.Duration, retries int) (*Received, error) {
	if len(request) != Size || request.IsResponse() {
		return nil, fail(syscall.EINVAL, "call: not a request of %d bytes", Size)
	}
	h := request.Header()
	h.TID = a.TID()
	request.Put(h)
	answer := make(chan *Received, 1)
	a.port.share.expect(h.TID, question{h.Class, to.Remote.Unmap().WithZone(""), answer})
	defer a.port.share.forget(h.TID)
	for range 1 + max(0, retries) {
		if err := a.Send(to, request); err != nil && !errors.Is(err, syscall.ENOBUFS) {
			return nil, err
		}
		timer := time.NewTimer(timeout)
		select {
		case r := <-answer:
			timer.Stop()
			return r, nil
		case <-timer.C:
		case <-a.done:
			timer.Stop()
			return nil, ErrClosed
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
	}
	return nil, ErrTimeout
}

// Reply answers a request: header with the response bit, the request's transaction ID and the given status, data behind it.
func (a *Agent) Reply(r *Received, status uint16, data []byte) error {
	h := r.MAD.Header()
	h.Status = status
	if h.Method |= MethodResponse; h.Method == 0x02|MethodResponse {
		h.Method = MethodGetResp // it answers Set as well
	}
	to := r.From
	to.QKey = 0
	return a.Send(&to, New(h, data))
}

// Recv waits for a request that the agent is registered for (umad_recv).
func (a *Agent) Recv(ctx context.Context) (*Received, error) {
	select {
	case r := <-a.queue:
		return r, nil
	case <-a.done:
		return nil, ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// takes tells whether a request is for the agent.
func (a *Agent) takes(m MAD) bool {
	r := &a.reg
	return r.Class == m.Class() && (r.ClassVersion == 0 || r.ClassVersion == m.ClassVersion()) &&
		slices.Contains(r.Methods, m.Method()) && (len(r.Attributes) == 0 || slices.Contains(r.Attributes, m.AttrID()))
}

// rivals tells whether there is a request that both agents would take.
func (a *Agent) rivals(b *Agent) bool {
	x, y := &a.reg, &b.reg
	return x.Class == y.Class && (x.ClassVersion == y.ClassVersion || x.ClassVersion == 0 || y.ClassVersion == 0) &&
		slices.ContainsFunc(x.Methods, func(m uint8) bool { return slices.Contains(y.Methods, m) }) &&
		(len(x.Attributes) == 0 || len(y.Attributes) == 0 ||
			slices.ContainsFunc(x.Attributes, func(m uint16) bool { return slices.Contains(y.Attributes, m) }))
}
