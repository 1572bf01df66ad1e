package engine

// PortCounters are the counters that each InfiniBand port has. A port without an InfiniBand link counts these only.
type PortCounters struct {
	XmitBytes, RcvBytes     uint64
	XmitPackets, RcvPackets uint64
	XmitDiscards            uint64
	RcvErrors               uint64
	RcvConstraintErrors     uint64
}

// Files returns what the kernel has in the files of a port in sysfs.
func (c *Counters) Files() []Counter {
	return Files(c.List(), &PortCounters{
		XmitBytes: c.Port.TxBytes, RcvBytes: c.Port.RxBytes, XmitPackets: c.Port.TxPackets, RcvPackets: c.Port.RxPackets,
		XmitDiscards: c.Port.TxDropped, RcvErrors: c.Port.RxICRCErrors + c.Port.RxMalformed,
		RcvConstraintErrors: c.QP.BadPKey,
	})
}

// Files returns the files of a port: all counters in hw_counters, and p in counters. The names are those of the files
// with their folder.
func Files(all []Counter, p *PortCounters) []Counter {
	var list []Counter
	for _, c := range all {
		list = append(list, Counter{"hw_counters/" + c.Name, c.Value})
	}
	const word = 4 // port_xmit_data and port_rcv_data are in units of 4 bytes
	for _, n := range []Counter{
		{"port_xmit_data", p.XmitBytes / word}, {"port_rcv_data", p.RcvBytes / word},
		{"port_xmit_packets", p.XmitPackets}, {"port_rcv_packets", p.RcvPackets},
		{"port_xmit_discards", p.XmitDiscards}, {"port_rcv_errors", p.RcvErrors},
		{"port_rcv_constraint_errors", p.RcvConstraintErrors}, {"port_xmit_constraint_errors", 0},
		{"symbol_error", 0}, {"link_error_recovery", 0}, {"link_downed", 0}, {"port_rcv_remote_physical_errors", 0},
		{"port_rcv_switch_relay_errors", 0}, {"local_link_integrity_errors", 0},
		{"excessive_buffer_overrun_errors", 0}, {"VL15_dropped", 0}, {"port_xmit_wait", 0},
	} {
		list = append(list, Counter{"counters/" + n.Name, n.Value})
	}
	return list
}
