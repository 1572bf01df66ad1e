package wiretest

import "hash/crc32"

// ICRC computes the invariant CRC by its definition: it copies the headers and the packet, BTH to pad, overwrites
// the masked fields and computes one CRC over all. It is slow, and shares no code with wire.Flow.
func ICRC(ip, udp, pkt []byte) uint32 {
	all := []byte{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}
	add := func(part []byte, masked ...int) {
		start := len(all)
		all = append(all, part...)
		for _, i := range masked {
			all[start+i] = 0xFF
		}
	}
	if ip[0]>>4 == 4 {
		add(ip, 1, 8, 10, 11) // type of service, time to live, checksum
	} else {
		add(ip, 1, 2, 3, 7)      // traffic class, flow label, hop limit; but the
		all[len(all)-40] |= 0x0F // class begins in the lower half of byte 0
	}
	add(udp, 6, 7) // checksum
	add(pkt, 4)    // FECN, BECN, reserved
	return crc32.ChecksumIEEE(all)
}
