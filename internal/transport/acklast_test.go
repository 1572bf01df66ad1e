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

// OnlyAck reports an acknowledgement of complete messages with nothing beside it: no request, no READ response, no
// congestion notification, and no message that is still incomplete.
func TestOnlyAck(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(s *sender)
		want bool
	}{
		{"nothing", func(*sender) {}, false},
		{"acknowledgement", func(s *sender) { s.qp.resp.ack(4999) }, true},
		{"with a request", func(s *sender) { s.qp.resp.ack(4999); s.send(1) }, false},
		{"with a notification", func(s *sender) { s.qp.resp.ack(4999); s.qp.congestion.due = true }, false},
		{"within a message", func(s *sender) { s.qp.resp.ack(4999); s.qp.resp.phase = inSend }, false},
		{"NAK", func(s *sender) { s.qp.resp.nakSequence() }, false},
	} {
		s := newSender(t, RC, nil)
		if c.do(s); s.qp.OnlyAck() != c.want {
			t.Errorf("%s: %v, want %v", c.name, !c.want, c.want)
		}
	}
}
