package engine

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/transport"
)

// The memory of QPs is prefetched from manyQPs on, and no longer when there are fewer again.
func TestManyQPs(t *testing.T) {
	q := qpTable{max: 2 * manyQPs}
	for i := range uint32(manyQPs) {
		if q.many.Load() {
			t.Fatalf("many with %d QPs", i)
		}
		q.put(&transport.QP{Config: transport.Config{Num: minQPN + i}})
	}
	if !q.many.Load() {
		t.Errorf("not many with %d QPs", manyQPs)
	}
	q.remove(minQPN)
	if q.many.Load() {
		t.Errorf("many with %d QPs", manyQPs-1)
	}
}
