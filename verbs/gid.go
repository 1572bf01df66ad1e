package verbs

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// GID is a global identifier in network order, an IPv6 address (union ibv_gid). On
// RoCEv2 it is the IP address of a port: IPv4 addresses are mapped, ::ffff:a.b.c.d.
type GID [16]byte

// GIDFromAddr is the GID of an IP address. An invalid address gives the zero GID; a zone is dropped.
func GIDFromAddr(a netip.Addr) GID {
	if !a.IsValid() {
		return GID{}
	}
	return a.As16()
}

// ParseGID reads a GID as String writes it, or any other form of an IP address.
func ParseGID(s string) (GID, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return GID{}, newError("parse_gid", "", EINVAL, "%q is not a GID; one is an IPv6 address, or ::ffff:a.b.c.d", s)
	}
	return GIDFromAddr(a), nil
}

// Addr is the IP address: IPv4 for a mapped one, else IPv6.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// String is the address in the form of inet_ntop: "::ffff:192.0.2.1", "fe80::1".
func (g GID) String() string { return netip.AddrFrom16(g).String() }

// Hex is the GID in eight groups of four digits, as ibv_devinfo prints it.
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

// IsZero says that the GID is empty.
func (g GID) IsZero() bool { return g == GID{} }

// IsMulticast says that the GID names a group: ff00::/8, or an IPv4 group mapped as RoCEv2 does it,
// ::ffff:224.0.0.0/100.
func (g GID) IsMulticast() bool { return g[0] == 0xff || g.Addr().Is4() && g.Addr().IsMulticast() }

// SubnetPrefix is the upper half, in host order (global.subnet_prefix).
func (g GID) SubnetPrefix() uint64 { return binary.BigEndian.Uint64(g[:8]) }

// InterfaceID is the lower half, in host order (global.interface_id).
func (g GID) InterfaceID() uint64 { return binary.BigEndian.Uint64(g[8:]) }

// MarshalText is String.
func (g GID) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText is ParseGID.
func (g *GID) UnmarshalText(b []byte) error {
	v, err := ParseGID(string(b))
	if err == nil {
		*g = v
	}
	return err
}

// GUID is a globally unique identifier, EUI-64, in network order (__be64 of ibv_get_device_guid).
type GUID [8]byte

// Uint64 is the GUID in host order.
func (g GUID) Uint64() uint64 { return binary.BigEndian.Uint64(g[:]) }

// String is four groups of four digits, as ibv_devinfo prints it: "0200:00ff:fe00:0001".
func (g GUID) String() string {
	v := g.Uint64()
	return fmt.Sprintf("%04x:%04x:%04x:%04x", v>>48, v>>32&0xffff, v>>16&0xffff, v&0xffff)
}

// Compact is 16 digits, as ibv_devices prints it.
func (g GUID) Compact() string { return fmt.Sprintf("%016x", g.Uint64()) }

// ParseGUID reads a GUID as String or Compact writes it.
func ParseGUID(s string) (GUID, error) {
	var g GUID
	digits := strings.ReplaceAll(s, ":", "")
	v, err := strconv.ParseUint(digits, 16, 64)
	if err != nil || len(digits) != 16 {
		return g, newError("parse_guid", "", EINVAL, "%q is not a GUID; one is 16 hexadecimal digits", s)
	}
	binary.BigEndian.PutUint64(g[:], v)
	return g, nil
}

// GIDEntry is an entry of a port's GID table (struct ibv_gid_entry). An empty one has the zero GID.
type GIDEntry struct {
	GID    GID
	Index  int
	Port   uint8
	Type   GIDType
	NetDev string // the network interface; empty if there is none
}

// GIDChoice is the GID table entry that suits a peer, and why.
type GIDChoice struct {
	Index  int
	GID    GID
	Reason string
}
