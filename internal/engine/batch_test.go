package engine

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/verbena-rdma/verbena/internal/transport"
)

// nextIDs takes completions one by one, as one batch, until there is none or it has n.
func nextIDs(t *testing.T, cq *CQ, n int) (ids []uint64) {
	t.Helper()
	for len(ids) < n {
		e, _, err := cq.Next(len(ids) > 0)
		if err != nil {
			t.Fatal(err)
		}
		if e == nil {
			break
		}
		ids = append(ids, e.WRID)
	}
	return ids
}

func pushIDs(cq *CQ, qp *transport.QP, ids ...uint64) {
	for _, id := range ids {
		cq.Push(recvCQE(qp, id))
	}
}

// Completions that remain in a batch are returned in order by the next batch and by polls of the plain view.
func TestV_CQX_10_WhatABatchLeaves(t *testing.T) {
	cq, _ := testCQ(t, 4)
	a := testQP(17)
	pushIDs(cq, a, 0, 1, 2, 3)
	wantIDs(t, nextIDs(t, cq, 1), 0)
	pushIDs(cq, a, 4, 5)
	wantIDs(t, nextIDs(t, cq, 2), 1, 2)
	wantIDs(t, pollIDs(t, cq, 2), 3, 4)
	pushIDs(cq, a, 6)
	wantIDs(t, nextIDs(t, cq, 9), 5, 6)
	pushIDs(cq, a, 7, 8, 9)
	wantIDs(t, nextIDs(t, cq, 1), 7)
	if err := cq.Resize(1); err != nil {
		t.Error(err)
	}
	wantIDs(t, pollIDs(t, cq, 9), 8, 9)
	wantIDs(t, pollIDs(t, cq, 9))
}

// The completions of a QP that is reset or destroyed are removed from the batch and from the ring (V-QPS-03).
func TestV_QPS_03_PurgeWithinABatch(t *testing.T) {
	cq, _ := testCQ(t, 32)
	a, b := testQP(17), testQP(18)
	for i := range uint64(10) {
		pushIDs(cq, a, 10+i)
		pushIDs(cq, b, 20+i)
	}
	wantIDs(t, nextIDs(t, cq, 3), 10, 20, 11)
	cq.purge(b)
	wantIDs(t, nextIDs(t, cq, 2), 12, 13)
	for i := range cq.batch.Load().entries {
		if cq.batch.Load().entries[i].QP == b {
			t.Error("the batch holds on to the QP")
		}
	}
	wantIDs(t, pollIDs(t, cq, 2), 14, 15)
	cq.purge(a)
	wantIDs(t, nextIDs(t, cq, 9))
	pushIDs(cq, b, 30)
	wantIDs(t, nextIDs(t, cq, 9), 30)
}

// A CQ overflows when its ring is full; what was taken out of it, and what it holds, is polled before the error is.
func TestD_45_OverflowWithinABatch(t *testing.T) {
	cq, up := testCQ(t, 2)
	a := testQP(17)
	pushIDs(cq, a, 0, 1)
	wantIDs(t, nextIDs(t, cq, 1), 0)
	pushIDs(cq, a, 2, 3)
	if up.errors != 0 {
		t.Error("an overflow, though there was room")
	}
	pushIDs(cq, a, 4)
	if up.errors != 1 {
		t.Errorf("%d errors", up.errors)
	}
	wantIDs(t, nextIDs(t, cq, 9), 1, 2, 3)
	if e, _, err := cq.Next(false); e != nil || !errors.Is(err, ErrCQOverrun) {
		t.Error(e, err)
	}
}

// A batch goes on while other goroutines destroy QPs: of none of these comes anything once that is done.
func TestV_QPS_03_PurgeBesideABatch(t *testing.T) {
	cq, _ := testCQ(t, 64)
	keep := testQP(1)
	for round := range uint32(200) {
		victim := testQP(2 + round)
		for i := range uint64(12) {
			pushIDs(cq, keep, i)
			pushIDs(cq, victim, 100+i)
		}
		var purged atomic.Bool
		done := make(chan struct{})
		go func() {
			defer close(done)
			cq.purge(victim)
			purged.Store(true)
		}()
		kept := 0
		for more := false; ; more = true {
			over := purged.Load()
			e, _, err := cq.Next(more)
			if err != nil {
				t.Fatal(err)
			}
			if e == nil {
				break
			}
			if e.WRID < 100 {
				kept++
			} else if over {
				t.Fatal("a completion of a QP that is gone")
			}
		}
		<-done
		if kept != 12 {
			t.Fatalf("%d of 12 completions", kept)
		}
	}
}
