package engine

import (
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/mem"
)

// TestBatchesHaveRoomForLaterQPs: a batch is closed before it lacks room for the packets of any QP. The MTU of the link
// when it was opened does not count: a QP whose path MTU is larger, since that of the interface has grown, would wait
// for the next step.
func TestBatchesHaveRoomForLaterQPs(t *testing.T) {
	e := New(Config{Manual: true, Open: func() (link.Link, error) {
		return mem.NewFabric(mem.Config{MTU: 1100}).Open([]netip.Addr{localAddr}, 1)
	}})
	newQP(t, e, e.NewCQ(8, 0, silent{}), silent{}) // opens the link
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	s := e.shards[0]
	s.hold()
	defer s.release()
	defer s.tx.Reset()
	for n := 0; s.room(); n++ {
		if !s.tx.Room(longestPacket) {
			t.Fatalf("after %d packets the batch has room, but not for a packet of %d bytes", n, longestPacket)
		}
		s.tx.Alloc(new(link.Path), 1, 600-n%2) // of different lengths, or the batch ends with a GSO run
	}
}
