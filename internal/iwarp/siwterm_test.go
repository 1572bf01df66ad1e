package iwarp

import (
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// TestI_TERM_04_TerminatesOfTheKernel feeds Terminates that siw of Linux 6.1 has sent: for a WRITE to an unknown STag,
// and for an atomic, which it does not know. The bytes of the second one mean something else in the order of RFC 5040,
// but only an initiator sends that, as its first message.
func TestI_TERM_04_TerminatesOfTheKernel(t *testing.T) {
	const head = "414700000000000000020000000100000000"
	for _, c := range []struct {
		op   transport.Op
		data string
		want iwarp.Code
		done string
	}{
		{transport.OpWrite, "110003000008c140deadbe000000000000001000", iwarp.TaggedSTag, "[1]"},
		{transport.OpFetchAdd, "20060000", iwarp.UnexpectedOpcode, fmt.Sprintf("[1:%d]", transport.RemInvReqErr)},
	} {
		s := newSide(t, Params{Initiator: true, IRD: 1, ORD: 1}, 100)
		s.post(1, c.op, func(w *transport.SendWQE) { w.RKey, w.RemoteAddr = 0xDEADBE00, 0x1000 }, s.sge(0, 8))
		s.drain()
		seg, err := hex.DecodeString(head + c.data)
		if err != nil {
			t.Fatal(err)
		}
		s.qp.Feed(iwarp.AppendFPDU(nil, seg, false))
		if m, _, received := s.qp.Terminate(); !received || m.Code != c.want || fmt.Sprint(list(s.done)) != c.done {
			t.Errorf("%s: %v, %04x, completions %v, want %04x, %s", c.data, received, uint16(m.Code), list(s.done),
				uint16(c.want), c.done)
		}
	}
	// A responder that gets it first gets what the RFC says.
	s := newSide(t, Params{IRD: 1, ORD: 1}, 100)
	seg, _ := hex.DecodeString(head + "20060000")
	s.qp.Feed(iwarp.AppendFPDU(nil, seg, false))
	if m, _, _ := s.qp.Terminate(); m.Code != iwarp.MPADepths {
		t.Errorf("the first message of an initiator: %v", m.Code)
	}
}
