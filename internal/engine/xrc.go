package engine

import (
	"errors"
	"slices"
	"sync"

	"github.com/verbena-rdma/verbena/internal/secret"
	"github.com/verbena-rdma/verbena/internal/transport"
)

// ErrSRQLimit is returned if all XRC SRQ numbers are in use.
var ErrSRQLimit = errors.New("the device has no free XRC SRQ number")

// An XRCD is an XRC domain: XRC_RECV QPs and the SRQs that they deliver to. Polling an SRQ's CQ runs the shards of
// those QPs.
type XRCD struct {
	eng *Engine
	*transport.XRCD

	member int     // the process among those that have the domain; -1 if no other can have it
	low    numbers // of a shared domain: the lower 16 bits of its SRQ numbers

	mu sync.Mutex // taken before any CQ.mu; guards srqs, qps and XRCSRQ.dead
	// +checklocks:mu
	srqs []*XRCSRQ
	// +checklocks:mu
	qps map[*shard]int // number of QPs per shard
}

// NewXRCD returns an empty domain of this process only.
func (e *Engine) NewXRCD() *XRCD { return e.NewSharedXRCD(-1) }

// NewSharedXRCD returns this process's part of a domain that up to 256 processes have. member, 0 to 255, tells them
// apart: it is the upper 8 bits of the numbers of their SRQs.
func (e *Engine) NewSharedXRCD(member int) *XRCD {
	d := &XRCD{eng: e, XRCD: transport.NewXRCD(), member: member, qps: make(map[*shard]int)}
	if d.low.most = 1<<memberShift - 1; e.firstQPN == 0 {
		d.low.order = secret.NewSequence(d.low.most, nil)
	}
	return d
}

const memberShift = 16

// MemberOf returns the member that an SRQ number of a shared domain belongs to.
func MemberOf(srqn uint32) int { return int(srqn >> memberShift) }

// takeNumber returns a free SRQ number.
func (d *XRCD) takeNumber() (uint32, error) {
	if d.member < 0 {
		return d.eng.srqns.take()
	}
	n, err := d.low.take()
	return uint32(d.member)<<memberShift | n, err
}

// freeNumber frees a number of takeNumber.
func (d *XRCD) freeNumber(n uint32) {
	if d.member < 0 {
		d.eng.srqns.free(n)
		return
	}
	d.low.free(n & (1<<memberShift - 1))
}

// XRCSRQ is an SRQ of an XRC domain.
type XRCSRQ struct {
	*transport.XRCSRQ
	xrcd *XRCD
	cq   *CQ
	fail func()
	dead bool // its CQ has overflowed; guarded by xrcd.mu
}

// CreateSRQ adds a queue to the domain under a number that it chooses. cq takes the completions. failed is an upcall:
// it reports that receiving has ended because cq has overflowed.
func (d *XRCD) CreateSRQ(q *transport.RecvQueue, cq *CQ, failed func()) (*XRCSRQ, error) {
	num, err := d.takeNumber()
	if err != nil {
		return nil, err
	}
	s := &XRCSRQ{XRCSRQ: &transport.XRCSRQ{Num: num, Queue: q, CQ: cq}, xrcd: d, cq: cq, fail: failed}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.srqs = append(d.srqs, s)
	for sh := range d.qps {
		cq.attach(sh)
	}
	d.Add(s.XRCSRQ)
	return s, nil
}

// Destroy removes the SRQ, and its completions from its CQ. The CQ is no longer in use for it afterwards.
func (s *XRCSRQ) Destroy() {
	d := s.xrcd
	d.Remove(s.XRCSRQ)
	d.eng.Quiesce()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.srqs = slices.DeleteFunc(d.srqs, func(o *XRCSRQ) bool { return o == s })
	for sh := range d.qps {
		s.cq.detach(sh)
	}
	s.cq.PurgeSRQ(s.Queue)
	d.freeNumber(s.Num)
}

// enter counts a QP of shard s; leave removes it.
func (d *XRCD) enter(s *shard) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.qps[s]++; d.qps[s] == 1 {
		for _, q := range d.srqs {
			q.cq.attach(s)
		}
	}
}

func (d *XRCD) leave(s *shard) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.qps[s]--; d.qps[s] == 0 {
		delete(d.qps, s)
		for _, q := range d.srqs {
			q.cq.detach(s)
		}
	}
}

// home returns a CQ of the domain, nil if there is none: new QPs should run where it is polled.
func (d *XRCD) home() *CQ {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.srqs) == 0 {
		return nil
	}
	return d.srqs[0].cq
}

// failSRQs closes the SRQs whose CQ has overflowed (V-AE-21). Requests that name them are refused from then on.
func (d *XRCD) failSRQs() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, q := range d.srqs {
		if q.cq.broken.Load() && !q.dead {
			q.dead = true
			q.Close()
			q.fail()
		}
	}
}

// numbers assigns numbers from 1 to most, in turn or in a secret order. Either way a freed number is not reused soon.
// mu guards used, last and order.
type numbers struct {
	most  uint32
	mu    sync.Mutex
	used  map[uint32]struct{}
	last  uint32
	order *secret.Sequence // nil: in order, after last
}

const maxSRQN = 1<<24 - 1

func (n *numbers) take() (uint32, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.used == nil {
		n.used = make(map[uint32]struct{})
	}
	if len(n.used) >= int(n.most) {
		return 0, ErrSRQLimit
	}
	for {
		n.last = n.last%n.most + 1
		if n.order != nil {
			n.last = n.order.Next() + 1
		}
		if _, used := n.used[n.last]; !used {
			n.used[n.last] = struct{}{}
			return n.last, nil
		}
	}
}

func (n *numbers) free(v uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.used, v)
}
