package transport

import (
	"math"
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// A request that does not fit into the batch is sent in the next one, once.
func TestFullBatchLosesNoRequest(t *testing.T) {
	s := newSender(t, RC, nil)
	for range 2 {
		s.post(OpRead, s.sges(0, 3000), nil)
		s.post(OpFetchAdd, s.sges(0, 8), nil)
		s.post(OpFlush, nil, flush(1))
		s.post(OpSend, s.sges(0, 8), nil)
	}
	s.qp.attr.MaxRdAtomic = 8
	tx := link.NewTxBatch(1, 4096)
	var got []uint32
	for more := true; more; {
		if more = s.qp.Transmit(s.now, tx, math.MaxInt); len(tx.Packets) == 0 {
			break
		}
		before := s.qp.req.nxt
		if again := s.qp.Transmit(s.now, tx, math.MaxInt); again != more || s.qp.req.nxt != before {
			t.Fatalf("a full batch: more %v, PSN %d after %d", again, s.qp.req.nxt, before)
		}
		got = append(got, wire.BTH(tx.Bytes(0)).PSN())
		tx.Reset()
	}
	if want := []uint32{1000, 1003, 1004, 1005, 1006, 1009, 1010, 1011}; !slices.Equal(got, want) {
		t.Errorf("PSNs %d, want %d", got, want)
	}
	if n := s.qp.Counters.RetransmitPackets; n != 0 || s.qp.req.reads != 6 {
		t.Errorf("%d packets again, %d requests wait for a response", n, s.qp.req.reads)
	}
}
