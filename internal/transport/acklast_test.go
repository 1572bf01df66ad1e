package transport

import (
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// An acknowledgement follows the request that is posted before it is sent, if the link permits that, the packet of the
// request is not shorter than it, and the message is short.
func TestAcknowledgementFollowsAShortRequest(t *testing.T) {
	ack, first := wire.RC|wire.Ack, []wire.Opcode{wire.RC | wire.Ack, wire.RC | wire.SendOnly}
	last := []wire.Opcode{first[1], first[0]}
	for _, c := range []struct {
		name   string
		permit bool
		n      int
		want   []wire.Opcode
	}{
		{"not permitted", false, 8, first},
		{"short", true, 8, last},
		{"shorter than the acknowledgement", true, 3, first},
		{"the longest", true, shortLead, last},
		{"long", true, shortLead + 1, first},
		{"no request", true, -1, []wire.Opcode{ack}},
	} {
		s := newSender(t, RC, nil)
		s.tx.AckLast = c.permit
		s.qp.resp.ack(4999)
		if c.n >= 0 {
			s.send(c.n)
		}
		var got []wire.Opcode
		for _, p := range s.out() {
			got = append(got, p.BTH().Opcode())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: sent %v, want %v", c.name, got, c.want)
		}
	}
}

// Requests that fill the turn do not keep back the acknowledgement.
func TestAcknowledgementAmongManyRequests(t *testing.T) {
	s := newSender(t, RC, nil)
	s.tx.AckLast = true
	for range 40 {
		s.send(8)
	}
	s.qp.resp.ack(4999)
	s.qp.Transmit(s.now, s.tx, 32)
	if op := wire.BTH(s.tx.Bytes(1)).Opcode(); op != wire.RC|wire.Ack {
		t.Errorf("the second packet is %v, want the acknowledgement", op)
	}
}

// Due tells an acknowledgement of complete messages with nothing beside it from what else there may be to send: a
// request, a READ response, a congestion notification, and the acknowledgement of a message that is still incomplete.
func TestDue(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(s *sender)
		want Due
	}{
		{"nothing", func(*sender) {}, DueNothing},
		{"acknowledgement", func(s *sender) { s.qp.resp.ack(4999) }, DueAck},
		{"request", func(s *sender) { s.send(1) }, DueMore},
		{"with a request", func(s *sender) { s.qp.resp.ack(4999); s.send(1) }, DueMore},
		{"with a notification", func(s *sender) { s.qp.resp.ack(4999); s.qp.resp.cnpDue = true }, DueMore},
		{"within a message", func(s *sender) { s.qp.resp.ack(4999); s.qp.resp.phase = inSend }, DueMore},
		{"at the end of a pause", func(s *sender) { s.qp.resp.ack(4999); s.qp.pace.until = s.now + 1 }, DueMore},
		{"NAK", func(s *sender) { s.qp.resp.nakSequence() }, DueMore},
	} {
		s := newSender(t, RC, nil)
		if c.do(s); s.qp.Due() != c.want {
			t.Errorf("%s: %v, want %v", c.name, s.qp.Due(), c.want)
		}
	}
}
