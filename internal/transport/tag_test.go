package transport

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// taggedBuffer is a buffer of the model of a tag list.
type taggedBuffer struct {
	handle    uint32
	wrid      uint64
	tag, mask uint64
	waits     bool
}

// A tag list against a model: buffers are matched in their order, those that were added while the counts of unexpected
// messages differ wait, and slots are free again when the completion was polled.
func TestTagListIsAList(t *testing.T) {
	for seed := range uint64(30) {
		testTagList(t, rand.New(rand.NewPCG(seed, 22)))
	}
}

func testTagList(t *testing.T, rng *rand.Rand) {
	const tags = 4
	cq := &pushedCQEs{}
	q := NewRecvQueue(4, 1, true, 0)
	l := q.MatchTags(tags, 2, 1, cq)
	var model []taggedBuffer
	var came, seen uint32
	sync := func(op *TagOp) {
		if op.Sync = rng.IntN(3) == 0; op.Sync {
			op.Unexpected = came - uint32(rng.IntN(2)*rng.IntN(2))
			seen = op.Unexpected
		}
		if seen == came {
			for i := range model {
				model[i].waits = false
			}
		}
	}
	for step := range 2000 {
		switch rng.IntN(4) {
		case 0:
			op := TagOp{Op: TagAdd, RecvWRID: uint64(step), Tag: rng.Uint64N(3), Mask: 3, Signaled: rng.IntN(2) == 0,
				SGEs: []SGE{{Addr: uint64(step)}}}
			if len(model) == tags {
				if err := l.Do(&op); !errors.Is(err, ErrTagsFull) {
					t.Fatalf("step %d: %v with %d buffers", step, err, len(model))
				}
				continue
			}
			sync(&op)
			if err := l.Do(&op); err != nil || op.Handle == 0 ||
				slices.ContainsFunc(model, func(b taggedBuffer) bool { return b.handle == op.Handle }) {
				t.Fatalf("step %d: %v, handle %#x", step, err, op.Handle)
			}
			model = append(model, taggedBuffer{op.Handle, op.RecvWRID, op.Tag, op.Mask,
				seen != came})
			cq.want(t, step, op.Signaled, CQTMAdd, Success, seen != came)
		case 1:
			op := TagOp{Op: TagDel, Handle: rng.Uint32() | 0x8000, Signaled: rng.IntN(2) == 0}
			at := -1
			if len(model) > 0 && rng.IntN(4) > 0 {
				at = rng.IntN(len(model))
				op.Handle = model[at].handle
			}
			sync(&op)
			if err := l.Do(&op); err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
			if at >= 0 {
				model = slices.Delete(model, at, at+1)
				cq.want(t, step, op.Signaled, CQTMDel, Success, seen != came)
			} else {
				cq.want(t, step, true, CQTMDel, TMErr, seen != came)
			}
		default:
			tag := rng.Uint64N(3)
			i := slices.IndexFunc(model, func(b taggedBuffer) bool { return b.waits || b.tag == tag })
			if i >= 0 && model[i].waits {
				i = -1
			}
			if i < 0 && rng.IntN(4) > 0 {
				continue // few unexpected messages
			}
			if i < 0 {
				if err := q.Post(1<<40, nil); err != nil {
					t.Fatalf("step %d: %v", step, err)
				}
			}
			var w RecvWQE
			matched, ready := l.match(&w, tag, nil)
			if matched != (i >= 0) || !ready {
				t.Fatalf("step %d: matched %v, ready %v, want buffer %d of %+v", step, matched, ready, i, model)
			}
			if !matched {
				q.Release(1)
				came++
				continue
			}
			if w.WRID != model[i].wrid || len(w.SGEs) != 1 || w.SGEs[0].Addr != w.WRID {
				t.Fatalf("step %d: %+v, want %+v", step, w, model[i])
			}
			model = slices.Delete(model, i, i+1)
			l.Polled(&CQE{Op: CQRecv, Flags: TMMatch | TMDataValid})
		}
	}
}

// pushedCQEs is a completion queue of one completion, which is polled at once.
type pushedCQEs struct {
	CompletionQueue
	last *CQE
}

func (c *pushedCQEs) Push(e *CQE) {
	kept := *e
	c.last = &kept
	e.Tags.Polled(&kept)
}

// want checks the completion of the last operation.
func (c *pushedCQEs) want(t *testing.T, step int, any bool, op CQOp, status Status, sync bool) {
	t.Helper()
	e := c.last
	c.last = nil
	switch {
	case (e != nil) != any:
		t.Fatalf("step %d: completion %+v, want one: %v", step, e, any)
	case e == nil:
	case e.Op != op || e.Status != status || (e.Cause != nil) != (status != Success) || (e.Flags == TMSyncReq) != sync:
		t.Fatalf("step %d: completion %+v, want %v, %v, sync %v", step, e, op, status, sync)
	}
}

// A queue of operations that nobody polls is full.
func TestTagOperationsAreBounded(t *testing.T) {
	l := NewRecvQueue(4, 1, true, 0).MatchTags(4, 2, 1, discard{})
	for range 2 {
		if err := l.Do(&TagOp{Op: TagSync, Signaled: true}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Do(&TagOp{Op: TagSync}); !errors.Is(err, ErrOpsFull) {
		t.Errorf("%v", err)
	}
}

type discard struct{ CompletionQueue }

func (discard) Push(*CQE) {}

// The number of uses in a handle passes over 0, so that no handle is 0.
func TestNoHandleIsZero(t *testing.T) {
	l := NewRecvQueue(1, 1, true, 0).MatchTags(2, 1, 1, discard{})
	for i := range l.entries {
		l.entries[i].generation = 0xfffe
	}
	for i := range uint32(2) {
		for _, use := range []uint32{0xffff, 1, 2} {
			op := TagOp{Op: TagAdd}
			if err := l.Do(&op); err != nil || op.Handle != use<<16|i {
				t.Errorf("%v, handle %#x, want %#x", err, op.Handle, use<<16|i)
			}
			if i == 0 && use == 2 {
				break // the next one takes the other entry
			}
			if !l.remove(op.Handle) {
				t.Errorf("handle %#x is unknown", op.Handle)
			}
		}
	}
}

// 0 stands for no limit; each code doubles the time.
func TestV_QPQ_AckTimeout(t *testing.T) {
	for code, want := range map[uint8]time.Duration{
		0: 0, 1: 8192 * time.Nanosecond, 14: 67108864 * time.Nanosecond, 31: 8796093022208 * time.Nanosecond,
	} {
		if got := AckTimeout(code); got != want {
			t.Errorf("code %d: %v, want %v", code, got, want)
		}
	}
}

// Each polled completion makes room for one operation.
func TestPolledTagOperations(t *testing.T) {
	l := NewRecvQueue(4, 1, true, 0).MatchTags(4, 3, 1, discard{})
	op := func() error { return l.Do(&TagOp{Op: TagSync, Signaled: true}) }
	for range 3 {
		if err := op(); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []CQOp{CQTMAdd, CQTMDel, CQTMSync} {
		l.Polled(&CQE{Op: kind})
		if err := op(); err != nil {
			t.Errorf("operation %d was polled: %v", kind, err)
		}
		if err := op(); !errors.Is(err, ErrOpsFull) {
			t.Errorf("a second one: %v", err)
		}
	}
}
