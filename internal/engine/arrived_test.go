package engine

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/transport"
)

// An aside is a port that keeps what it receives.
type aside struct {
	link.Port
	got []link.RxPacket
}

func (a *aside) Recv(b *link.RxBatch) int {
	a.Port.Recv(b)
	for i := range b.Packets {
		p := b.Packets[i]
		p.Data, p.Body = p.Append(nil), nil
		a.got = append(a.got, p)
	}
	b.Packets = b.Packets[:0]
	return 0
}

// A packet has arrived that another shard's port has received, though the QP's shard has not looked into its inbox: an
// acknowledgement there counts before the QP is moved to ERR.
func TestPacketsInTheInboxHaveArrived(t *testing.T) {
	m := newManual(t, 2)
	a, b := m.NewCQ(8, 1, silent{}), m.NewCQ(8, 2, silent{})
	qa, qb := pair(t, m.Engine, a, b)
	s := qa.shard
	if s == qb.shard {
		t.Fatal("one shard for both QPs")
	}
	port := &aside{Port: s.port}
	s.port = port
	if err := postWrite(qa, 5); err != nil {
		t.Fatal(err)
	}
	m.stepUntilIdle(t)
	s.port = port.Port
	if len(port.got) != 1 {
		t.Fatalf("%d packets for the sender, want the acknowledgement", len(port.got))
	}
	s.inbox.put(qa.Num(), &port.got[0])
	if err := qa.Modify(&transport.Attr{State: transport.Err}, transport.MaskState); err != nil {
		t.Fatal(err)
	}
	n, err := a.Poll(8, func(_ int, e *transport.CQE) {
		if e.WRID != 5 || e.Status != transport.Success {
			t.Errorf("request %d: %v, want success", e.WRID, e.Status)
		}
	})
	if n != 1 || err != nil {
		t.Errorf("%d completions, %v", n, err)
	}
}
