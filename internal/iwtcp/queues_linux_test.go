package iwtcp

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/verbena-rdma/verbena/internal/iwarp"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/transport"
)

// keeper is a CQ that keeps completions, and the receiver of upcalls that keeps these.
type keeper struct {
	broken atomic.Bool
	mu     sync.Mutex
	done   []transport.CQE
	purged int
	events []transport.Event
	moves  []transport.State
}

func (k *keeper) Push(e *transport.CQE) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.done = append(k.done, *e)
	if e.Send {
		e.SQ.Release(e.Slot)
	} else {
		e.RQ.Release(1)
	}
}

func (k *keeper) Broken() bool { return k.broken.Load() }

func (k *keeper) PurgeNum(uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.purged++
}

func (k *keeper) Event(e transport.Event) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.events = append(k.events, e)
}

func (k *keeper) StateChanged(s transport.State) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.moves = append(k.moves, s)
}

// statuses are those of the completions so far.
func (k *keeper) statuses() (all []transport.Status) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range k.done {
		all = append(all, k.done[i].Status)
	}
	return all
}

// expect waits for the statuses of all completions.
func (k *keeper) expect(t *testing.T, want ...transport.Status) {
	t.Helper()
	until(t, "the completions", func() bool { return len(k.statuses()) >= len(want) })
	if got := k.statuses(); !slices.Equal(got, want) {
		t.Fatalf("statuses %v, want %v", got, want)
	}
}

// end is a QP with its queues and a region that permits everything.
type end struct {
	*QP
	t          *testing.T
	send, recv keeper // CQs; send has the upcalls too
	mem        []byte
	reg        *mr.Region
}

// newEnd makes a QP in INIT.
func newEnd(t *testing.T, d *Device, num uint32, size int) *end {
	t.Helper()
	const all = mr.RemoteRead | mr.RemoteWrite
	e := &end{t: t, mem: make([]byte, size)}
	regions := mr.NewTable(10, mr.Counted())
	e.reg = &mr.Region{PD: 1, Access: mr.LocalWrite | all, Buf: e.mem}
	if err := regions.Add(e.reg); err != nil {
		t.Fatal(err)
	}
	q, err := d.NewQP(Config{Num: num, PD: 1, SQ: transport.NewSendQueue(8, 1, 0),
		RQ: transport.NewRecvQueue(8, 1, false, 1), SendCQ: &e.send, RecvCQ: &e.recv, Regions: regions,
		Memory: new(sync.RWMutex), Up: &e.send})
	if err != nil {
		t.Fatal(err)
	}
	e.QP = q
	t.Cleanup(q.Destroy)
	if err := q.Init(all); err != nil {
		t.Fatal(err)
	}
	return e
}

// sge is the first n bytes of the region.
func (e *end) sge(n int) transport.SGE { return transport.SGE{Length: uint32(n), LKey: e.reg.LKey} }

// post posts a request of n bytes. to: the region of the peer.
func (e *end) post(op transport.Op, n int, to *end) error {
	return e.PostSend(func(sq *transport.SendQueue) error {
		w := sq.Next()
		*w = transport.SendWQE{Op: op, Flags: transport.Signaled, Length: uint32(n), SGEs: append(w.SGEs[:0], e.sge(n))}
		if to != nil {
			w.RKey = to.reg.RKey
		}
		sq.Commit()
		return nil
	})
}

// pair connects two QPs of a device.
func pair(t *testing.T, size int) (initiator, responder *end) {
	t.Helper()
	d := new(Device)
	a, b := newEnd(t, d, 1, size), newEnd(t, d, 2, size)
	one, other := connection(t)
	for e, c := range map[*end]*Conn{a: {tcp: one, Params: iwarp.Params{Initiator: true, IRD: 1, ORD: 1}},
		b: {tcp: other, Params: iwarp.Params{IRD: 1, ORD: 1}}} {
		if err := e.Start(c, func(bool) {}); err != nil {
			t.Fatal(err)
		}
	}
	return a, b
}
