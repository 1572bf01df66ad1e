package umad

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/gsi"
	"github.com/verbena-rdma/verbena/verbs"
)

const (
	sendDepth   = 512
	signalEvery = 32 // sends for each signaled one, whose completion frees the others
	maxHandles  = 1024
)

// sender is the send side of QP 1.
type sender struct {
	ctx *verbs.Context
	pd  *verbs.PD
	cq  *verbs.CQ
	qp  *verbs.QP

	mu      sync.Mutex
	closed  bool
	handles map[Address]*verbs.AH
	old     []*verbs.AH // possibly in use by sends up to number oldest
	oldest  uint64
	posted  uint64
	sent    atomic.Uint64
	dropped atomic.Uint64
}

func (s *sender) open(vctx *verbs.Context, pd *verbs.PD) (err error) {
	s.ctx, s.pd, s.handles = vctx, pd, map[Address]*verbs.AH{}
	s.cq, err = vctx.CreateCQ(sendDepth, nil)
	return err
}

func (s *sender) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.retire()
	s.closeOld()
	if s.cq == nil {
		return nil
	}
	return s.cq.Close()
}

// sendAttempts limits the attempts to find room in the send queue, which empties at the rate of the network.
const sendAttempts = 200

func (s *share) send(to *Address, mad MAD) error {
	snd := &s.sender
	snd.mu.Lock()
	defer snd.mu.Unlock()
	if snd.closed { // after the agent was found open: a handle made now would keep the PD from being closed
		return ErrClosed
	}
	ah, err := snd.handle(to)
	if err != nil {
		return err
	}
	wr := verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline, Inline: mad, AH: ah, RemoteQPN: to.QPN,
		RemoteQKey: to.QKey}
	if wr.RemoteQPN == 0 {
		wr.RemoteQPN = QPN
	}
	if wr.RemoteQKey == 0 {
		wr.RemoteQKey = QKey
	}
	wr.WRID = snd.posted
	if wr.WRID%signalEvery == 0 {
		wr.Flags |= verbs.SendSignaled
		snd.reap()
	}
	for range sendAttempts {
		err = snd.qp.PostSend(wr)
		if err == nil {
			snd.posted++
			snd.sent.Add(1)
			return nil
		}
		if !errors.Is(err, verbs.ENOMEM) {
			return err
		}
		wr.Flags |= verbs.SendSignaled
		snd.reap()
		runtime.Gosched()
	}
	snd.dropped.Add(1)
	return fail(syscall.ENOBUFS, "send: the send queue of QP 1 stays full")
}

// flush waits until the posted datagrams are sent. The query of a QP of package soft has processed what was posted
// before when it returns; an adapter needs no help.
func (s *sender) flush() { _, _, _ = s.qp.Query(verbs.QPAttrState) }

// reap polls completions.
func (s *sender) reap() {
	var wcs [8]verbs.WC
	if n, _ := s.cq.Poll(wcs[:]); n > 0 && wcs[n-1].WRID >= s.oldest {
		s.closeOld()
	}
}

// handle returns the address handle for a destination, which it creates at first use.
func (s *sender) handle(to *Address) (*verbs.AH, error) {
	key := *to
	key.QPN, key.QKey = 0, 0
	if ah := s.handles[key]; ah != nil {
		return ah, nil
	}
	local, err := s.local(to)
	if err != nil {
		return nil, err
	}
	hops := to.HopLimit
	if hops == 0 {
		hops = 64
	}
	ah, err := s.pd.CreateAH(&verbs.AHAttr{IsGlobal: true, PortNum: local.Port, GRH: verbs.GlobalRoute{
		DGID: verbs.GIDFromAddr(to.Remote), SGIDIndex: local.Index, HopLimit: hops, TrafficClass: to.TClass,
		FlowLabel: to.FlowLabel,
	}})
	if err != nil {
		return nil, err
	}
	if len(s.handles) >= maxHandles {
		s.retire()
	}
	gsi.SetPKeyIndex(ah, to.PKeyIndex)
	s.handles[key] = ah
	return ah, nil
}

// local returns the GID table entry of a local address: the last one, since the first may be the default GID.
func (s *sender) local(to *Address) (found verbs.GIDEntry, err error) {
	table, err := s.ctx.QueryGIDTable()
	if err != nil {
		return found, err
	}
	gid := verbs.GIDFromAddr(to.Local)
	for _, e := range table {
		if e.GID == gid {
			found = e
		}
	}
	if found.Port == 0 {
		return found, fail(syscall.EADDRNOTAVAIL, "send: local address %v: must be an address of %s", to.Local,
			s.ctx.Device().Name())
	}
	return found, nil
}

// retire removes all handles. They are closed when the sends that may use them have completed.
func (s *sender) retire() {
	for _, ah := range s.handles {
		s.old = append(s.old, ah)
	}
	clear(s.handles)
	s.oldest = s.posted
}

func (s *sender) closeOld() {
	for _, ah := range s.old {
		_ = ah.Close()
	}
	s.old = s.old[:0]
}
