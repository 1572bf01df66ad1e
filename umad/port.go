package umad

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/gsi"
	"github.com/verbena-rdma/verbena/internal/wire"
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

	ctx    *verbs.Context
	pd     *verbs.PD
	ch     *verbs.CompChannel
	recvCQ *verbs.CQ
	qp     *verbs.QP
	mr     *verbs.MR
	buf    []byte
	sender sender

	stop    context.CancelFunc
	stopped chan struct{}

	mu sync.Mutex
	// +checklocks:mu
	agents []*Agent
	// +checklocks:mu
	ended bool
	// +checklocks:mu
	last uint32
	// +checklocks:mu
	pending map[uint64]question // by transaction ID
	busy    sync.RWMutex        // read-held while a Handler runs

	received, malformed, unclaimed, spoofed, queueFull atomic.Uint64
}

// A question is a request that a Call waits for an answer to.
type question struct {
	class  uint8
	to     netip.Addr
	answer chan *Received
}

func init() { gsi.PD = func(port any) *verbs.PD { return port.(*Port).share.pd } }

// Sizes of QP 1.
const (
	recvDepth = 1024
	recvSize  = wire.GRHLen + wire.MADLen
)

// Open opens QP 1 of a device (umad_open_port), or shares the open one. The device then uses its UDP port. Errors are
// those of opening the device and of creating its first QP: EADDRINUSE or EACCES if another program or user has the
// port. EOPNOTSUPP for devices of provider/hw, whose QP 1 is the kernel's, and of provider/iwarp.
func Open(dev *verbs.Device) (*Port, error) {
	s := shareOf(dev)
	s.first.Do(func() { s.err = s.begin(dev) }) // another device's Open does not wait for it
	if s.err == nil {
		return &Port{share: s}, nil
	}
	shares.Lock()
	defer shares.Unlock()
	if shares.open[s.dev] == s {
		delete(shares.open, s.dev)
	}
	return nil, s.err
}

// shareOf returns the share of a device, with one more reference.
func shareOf(dev *verbs.Device) *share {
	shares.Lock()
	defer shares.Unlock()
	key := driver.Of[verbs.DriverDevice](dev)
	s := shares.open[key]
	if s == nil {
		s = &share{dev: key, pending: map[uint64]question{}, stopped: make(chan struct{})}
		if shares.open == nil {
			shares.open = map[verbs.DriverDevice]*share{}
		}
		shares.open[key] = s
	}
	s.refs++
	return s
}

// begin opens QP 1, which may wait for another process of the host, and starts its goroutine.
func (s *share) begin(dev *verbs.Device) error {
	if err := s.open(dev); err != nil {
		_ = s.close()
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	go s.receive(ctx)
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
		delete(shares.open, p.share.dev)
		p.share.stop()
		<-p.share.stopped
		p.share.end()
		p.err = p.share.close()
	})
	return p.err
}

// Counters returns the counters of QP 1, for all Ports of the device in this process. It has no C twin.
func (p *Port) Counters() Counters {
	s := p.share
	return Counters{
		Sent: s.sender.sent.Load(), TxDropped: s.sender.dropped.Load(), Received: s.received.Load(),
		Malformed: s.malformed.Load(),
		Unclaimed: s.unclaimed.Load(), Spoofed: s.spoofed.Load(), QueueFull: s.queueFull.Load(),
	}
}

// open creates QP 1 and posts its receives.
func (s *share) open(dev *verbs.Device) (err error) {
	if s.ctx, err = dev.Open(); err != nil {
		return err
	}
	if s.pd, err = s.ctx.AllocPD(); err != nil {
		return err
	}
	if s.ch, err = s.ctx.CreateCompChannel(); err != nil {
		return err
	}
	if s.recvCQ, err = s.ctx.CreateCQ(recvDepth, &verbs.CQOptions{Channel: s.ch}); err != nil {
		return err
	}
	if err = s.sender.open(s.ctx, s.pd); err != nil {
		return err
	}
	s.qp, err = gsi.CreateQP(s.pd, &verbs.QPInitAttr{
		Type: verbs.QPTypeUD, SendCQ: s.sender.cq, RecvCQ: s.recvCQ,
		Cap: verbs.QPCap{MaxSendWR: sendDepth, MaxRecvWR: recvDepth, MaxSendSGE: 1, MaxRecvSGE: 1,
			MaxInlineData: wire.MADLen},
	})
	if err != nil {
		return err
	}
	s.sender.qp = s.qp
	s.buf = make([]byte, recvDepth*recvSize)
	if s.mr, err = s.pd.RegMR(s.buf, verbs.AccessLocalWrite); err != nil {
		return err
	}
	if err = s.qp.Connect(verbs.QPInfo{}, &verbs.ConnectOptions{QKey: QKey}); err != nil {
		return err
	}
	if err = s.recvCQ.ReqNotify(false); err != nil {
		return err
	}
	for i := range recvDepth {
		if err = s.postRecv(uint64(i)); err != nil {
			return err
		}
	}
	return nil
}

// close destroys the objects of open.
func (s *share) close() error {
	var first error
	note := func(err error) {
		if err = driver.Destroyed(err); err != nil && first == nil {
			first = err
		}
	}
	if s.qp != nil {
		note(s.qp.Close())
	}
	if s.mr != nil {
		note(s.mr.Close())
	}
	note(s.sender.close())
	if s.recvCQ != nil {
		note(s.recvCQ.Close())
	}
	if s.ch != nil {
		note(s.ch.Close())
	}
	if s.pd != nil {
		note(s.pd.Close())
	}
	if s.ctx != nil {
		note(s.ctx.Close())
	}
	return first
}

func (s *share) postRecv(slot uint64) error {
	return s.qp.PostRecv(verbs.RecvWR{WRID: slot, SGList: []verbs.SGE{s.mr.SGE(int(slot)*recvSize, recvSize)}})
}

// end closes all agents, and refuses further ones.
func (s *share) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.agents {
		close(a.done)
	}
	s.agents, s.ended = nil, true
}

// add registers an agent. ErrClosed if QP 1 is closed.
func (s *share) add(a *Agent) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return ErrClosed
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
		s.mu.Unlock()
		return ErrClosed
	}
	s.agents = slices.Delete(slices.Clone(s.agents), i, i+1)
	close(a.done)
	s.mu.Unlock()
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
