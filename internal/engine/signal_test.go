package engine

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// order is a port and the upcalls of a CQ: it notes acknowledgements and events as they come.
type order struct {
	silent
	link.Port
	seen []string
}

func (o *order) Send(b *link.TxBatch) {
	for i := range b.Packets {
		if wire.BTH(b.Bytes(i)).Opcode() == wire.Ack {
			o.seen = append(o.seen, "ack")
		}
	}
	o.Port.Send(b)
}

func (o *order) Completion() { o.seen = append(o.seen, "event") }

// A program that waits for a message runs after the message is acknowledged.
func TestEventsFollowTheAcknowledgement(t *testing.T) {
	m := newManual(t, 1)
	o := &order{}
	receiver := m.NewCQ(8, 0, o)
	qa, qb := pair(t, m.Engine, m.NewCQ(8, 0, silent{}), receiver)
	o.Port, m.shards[0].port = m.shards[0].port, o
	for id := range uint64(3) {
		arm(t, receiver)
		if err := qb.RQ.Post(id, nil); err != nil {
			t.Fatal(err)
		}
		err := postSend(qa, func(q *transport.SendQueue) error {
			w := q.Next()
			w.Op, w.Flags, w.Length = transport.OpSend, transport.Signaled, 0
			q.Commit()
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		m.stepUntilIdle(t)
		if len(o.seen) != 2 || o.seen[0] != "ack" || o.seen[1] != "event" {
			t.Errorf("message %d: %v, want ack, event", id, o.seen)
		}
		o.seen = nil
	}
}
