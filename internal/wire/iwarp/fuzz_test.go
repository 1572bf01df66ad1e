package iwarp_test

import (
	"bytes"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire/captures"
	"github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// FuzzStart decodes and rebuilds each frame that ParseStart accepts. Only reserved bits may be lost.
func FuzzStart(f *testing.F) {
	for _, name := range captures.IWARPNames() {
		client, server := captures.ReadIWARP(f, name)
		f.Add(client[:min(64, len(client))], false)
		f.Add(server[:min(64, len(server))], true)
	}
	f.Fuzz(func(t *testing.T, b []byte, reply bool) {
		s, n, err := iwarp.ParseStart(b, reply)
		if err != nil {
			return
		}
		again, m, err := iwarp.ParseStart(s.Append(nil), reply)
		if err != nil || m != n || again.Rev != s.Rev || again.IRD != s.IRD || again.ORD != s.ORD ||
			again.RTR != s.RTR || !bytes.Equal(again.Private, s.Private) || again.Reject != s.Reject {
			t.Fatalf("%+v is built again as %+v, %v", s, again, err)
		}
	})
}

// FuzzSegment decodes and rebuilds each FPDU whose header Check accepts, and formats every input.
func FuzzSegment(f *testing.F) {
	eachStream(f, func(_ string, _ iwarp.Start, all []iwarp.FPDU) {
		for _, p := range all[:2] {
			f.Add([]byte(p))
		}
	})
	term := unhex(f, "41 47 00000000 00000002 00000001 00000000 1101c00012340001020304050607080910")
	f.Add(iwarp.AppendFPDU(nil, term, true))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := iwarp.ParseFPDU(b)
		if err != nil {
			return
		}
		s := iwarp.Segment(p.ULPDU())
		text := s.String()
		if len(s) < s.HeaderLen() {
			return
		}
		if _, ok := iwarp.Check(s, len(s)); !ok {
			return
		}
		again := iwarp.Segment(rebuild(s))
		if again.String() != text || !bytes.Equal(again, rebuild(again)) {
			t.Fatalf("%s is built again as %s", text, again)
		}
		if s.Opcode() == iwarp.TerminateOp {
			if m, err := iwarp.ParseTerminate(s.Payload()); err == nil && m.Code.Known() {
				if n, err := iwarp.ParseTerminate(m.Append(nil)); err != nil || n.Code != m.Code {
					t.Fatalf("%+v is built again as %+v, %v", m, n, err)
				}
			}
		}
	})
}
