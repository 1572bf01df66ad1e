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
