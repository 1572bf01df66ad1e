package umad

import (
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/verbs"
)

// A Port is QP 1 of a device (umad_open_port). All Ports of one device in a process share it. It is safe for
// concurrent use.
type Port struct {
	share *share
	once  sync.Once
	err   error
}

// Counters are the counters of QP 1 of a device. They never decrease.
type Counters struct {
	Sent      uint64
	TxDropped uint64 // the send queue stayed full
	Received  uint64
	Malformed uint64 // wrong length or base version
	Unclaimed uint64 // no agent is registered for it, or no Call waits for the answer
	Spoofed   uint64 // an answer from another address than the destination of the request, or of another class
	QueueFull uint64 // the queue of its agent was full
}

// shares are the QPs 1 of this process.
var shares struct {
	sync.Mutex
	// +checklocks:Mutex
	open map[verbs.DriverDevice]*share
}

// A share is the QP 1 of a device and its agents.
type share struct {
	dev  verbs.DriverDevice
	refs int // of Ports; guarded by shares

	first sync.Once // opens QP 1
	err   error     // of first

	way     way           // nil if first failed
	stopped chan struct{} // run of way has returned

	mu sync.Mutex
	// +checklocks:mu
	agents []*Agent
	// +checklocks:mu
	ended bool
	// +checklocks:mu
	cause error // of the end; nil after the last Close
	// +checklocks:mu
	last uint32
	// +checklocks:mu
	pending map[uint64]question // by transaction ID
	busy    sync.RWMutex        // read-held while a Handler runs

	sent, dropped, received, malformed, unclaimed, spoofed, queueFull atomic.Uint64
}

// A question is a request that a Call waits for an answer to.
type question struct {
	class  uint8
	to     netip.Addr
	answer chan *Received
}

// Open opens QP 1 of a device (umad_open_port), or shares the open one. Errors are those of opening the device.
//
// A software device then uses its UDP port, so there are the errors of creating its first QP too: EADDRINUSE or EACCES
// if another program or user has the port. QP 1 of an adapter is the kernel's, and Open opens /dev/infiniband/umadN of
// its ports: ENOENT without the module ib_umad or the file, EACCES or EPERM without the right, which root has.
// EOPNOTSUPP for an iWARP adapter and for InfiniBand, ENOSYS for devices of provider/iwarp.
func Open(dev *verbs.Device) (*Port, error) {
	for {
		s := shareOf(dev)
		s.first.Do(func() { s.err = s.begin(dev) }) // another device's Open does not wait for it
		if s.err != nil {
			s.leave()
			return nil, s.err
		}
		if !s.lost() && !s.way.removed() {
			return &Port{share: s}, nil
		}
		<-s.stopped // the next share has another QP 1
		s.leave()
	}
}

// leave undoes shareOf for a share that is of no use.
func (s *share) leave() {
	shares.Lock()
	defer shares.Unlock()
	if s.refs--; shares.open[s.dev] == s {
		delete(shares.open, s.dev)
	}
}

// shareOf returns the share of a device, with one more reference.
func shareOf(dev *verbs.Device) *share {
	shares.Lock()
	defer shares.Unlock()
	key := driver.Of[verbs.DriverDevice](dev)
	s := shares.open[key]
	if s == nil || s.lost() {
		s = &share{dev: key, pending: map[uint64]question{}, stopped: make(chan struct{})}
		if shares.open == nil {
			shares.open = map[verbs.DriverDevice]*share{}
		}
		shares.open[key] = s
	}
	s.refs++
	return s
}

// begin opens QP 1, and starts its goroutine.
func (s *share) begin(dev *verbs.Device) (err error) {
	if s.way, err = openWay(s, dev); err != nil {
		return err
	}
	go func() {
		defer close(s.stopped)
		s.way.run()
	}()
	return nil
}

// Close closes the port (umad_close_port). The last Close of the device's Ports destroys QP 1 and closes the agents
// that are still open, so that Recv and Call in progress return ErrClosed; it waits for the Handler that runs. A second
// Close of the same Port returns the result of the first.
func (p *Port) Close() error {
	p.once.Do(func() {
		shares.Lock()
		defer shares.Unlock()
		if p.share.refs--; p.share.refs > 0 {
			return
		}
		if shares.open[p.share.dev] == p.share {
			delete(shares.open, p.share.dev)
		}
		p.share.way.stop()
		<-p.share.stopped
		p.share.end(nil)
		p.err = driver.Destroyed(p.share.way.close())
	})
	return p.err
}

// Counters returns the counters of QP 1, for all Ports of the device in this process. It has no C twin.
func (p *Port) Counters() Counters {
	s := p.share
	return Counters{
		Sent: s.sent.Load(), TxDropped: s.dropped.Load(), Received: s.received.Load(),
		Malformed: s.malformed.Load(),
		Unclaimed: s.unclaimed.Load(), Spoofed: s.spoofed.Load(), QueueFull: s.queueFull.Load(),
	}
}

// end closes all agents, and refuses further ones, with an error; nil means ErrClosed.
func (s *share) end(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.cause = cause
	}
	for _, a := range s.agents {
		close(a.done)
	}
	s.agents, s.ended = nil, true
}

// lost reports whether the device was removed. The next Open of it makes another share.
func (s *share) lost() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause != nil
}

// closed returns the error of calls after the end.
func (s *share) closed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.whyClosed()
}

// +checklocks:s.mu
func (s *share) whyClosed() error {
	if s.cause != nil {
		return s.cause
	}
	return ErrClosed
}

// add registers an agent. ErrClosed if QP 1 is closed.
func (s *share) add(a *Agent) error {
	if err := s.number(a); err != nil {
		return err
	}
	err := s.way.register(a)
	if err != nil {
		_ = s.remove(a)
	}
	return err
}

// number adds an agent to those that dispatch knows.
func (s *share) number(a *Agent) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return s.whyClosed()
	}
	if slices.ContainsFunc(s.agents, a.rivals) {
		return fail(syscall.EBUSY, "register: class %#x: another agent is registered for the same requests", a.reg.Class)
	}
	s.last++
	a.num = s.last
	s.agents = append(slices.Clone(s.agents), a)
	return nil
}

// remove unregisters an agent and waits for its Handler.
func (s *share) remove(a *Agent) error {
	s.mu.Lock()
	i := slices.Index(s.agents, a)
	if i < 0 {
		defer s.mu.Unlock()
		return s.whyClosed()
	}
	s.agents = slices.Delete(slices.Clone(s.agents), i, i+1)
	close(a.done)
	s.mu.Unlock()
	s.way.unregister(a)
	s.busy.Lock()
	s.busy.Unlock() //nolint:staticcheck // waits for the Handler
	return nil
}

func (s *share) expect(tid uint64, q question) {
	s.mu.Lock()
	s.pending[tid] = q
	s.mu.Unlock()
}

func (s *share) forget(tid uint64) {
	s.mu.Lock()
	delete(s.pending, tid)
	s.mu.Unlock()
}
