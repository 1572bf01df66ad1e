package umad

import (
	"errors"
	"runtime"
	"sync"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/gsi"
	"github.com/verbena-rdma/verbena/verbs"
)

const (
	sendDepth   = 512
	signalEvery = 32 // sends for each signaled one, whose completion frees the others
	maxHandles  = 1024
)

// defaultHopLimit is what 0 stands for.
const defaultHopLimit = 64

// sender is the send side of QP 1.
type sender struct {
	share *share
	ctx   *verbs.Context
	pd    *verbs.PD
	cq    *verbs.CQ
	qp    *verbs.QP

	mu      sync.Mutex
	closed  bool
	handles map[Address]*verbs.AH
	old     []*verbs.AH // possibly in use by sends up to number oldest
	oldest  uint64
	posted  uint64
}

func (s *sender) open(sh *share, vctx *verbs.Context, pd *verbs.PD) (err error) {
	s.share, s.ctx, s.pd, s.handles = sh, vctx, pd, map[Address]*verbs.AH{}
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

// send posts a datagram.
func (s *sender) send(to *Address, mad MAD) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed { // after the agent was found open: a handle made now would keep the PD from being closed
		return ErrClosed
	}
	s.follow()
	ah, err := s.handle(to)
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
	wr.WRID = s.posted
	if wr.WRID%signalEvery == 0 {
		wr.Flags |= verbs.SendSignaled
		s.reap()
	}
	for range sendAttempts {
		err = s.qp.PostSend(wr)
		if err == nil {
			s.posted++
			s.share.sent.Add(1)
			return nil
		}
		if !errors.Is(err, verbs.ENOMEM) {
			return err
		}
		wr.Flags |= verbs.SendSignaled
		s.reap()
		runtime.Gosched()
	}
	s.share.dropped.Add(1)
	return fail(syscall.ENOBUFS, "send: the send queue of QP 1 stays full")
}

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
	local, err := localEntry(s.ctx, to)
	if err != nil {
		return nil, err
	}
	port, err := s.ctx.QueryPort(local.Port)
	if err != nil {
		return nil, err
	}
	if to.PKeyIndex >= port.PKeyTblLen {
		return nil, fail(syscall.EINVAL, "send: P_Key index %d: must be 0 to %d", to.PKeyIndex, port.PKeyTblLen-1)
	}
	hops := to.HopLimit
	if hops == 0 {
		hops = defaultHopLimit
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

// follow removes all handles if the GID table has changed since the last call. They have the source address and the
// port of their local address, which the device may have lost, or have at another port now.
func (s *sender) follow() {
	for {
		ev, err := s.ctx.TryGetAsyncEvent()
		if err != nil { // EAGAIN mostly; the errors of a closed or removed device are those of what follows
			return
		}
		ev.Ack()
		if ev.Type == verbs.EventGIDChange {
			s.retire()
		}
	}
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
