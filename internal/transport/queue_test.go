package transport

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
	"unsafe"
)

// With 10,000 QPs of 64 slots, 8 bytes per slot are 5 MB.
func TestSendSlotIsSmall(t *testing.T) {
	if n := unsafe.Sizeof(SendWQE{}); n > 128 {
		t.Errorf("a slot has %d bytes; put what only some requests have into SendMore", n)
	}
}

// A send queue against a model, the list of outstanding requests.
func TestSendQueueKeepsItsSlotsApart(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	q := NewSendQueue(8, 2, 0)
	q.fill, q.base = 0xFFFFFFF0, 0xFFFFFFF0 // indices wrap around
	q.posted.Store(q.fill)
	q.polled.Store(q.fill)
	var outstanding []uint32 // indices
	for step := range 5000 {
		if rng.IntN(2) == 0 {
			w := q.Next()
			if (w == nil) != (len(outstanding) == q.Cap()) {
				t.Fatalf("step %d: slot %v with %d outstanding", step, w, len(outstanding))
			}
			if w == nil {
				continue
			}
			if len(outstanding) == 0 && w != &q.first.Load().slots[0] {
				t.Fatalf("step %d: an empty queue does not begin at its first slot", step)
			}
			w.WRID = uint64(q.fill)
			w.SGEs = append(w.SGEs, SGE{Addr: uint64(q.fill)}, SGE{LKey: q.fill})
			outstanding = append(outstanding, q.fill)
			q.Commit()
			q.Publish()
		} else if len(outstanding) > 0 {
			n := 1 + rng.IntN(len(outstanding))
			q.Release(outstanding[n-1])
			outstanding = outstanding[n:]
		}
		for _, i := range outstanding {
			if w := q.At(i); w.WRID != uint64(i) || len(w.SGEs) != 2 || w.SGEs[0].Addr != uint64(i) || w.SGEs[1].LKey != i {
				t.Fatalf("step %d: slot %d holds %+v", step, i, w)
			}
		}
	}
}

// A receive queue against a model: receives are taken, put back and released, and the size changes.
func TestRecvQueueIsAQueue(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	q := NewRecvQueue(8, 1, true, 0)
	q.fill, q.taken, q.base = 0xFFFFFFF8, 0xFFFFFFF8, 0xFFFFFFF8
	q.polled.Store(q.fill)
	var posted []uint64
	taken, next := 0, uint64(0)
	var w RecvWQE
	for step := range 20000 {
		do := rng.IntN(5)
		if do < 2 && step/300%2 == 1 {
			do += 2 // the queue becomes empty
		}
		switch do {
		case 0, 1:
			err := q.Post(next, []SGE{{Addr: next, Length: uint32(next)}}[:rng.IntN(2)])
			if full := len(posted)+taken == q.Cap(); full != errors.Is(err, ErrQueueFull) {
				t.Fatalf("step %d: %d of %d: %v", step, len(posted)+taken, q.Cap(), err)
			}
			if err == nil {
				if len(posted)+taken == 0 && q.slots[0].Addr != next {
					t.Fatalf("step %d: an empty queue does not begin at its first slot", step)
				}
				posted = append(posted, next)
				next++
			}
		case 2:
			if ok := q.Take(&w); ok != (len(posted) > 0) {
				t.Fatalf("step %d: took %v of %d", step, ok, len(posted))
			} else if !ok {
				break
			}
			if w.WRID != posted[0] || len(w.SGEs) == 1 && w.SGEs[0].Addr != posted[0] {
				t.Fatalf("step %d: took %+v, want %d", step, w, posted[0])
			}
			if rng.IntN(3) == 0 {
				q.putBack(&w)
				break
			}
			posted = posted[1:]
			taken++
		case 3:
			if taken > 0 {
				q.Release(1)
				taken--
			}
		case 4:
			if rng.IntN(50) > 0 {
				break
			}
			n, want := 1<<rng.IntN(6), q.Cap()
			fits := len(posted)+taken <= n
			if fits {
				want = n
			}
			if err := q.Resize(n, 1); (err == nil) != fits || q.Cap() != want {
				t.Fatalf("step %d: to %d with %d outstanding: %v, room for %d", step, n, len(posted)+taken, err, q.Cap())
			}
		}
		if q.Posted() != len(posted) {
			t.Fatalf("step %d: %d posted, want %d", step, q.Posted(), len(posted))
		}
	}
}

func TestV_SRQ_11_LimitBelowThePosted(t *testing.T) {
	q := NewRecvQueue(8, 1, true, 0)
	events := 0
	q.OnLimit = func() { events++ }
	for range 3 {
		if err := q.Post(0, nil); err != nil {
			t.Fatal(err)
		}
	}
	q.SetLimit(3)
	if events != 0 || q.Limit() != 3 {
		t.Fatalf("%d events, limit %d with as many receives as the limit", events, q.Limit())
	}
	q.SetLimit(4)
	if events != 1 || q.Limit() != 0 {
		t.Fatalf("%d events, limit %d with fewer receives than the limit", events, q.Limit())
	}
	q.SetLimit(2)
	var w RecvWQE
	for range 3 {
		q.Take(&w)
	}
	if events != 2 || q.Limit() != 0 {
		t.Errorf("%d events, limit %d", events, q.Limit())
	}
}

// TestSlotsAreAllocatedWhenUsed: a queue that never holds many requests has memory for few, and posting to it again
// allocates nothing.
func TestSlotsAreAllocatedWhenUsed(t *testing.T) {
	q := NewSendQueue(256, 1, 0)
	if q.first.Load() != nil {
		t.Error("slots before the first request")
	}
	post := func() {
		q.Lock()
		q.Next()
		q.Commit()
		q.Publish()
		q.Unlock()
	}
	one := func() {
		post()
		q.Release(q.fill - 1)
	}
	if n := testing.AllocsPerRun(1000, one); n != 0 {
		t.Errorf("%v allocations for each request", n)
	}
	for i, c := range *q.rest {
		if c != nil {
			t.Errorf("chunk %d is in use", i+1)
		}
	}
	for range q.Cap() {
		post()
	}
	if q.Next() != nil {
		t.Error("more slots than the capacity")
	}
}

// A send queue that changes its size keeps the outstanding requests, and then has its new room.
func TestSendQueueResize(t *testing.T) {
	inline := func(i uint32) int { return int(i) % 3 * 20 } // within the slot, and beside it
	for _, wrs := range []int{4, 8, 16, 40} {
		q := NewSendQueue(8, 1, 40)
		post := func(n int) (posted int) {
			q.Lock()
			defer q.Unlock()
			for range n {
				w := q.Next()
				if w == nil {
					break
				}
				w.WRID, w.SGEs = uint64(q.fill), append(w.SGEs, SGE{LKey: q.fill})
				w.Inline = append(q.InlineRoom(w, inline(q.fill)), bytes.Repeat([]byte{byte(q.fill)}, inline(q.fill))...)
				q.Commit()
				posted++
			}
			q.Publish()
			return posted
		}
		post(6)
		q.Release(1) // 4 are outstanding
		if err := q.Resize(2); !errors.Is(err, ErrQueueFull) || q.Cap() != 8 {
			t.Errorf("to 2: %v, %d slots", err, q.Cap())
		}
		if err := q.Resize(wrs); err != nil {
			t.Fatal(err)
		}
		if n, want := post(100), CeilPow2(wrs)-4; n != want {
			t.Errorf("to %d: room for %d, want %d", wrs, n, want)
		}
		for i := uint32(2); i != q.Posted(); i++ {
			if w := q.At(i); w.WRID != uint64(i) || len(w.SGEs) != 1 || w.SGEs[0].LKey != i {
				t.Errorf("to %d: slot %d holds %+v", wrs, i, *w)
			}
			if w := q.At(i); !bytes.Equal(w.Inline, bytes.Repeat([]byte{byte(i)}, inline(i))) {
				t.Errorf("to %d: inline data of slot %d: %x", wrs, i, w.Inline)
			}
		}
	}
	q := NewSendQueue(8, 1, 0)
	q.OwnSlots()
	if err := q.Resize(16); !errors.Is(err, ErrFixedSize) {
		t.Errorf("with slots of the QP's own: %v", err)
	}
}

// A queue to its own size keeps its slots: nothing is allocated.
func TestSendQueueResizeToItsSize(t *testing.T) {
	q := NewSendQueue(8, 1, 0)
	q.Lock()
	w := q.Next()
	q.Unlock()
	if err := q.Resize(5); err != nil || q.Cap() != 8 || w != &q.first.Load().slots[0] {
		t.Errorf("%v, %d slots", err, q.Cap())
	}
}

// The requests of the QP itself take OwnRequests slots at most, and the program the others, whoever comes first.
func TestRoomForOwnRequests(t *testing.T) {
	q := NewSendQueue(8, 1, 0)
	if q.room(1) || q.Free() != q.Cap() {
		t.Error("a queue without slots of the QP's own has room for its requests")
	}
	for _, programFirst := range []bool{true, false} {
		q := NewSendQueue(OwnRequests*2, 1, 0)
		q.OwnSlots()
		post := func(next func() *SendWQE) (n int) {
			q.Lock()
			defer q.Unlock()
			for ; next() != nil; n++ {
				q.Commit()
			}
			q.Publish()
			return n
		}
		if programFirst {
			if n := post(q.Next); n != q.Free() || n != OwnRequests {
				t.Errorf("the program has posted %d requests, %d are free", n, q.Free())
			}
		}
		own := 0
		for ; q.room(2); own += 2 {
			q.Lock()
			for range 2 {
				if q.nextOwn() == nil {
					t.Fatalf("no slot for a request of the QP after %d", own)
				}
				q.Commit()
			}
			q.Publish()
			q.Unlock()
		}
		if own != OwnRequests {
			t.Errorf("the QP has posted %d requests", own)
		}
		if n := post(q.Next); !programFirst && n != OwnRequests || programFirst && n != 0 {
			t.Errorf("the program has posted %d requests after the QP", n)
		}
		for i := range uint32(OwnRequests) {
			if programFirst {
				q.Release(i)
				if free := post(q.Next); free != 1 {
					t.Errorf("one polled request frees %d slots", free)
				}
			} else if q.releaseOwn(i); q.room(int(i+1)) == q.room(int(i+2)) {
				t.Errorf("%d requests of the QP are done, and not as many fit", i+1)
			}
		}
		q.Clear()
		if n := post(q.Next); n != OwnRequests || !q.room(OwnRequests) {
			t.Errorf("after RESET the program posts %d requests, room for the QP's %v", n, q.room(OwnRequests))
		}
	}
}

// A receive without room stays in the queue, also for a message of one byte. An empty message takes it.
func TestTakeForOneByte(t *testing.T) {
	q := NewRecvQueue(4, 1, false, 0)
	if err := q.Post(1, []SGE{{}}); err != nil {
		t.Fatal(err)
	}
	var w RecvWQE
	if ok, small := q.takeFor(&w, 1); ok || !small {
		t.Errorf("one byte: taken %v, too small %v", ok, small)
	}
	if ok, small := q.takeFor(&w, 0); !ok || small {
		t.Errorf("no byte: taken %v, too small %v", ok, small)
	}
}

// A slot of the QP's own is free as soon as all slots before it are, whichever of them ends last.
func TestOwnSlotsAreFreedInOrder(t *testing.T) {
	q := NewSendQueue(OwnRequests+8, 1, 0)
	q.OwnSlots()
	q.Lock()
	for _, next := range []func() *SendWQE{q.Next, q.nextOwn, q.nextOwn, q.Next, q.nextOwn} {
		next()
		q.Commit()
	}
	q.Publish()
	q.Unlock()
	for _, step := range []struct {
		own  bool
		slot uint32
		want uint32 // slots before it are free
	}{{true, 1, 0}, {true, 2, 0}, {false, 0, 3}, {true, 4, 3}, {false, 3, 5}} {
		if step.own {
			q.releaseOwn(step.slot)
		} else {
			q.Release(step.slot)
		}
		if got := q.polled.Load(); got != step.want {
			t.Errorf("%+v: slots are free to %d", step, got)
		}
	}
}

// Inline data of at most 16 bytes are in the slot, and longer ones behind what is there in the memory beside it.
func TestInlineRoom(t *testing.T) {
	q := NewSendQueue(8, 1, 40)
	q.Lock()
	defer q.Unlock()
	for i := range 8 {
		w := q.Next()
		for _, n := range []int{0, 1, 16, 17, 40} {
			room := q.InlineRoom(w, n)[:1]
			at := uintptr(unsafe.Pointer(&room[0])) - uintptr(unsafe.Pointer(w))
			if within := at < unsafe.Sizeof(*w); within != (n <= 16) || q.long.Load() == within {
				t.Errorf("slot %d: %d bytes at %d, long: %v", i, n, at, q.long.Load())
			}
		}
		w.Inline = append(w.Inline, 1, 2)
		if room := q.InlineRoom(w, 1); len(room) != 2 || &room[0] != &w.Inline[0] || !q.long.Load() {
			t.Errorf("slot %d: behind 2 bytes: %d", i, len(room))
		}
		q.Commit()
	}
}
