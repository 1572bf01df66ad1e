package cmmsg

import (
	"bytes"
	"fmt"
	"net/netip"
)

// String describes the message in one line, for traces and tests: kind, IDs, then the fields. Communication IDs,
// QPNs, PSNs and GUIDs are hexadecimal; private data is without its trailing zeros. Bytes that are not a message
// also get a line.
func (m Msg) String() string {
	if _, err := Parse(m); err != nil {
		return fmt.Sprintf("%v: %d bytes: %x", err, len(m), []byte(m[:min(len(m), 24)]))
	}
	d := m.Data()
	s := fmt.Appendf(nil, "%v", m.Kind())
	private := m.Private()
	switch m.Kind() {
	case KindREQ:
		s = appendREQ(s, d)
		s, private = appendIPs(s, private)
	case KindREP:
		s = appendREP(s, d)
	case KindMRA:
		r := MRA(d)
		s = fmt.Appendf(s, " id=%08x to=%08x about=%v timeout=%d", r.LocalID(), r.RemoteID(), r.About(), r.ServiceTimeout())
	case KindREJ:
		r := REJ(d)
		s = fmt.Appendf(s, " id=%08x to=%08x about=%v reason=%v", r.LocalID(), r.RemoteID(), r.About(), r.Reason())
		s = appendBytes(s, "ari", r.ARI())
	case KindRTU, KindDREP:
		s = fmt.Appendf(s, " id=%08x to=%08x", m.LocalID(), m.RemoteID())
	case KindDREQ:
		s = fmt.Appendf(s, " id=%08x to=%08x qp=%06x", m.LocalID(), m.RemoteID(), DREQ(d).RemoteQPN())
	case KindSIDRREQ:
		r := SIDRREQ(d)
		s = fmt.Appendf(s, " id=%08x service=%v pkey=%04x", r.RequestID(), r.ServiceID(), r.PKey())
		s, private = appendIPs(s, private)
	case KindSIDRREP:
		r := SIDRREP(d)
		s = fmt.Appendf(
			s,
			" id=%08x status=%v service=%v qp=%06x qkey=%08x",
			r.RequestID(),
			r.Status(),
			r.ServiceID(),
			r.QPN(),
			r.QKey(),
		)
		s = appendBytes(s, "info", r.Info())
	case KindLAP:
		r := LAP(d)
		s = fmt.Appendf(s, " id=%08x to=%08x qp=%06x timeout=%d", r.LocalID(), r.RemoteID(), r.RemoteQPN(), r.RemoteTimeout())
		s = r.Path().append(s)
	case KindAPR:
		r := APR(d)
		s = fmt.Appendf(s, " id=%08x to=%08x status=%v", r.LocalID(), r.RemoteID(), r.Status())
		s = appendBytes(s, "info", r.Info())
	}
	if e := m.ECE(); e != (ECE{}) {
		s = fmt.Appendf(s, " ece=%06x/%08x", e.Vendor, e.Options)
	}
	return string(appendBytes(s, "private", bytes.TrimRight(private, "\x00")))
}

func appendREQ(s []byte, r REQ) []byte {
	s = fmt.Appendf(
		s,
		" id=%08x service=%v guid=%016x %v qp=%06x psn=%06x resources=%d depth=%d retry=%d rnr=%d mtu=%d"+
			" timeouts=%d/%d retries=%d",
		r.LocalID(),
		r.ServiceID(),
		r.LocalGUID(),
		r.Transport(),
		r.LocalQPN(),
		r.StartPSN(),
		r.ResponderResources(),
		r.InitiatorDepth(),
		r.RetryCount(),
		r.RNRRetry(),
		r.MTU(),
		r.RemoteTimeout(),
		r.LocalTimeout(),
		r.MaxRetries(),
	)
	s = appendFlags(s, r.FlowControl(), r.SRQ())
	if r.PKey() != 0xFFFF {
		s = fmt.Appendf(s, " pkey=%04x", r.PKey())
	}
	s = r.Primary().Fields().append(s)
	if r.Alternate().LocalLID() != 0 {
		s = append(s, " alternate"...)
		s = r.Alternate().Fields().append(s)
	}
	return s
}

func appendREP(s []byte, r REP) []byte {
	what, qpn := "qp", r.LocalQPN()
	if ee := r.LocalEECN(); ee != 0 { // XRC
		what, qpn = "eec", ee
	}
	s = fmt.Appendf(
		s,
		" id=%08x to=%08x guid=%016x %s=%06x psn=%06x resources=%d depth=%d rnr=%d delay=%d",
		r.LocalID(),
		r.RemoteID(),
		r.LocalGUID(),
		what,
		qpn,
		r.StartPSN(),
		r.ResponderResources(),
		r.InitiatorDepth(),
		r.RNRRetry(),
		r.TargetAckDelay(),
	)
	s = appendFlags(s, r.FlowControl(), r.SRQ())
	if r.Failover() != 0 {
		s = fmt.Appendf(s, " failover=%d", r.Failover())
	}
	return s
}

func appendFlags(s []byte, flow, srq bool) []byte {
	if flow {
		s = append(s, " flow"...)
	}
	if srq {
		s = append(s, " srq"...)
	}
	return s
}

func (p PathFields) append(s []byte) []byte {
	s = fmt.Appendf(
		s,
		" %v>%v label=%05x hops=%d ack=%d",
		IP(p.LocalGID),
		IP(p.RemoteGID),
		p.FlowLabel,
		p.HopLimit,
		p.AckTimeout,
	)
	if p.TClass != 0 {
		s = fmt.Appendf(s, " tclass=%02x", p.TClass)
	}
	if p.SL != 0 {
		s = fmt.Appendf(s, " sl=%d", p.SL)
	}
	return s
}

// appendIPs describes the IP header before private data, if there is one, and returns the rest.
func appendIPs(s, private []byte) ([]byte, []byte) {
	h := IPHeader(private[:IPHeaderLen])
	if h.Version() != 0 || !h.Src().IsValid() {
		return s, private
	}
	return fmt.Appendf(s, " from=%v at=%v", netip.AddrPortFrom(h.Src(), h.SrcPort()), h.Dst()), private[IPHeaderLen:]
}

func appendBytes(s []byte, name string, b []byte) []byte {
	if len(b) == 0 {
		return s
	}
	return fmt.Appendf(s, " %s=%x", name, b)
}
