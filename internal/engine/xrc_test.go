package engine

import (
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/internal/transport"
)

// The CQ of an SRQ lists the shards of the domain's QPs, in whichever order they were created, until the last QP is
// destroyed.
func TestXRCPollersRunTheShardsOfTheQPs(t *testing.T) {
	e := testEngine(t, 4, Config{Manual: true})
	d := e.NewXRCD()
	srq := func(cq *CQ) *XRCSRQ {
		s, err := d.CreateSRQ(transport.NewRecvQueue(1, 1, true, 0), cq, func() {})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	qp := func() *QP {
		qp, err := e.newQP(QPInit{Type: transport.XRCRecv, XRCD: d, Regions: regions, Up: silent{}})
		if err != nil {
			t.Fatal(err)
		}
		return qp
	}
	first, second := e.NewCQ(4, 1, silent{}), e.NewCQ(4, 2, silent{})
	s1 := srq(first)
	q1 := qp()
	if q1.shard.index != 1 {
		t.Errorf("a QP runs in shard %d, its domain's CQ in 1", q1.shard.index)
	}
	s2 := srq(second)
	q2 := qp()
	if first.shards.Load() != 1<<1 || second.shards.Load() != 1<<1 {
		t.Errorf("shards %b and %b", first.shards.Load(), second.shards.Load())
	}
	q1.Destroy()
	if first.shards.Load() != 1<<1 {
		t.Error("the shard of the other QP is forgotten")
	}
	s1.Destroy()
	if first.shards.Load() != 0 {
		t.Error("the CQ of an SRQ that is gone runs shards")
	}
	q2.Destroy()
	if second.shards.Load() != 0 {
		t.Error("a CQ runs shards for QPs that are gone")
	}
	s2.Destroy()
}

// The two QPs of a connection share a shard, so that acknowledgements precede answers.
func TestXRCQPsShareAShard(t *testing.T) {
	e := testEngine(t, 4, Config{Manual: true})
	d := e.NewXRCD()
	for i := range 4 {
		send, err := e.newQP(QPInit{Type: transport.XRCSend, SendCQ: e.NewCQ(4, 0, silent{}), Regions: regions, Up: silent{}})
		if err != nil {
			t.Fatal(err)
		}
		recv, err := e.newQP(QPInit{Type: transport.XRCRecv, XRCD: d, Regions: regions, Up: silent{}})
		if err != nil {
			t.Fatal(err)
		}
		if send.shard != recv.shard {
			t.Errorf("connection %d: shards %d and %d", i, send.shard.index, recv.shard.index)
		}
		defer send.Destroy()
		defer recv.Destroy()
	}
}

func TestXRCSRQNumbers(t *testing.T) {
	n := numbers{most: 4}
	first := map[uint32]bool{}
	for range 4 {
		v, err := n.take()
		if err != nil || v < 1 || v > 4 || first[v] {
			t.Fatalf("%d, %v after %v", v, err, first)
		}
		first[v] = true
	}
	if _, err := n.take(); !errors.Is(err, ErrSRQLimit) {
		t.Errorf("all are taken: %v", err)
	}
	n.free(1)
	n.free(3)
	n.last = 2
	for _, want := range []uint32{3, 1} {
		if got, err := n.take(); err != nil || got != want {
			t.Errorf("%d, %v; want %d", got, err, want)
		}
	}
}
