package engine

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/transport"
)

// The memory of QPs is prefetched from manyQPs of a device on, and no longer when there are fewer again or the device
// is closed.
func TestManyQPs(t *testing.T) {
	begin := crowded.Load() // tests before may have left devices open
	check := func(want int32, a, b *qpTable) {
		t.Helper()
		if got := crowded.Load() - begin; got != want {
			t.Fatalf("%d engines are crowded with %d and %d QPs, want %d", got, a.qps.Len(), b.qps.Len(), want)
		}
		if want > 0 && !Crowded() {
			t.Fatal("not crowded")
		}
	}
	var a, b qpTable
	put := func(q *qpTable, i uint32) { q.put(&transport.QP{Config: transport.Config{Num: minQPN + i}}) }
	for i := range uint32(manyQPs - 1) {
		put(&a, i)
		put(&b, i)
		check(0, &a, &b)
	}
	put(&a, manyQPs-1)
	check(1, &a, &b)
	put(&a, manyQPs)
	put(&b, manyQPs)
	check(2, &a, &b)
	a.remove(minQPN)
	check(2, &a, &b)
	a.remove(minQPN + 1)
	check(1, &a, &b)
	b.close()
	check(0, &a, &b)
	b.remove(minQPN)
	put(&b, manyQPs+1)
	check(0, &a, &b)
}

// More is prefetched from veryManyQPs on.
func TestVeryManyQPs(t *testing.T) {
	begin := packed.Load()
	var q qpTable
	for i := range uint32(veryManyQPs) {
		if got := packed.Load() - begin; got != 0 {
			t.Fatalf("packed with %d QPs", i)
		}
		q.put(&transport.QP{Config: transport.Config{Num: minQPN + i}})
	}
	if got := packed.Load() - begin; got != 1 {
		t.Errorf("%d engines are packed, want 1", got)
	}
	q.close()
	if got := packed.Load() - begin; got != 0 {
		t.Errorf("%d engines are packed after the end, want none", got)
	}
}

// Each QP knows which one was posted to after it the last time. A QP that is destroyed knows none, so that it keeps no
// other one from being collected.
func TestFollowers(t *testing.T) {
	packed.Add(1)
	defer packed.Add(-1)
	m := newManual(t, 1)
	cq := m.NewCQ(256, 0, silent{})
	var qps [4]*QP
	for i := range qps {
		qps[i], _ = pair(t, m.Engine, cq, m.NewCQ(8, 0, silent{}))
	}
	post := func(order ...int) {
		for _, i := range order {
			if err := postWrite(qps[i], 1); err != nil {
				t.Fatal(err)
			}
			qps[i].PrefetchFollowers()
		}
	}
	follows := func(want ...int) {
		t.Helper()
		for i, next := range want {
			if got := qps[i].follower.Load(); next < 0 && got != nil || next >= 0 && got != qps[next] {
				t.Errorf("the follower of QP %d is not %d", i, next)
			}
		}
	}
	post(0, 1, 2, 3, 0, 1, 2, 3)
	follows(1, 2, 3, 0)
	post(2, 2, 0, 3)
	follows(3, 2, 0, 2)
	qps[3].Destroy()
	follows(3, 2, 0, -1)
	if m.shards[0].posted.Load() != nil {
		t.Error("the shard keeps a QP that was destroyed")
	}
	post(0, 1)
	follows(1, 2, 0, -1)
}
