package iwarp

import "fmt"

// String describes the segment in one line, for traces and tests. Bytes that are not a segment also get a line.
// STags and offsets are hexadecimal, other numbers decimal.
func (s Segment) String() string {
	if len(s) < TaggedLen || len(s) < s.HeaderLen() {
		return fmt.Sprintf("short segment: %d bytes: %x", len(s), []byte(s[:min(len(s), 18)]))
	}
	if code, ok := Check(s, len(s)); !ok {
		return fmt.Sprintf("bad segment (%v): %d bytes: %x", code, len(s), []byte(s[:min(len(s), 18)]))
	}
	in, b := s.Opcode().Info(), []byte(s.Opcode().String())
	if s.Tagged() {
		b = fmt.Appendf(b, " stag=%08x to=%x", s.STag(), s.TO())
	} else {
		b = fmt.Appendf(b, " msn=%d mo=%d", s.MSN(), s.MO())
	}
	if in.Inv {
		b = fmt.Appendf(b, " inv=%08x", s.InvSTag())
	}
	if !s.Last() {
		b = append(b, " more"...)
	}
	return string(s.appendMessage(b))
}

// appendMessage describes the payload.
func (s Segment) appendMessage(b []byte) []byte {
	p := s.Payload()
	if n := s.Opcode().Info().Len; n != 0 && n != len(p) {
		return fmt.Appendf(b, " data=%d instead of %d", len(p), n)
	}
	switch s.Opcode() {
	case ReadRequest:
		r := ParseRead(p)
		return fmt.Appendf(b, " sink=%08x:%x source=%08x:%x size=%d", r.SinkSTag, r.SinkTO, r.SrcSTag, r.SrcTO, r.Size)
	case AtomicRequest:
		a := ParseAtomic(p)
		return fmt.Appendf(b, " op=%d id=%d stag=%08x to=%x data=%x mask=%x compare=%x mask=%x",
			a.Op, a.ID, a.STag, a.TO, a.Data, a.Mask, a.Compare, a.CompareMask)
	case AtomicResponse:
		id, was := ParseAtomicResponse(p)
		return fmt.Appendf(b, " id=%d was=%x", id, was)
	case Immediate, ImmediateSE:
		imm, n := ParseImmediate(p)
		return fmt.Appendf(b, " imm=%08x length=%d", imm, n)
	case TerminateOp:
		t, err := ParseTerminate(p)
		if err != nil {
			return fmt.Appendf(b, " %v", err)
		}
		return fmt.Appendf(b, " code=%04x (%v)", uint16(t.Code), t.Code)
	}
	return fmt.Appendf(b, " data=%d", len(p))
}
