package verbs

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// GID is a global identifier in network byte order, an IPv6 address (union ibv_gid). On RoCEv2 it is the IP address
// of a port; IPv4 addresses are mapped: ::ffff:a.b.c.d.
type GID [16]byte

// GIDFromAddr returns the GID of an IP address. An invalid address gives the zero GID; a zone is dropped.
func GIDFromAddr(a netip.Addr) GID {
	if !a.IsValid() {
		return GID{}
	}
	return a.As16()
}

// ParseGID parses a GID in the form of String, or in any other form of an IP address. EINVAL for other text.
func ParseGID(s string) (GID, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return GID{}, newError("parse_gid", "", EINVAL, "%q: must be an IPv6 address or ::ffff:a.b.c.d", s)
	}
	return GIDFromAddr(a), nil
}

// Addr returns the IP address: IPv4 for a mapped one, else IPv6.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// String returns the address in the form of inet_ntop: "::ffff:192.0.2.1", "fe80::1".
func (g GID) String() string { return netip.AddrFrom16(g).String() }

// Hex returns the GID as eight groups of four digits, as ibv_devinfo prints it.
func (g GID) Hex() string {
	var b strings.Builder
	for i := 0; i < 16; i += 2 {
		if i > 0 {
			b.WriteByte(':')
		}
		fmt.Fprintf(&b, "%02x%02x", g[i], g[i+1])
	}
	return b.String()
}

// IsZero reports whether the GID is the zero GID.
func (g GID) IsZero() bool { return g == GID{} }

// IsMulticast reports whether the GID is a multicast group: ff00::/8, or a mapped IPv4 group, ::ffff:224.0.0.0/100.
func (g GID) IsMulticast() bool { return g[0] == 0xff || g.Addr().Is4() && g.Addr().IsMulticast() }

// SubnetPrefix returns the upper 64 bits in host byte order (global.subnet_prefix).
func (g GID) SubnetPrefix() uint64 { return binary.BigEndian.Uint64(g[:8]) }

// InterfaceID returns the lower 64 bits in host byte order (global.interface_id).
func (g GID) InterfaceID() uint64 { return binary.BigEndian.Uint64(g[8:]) }

// MarshalText returns String.
func (g GID) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText parses as ParseGID does.
func (g *GID) UnmarshalText(b []byte) error {
	v, err := ParseGID(string(b))
	if err == nil {
		*g = v
	}
	return err
}

// GUID is a globally unique identifier, EUI-64, in network byte order (__be64 of ibv_get_device_guid).
type GUID [8]byte

// Uint64 returns the GUID in host byte order.
func (g GUID) Uint64() uint64 { return binary.BigEndian.Uint64(g[:]) }

// String returns four groups of four digits, as ibv_devinfo prints it: "0200:00ff:fe00:0001".
func (g GUID) String() string {
	v := g.Uint64()
	return fmt.Sprintf("%04x:%04x:%04x:%04x", v>>48, v>>32&0xffff, v>>16&0xffff, v&0xffff)
}

// Compact returns 16 digits, as ibv_devices prints it.
func (g GUID) Compact() string { return fmt.Sprintf("%016x", g.Uint64()) }

// ParseGUID parses a GUID in the form of String or Compact. EINVAL for other text.
func ParseGUID(s string) (GUID, error) {
	var g GUID
	digits := strings.ReplaceAll(s, ":", "")
	v, err := strconv.ParseUint(digits, 16, 64)
	if err != nil || len(digits) != 16 {
		return g, newError("parse_guid", "", EINVAL, "%q: must be 16 hexadecimal digits, with or without colons", s)
	}
	binary.BigEndian.PutUint64(g[:], v)
	return g, nil
}

// GIDEntry is an entry of a port's GID table (struct ibv_gid_entry). An empty entry has the zero GID.
type GIDEntry struct {
	GID    GID
	Index  int
	Port   uint8
	Type   GIDType
	NetDev string // the network interface; empty if there is none
}

// GIDChoice is the GID table entry for traffic to a peer, with the reason for the choice.
type GIDChoice struct {
	Index  int
	GID    GID
	Reason string
}
