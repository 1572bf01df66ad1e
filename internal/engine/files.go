package engine

// Files returns what the kernel has in the files of a port in sysfs: all counters in hw_counters, and those that each
// InfiniBand port has in counters, of which a port without an InfiniBand link counts some only. The names are those of
// the files with their folder.
func (c *Counters) Files() []Counter {
	list := c.List()
	for i := range list {
		list[i].Name = "hw_counters/" + list[i].Name
	}
	const word = 4 // port_xmit_data and port_rcv_data are in units of 4 bytes
	for _, n := range []Counter{
		{"port_xmit_data", c.Port.TxBytes / word}, {"port_rcv_data", c.Port.RxBytes / word},
		{"port_xmit_packets", c.Port.TxPackets}, {"port_rcv_packets", c.Port.RxPackets},
		{"port_xmit_discards", c.Port.TxDropped},
		{"port_rcv_errors", c.Port.RxICRCErrors + c.Port.RxMalformed},
		{"port_rcv_constraint_errors", c.QP.BadPKey}, {"port_xmit_constraint_errors", 0},
		{"symbol_error", 0}, {"link_error_recovery", 0}, {"link_downed", 0}, {"port_rcv_remote_physical_errors", 0},
		{"port_rcv_switch_relay_errors", 0}, {"local_link_integrity_errors", 0},
		{"excessive_buffer_overrun_errors", 0}, {"VL15_dropped", 0}, {"port_xmit_wait", 0},
	} {
		list = append(list, Counter{"counters/" + n.Name, n.Value})
	}
	return list
}
