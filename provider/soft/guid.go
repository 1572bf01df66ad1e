package soft

import (
	"crypto/sha256"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/verbena-rdma/verbena/verbs"
)

// guidOf is a device's node GUID: the EUI-64 of the interface's MAC address, as the kernel makes it (the
// universal/local bit flipped, ff:fe in the middle), or a made-up one.
func guidOf(s *spec) verbs.GUID {
	if s.addrs == nil {
		if ifi, err := net.InterfaceByName(s.iface); err == nil && len(ifi.HardwareAddr) == 6 {
			return eui64([6]byte(ifi.HardwareAddr))
		}
	}
	return pseudoGUID(s.name, s.addrs)
}

func eui64(mac [6]byte) verbs.GUID {
	return verbs.GUID{mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]}
}

// pseudoGUID makes a GUID from the names of host and device and its addresses. Its universal/local bit says that
// nobody assigned it.
func pseudoGUID(name string, addrs []netip.Addr) (g verbs.GUID) {
	host, _ := os.Hostname()
	sum := sha256.Sum256(fmt.Append(nil, "verbena\x00", host, "\x00", name, "\x00", addrs))
	copy(g[:], sum[:])
	g[0] = g[0] &^ 3 // in EUI-64 with the bit flipped: local, unicast
	return g
}

// defaultGID is the GID of index 0: the link-local prefix and the node GUID.
func defaultGID(g verbs.GUID) (gid verbs.GID) {
	gid[0], gid[1] = 0xfe, 0x80
	copy(gid[8:], g[:])
	return gid
}
