package iwarp

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// A responder mirrors the depths of the request, and chooses the WRITE among the first messages.
func TestI_MPA_08_ResponderMirrors(t *testing.T) {
	const all = iwarp.RTRWrite | iwarp.RTRRead | iwarp.RTRSend
	_, out := Initiate(1, Options{IRD: 4, ORD: 6, PeerToPeer: true, RTR: all})
	s := Respond(1)
	if step, _ := s.OnBytes(out); step != Asked {
		t.Fatalf("step %d", step)
	}
	reply, _ := s.Accept(Options{IRD: 1, ORD: 16, MaxIRD: 128, RTR: all})
	f, _, err := iwarp.ParseStart(reply, true)
	if err != nil || f.ORD != 4 || f.IRD != 6 || !f.PeerToPeer || f.RTR != iwarp.RTRWrite {
		t.Errorf("the reply is %+v, %v", f, err)
	}
}
