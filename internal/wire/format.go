package wire

import "fmt"

// String describes the packet in one line, for traces and tests: opcode, QPN, PSN, then the other headers. Numbers
// are hexadecimal except lengths, MSN and timer codes. Bytes that are not a packet also get a line.
func (p Packet) String() string {
	if _, err := Parse(p); err != nil {
		return fmt.Sprintf(
			"%v: %d bytes: %x",
			err,
			len(p),
			[]byte(p[:min(len(p), 16)]),
		) // not p itself: Sprintf would call String again
	}
	f := p.Fields()
	s := fmt.Appendf(nil, "%v qp=%06x psn=%06x", f.Opcode, f.DestQPN, f.PSN)
	for _, flag := range []struct {
		set  bool
		name string
	}{{f.AckReq, " ackreq"}, {f.Solicited, " se"}, {f.MigReq, " mig"}, {f.FECN, " fecn"}, {f.BECN, " becn"}} {
		if flag.set {
			s = append(s, flag.name...)
		}
	}
	if f.PKey != DefaultPKey {
		s = fmt.Appendf(s, " pkey=%04x", f.PKey)
	}
	s = f.appendHeaders(s, f.Opcode.Info())
	if f.Opcode.Is(HasData) {
		s = fmt.Appendf(s, " data=%d", len(f.Payload))
	}
	return string(s)
}

// appendHeaders describes the extended headers.
func (f *Fields) appendHeaders(s []byte, in *Info) []byte {
	if in.DETH != 0 {
		s = fmt.Appendf(s, " qkey=%08x src=%06x", f.QKey, f.SrcQPN)
	}
	if in.XRCETH != 0 {
		s = fmt.Appendf(s, " srqn=%06x", f.SRQN)
	}
	if in.FETH != 0 {
		s = fmt.Appendf(s, " placement=%x selectivity=%x", f.Placement, f.Selectivity)
	}
	if in.RETH != 0 {
		s = fmt.Appendf(s, " va=%x rkey=%x len=%d", f.Addr, f.RKey, f.DMALen)
	}
	if in.AtomicETH != 0 {
		s = fmt.Appendf(s, " va=%x rkey=%x swapadd=%x compare=%x", f.Addr, f.RKey, f.SwapAdd, f.Compare)
	}
	if in.AETH != 0 {
		s = fmt.Appendf(s, " %s msn=%d", Syndrome(f.Syndrome), f.MSN)
	}
	if in.AtomicAck != 0 {
		s = fmt.Appendf(s, " orig=%x", f.Orig)
	}
	if in.Imm != 0 {
		s = fmt.Appendf(s, " imm=%08x", f.Imm)
	}
	if in.IETH != 0 {
		s = fmt.Appendf(s, " inv=%x", f.InvKey)
	}
	return s
}

// Syndrome is the first byte of an AETH, for printing.
type Syndrome uint8

// String returns the meaning: "ack", "rnr-nak timer=12", "nak psn-sequence".
func (s Syndrome) String() string {
	switch s {
	case SynAck:
		return "ack"
	case SynSeqErr:
		return "nak psn-sequence"
	case SynInvReq:
		return "nak invalid-request"
	case SynAccess:
		return "nak remote-access"
	case SynOpErr:
		return "nak remote-operational"
	case SynInvRD:
		return "nak invalid-rd"
	}
	switch s & synKindMask {
	case 0:
		return fmt.Sprintf("ack credit=%d", uint8(s))
	case SynRNR:
		return fmt.Sprintf("rnr-nak timer=%d", uint8(s&synDetailMask))
	default:
		return fmt.Sprintf("syndrome %#02x", uint8(s))
	}
}
