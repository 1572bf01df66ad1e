package errqueue

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// control is a control message, with its padding.
func control(level, kind int32, data ...byte) []byte {
	b := make([]byte, unix.CmsgSpace(len(data)))
	h := unix.Cmsghdr{Level: level, Type: kind}
	h.SetLen(unix.CmsgLen(len(data)))
	copy(b, unsafe.Slice((*byte)(unsafe.Pointer(&h)), unix.SizeofCmsghdr))
	copy(b[unix.CmsgLen(0):], data)
	return b
}

// reported is the data of IP_RECVERR: struct sock_extended_err, and the address of the host that reported the error.
func reported(a string) []byte {
	b := slices.Repeat([]byte{0xEE}, 16)
	addr := netip.MustParseAddr(a)
	if addr.Is4() {
		return slices.Concat(b, binary.NativeEndian.AppendUint16(nil, unix.AF_INET), []byte{7, 7}, addr.AsSlice())
	}
	return slices.Concat(b, binary.NativeEndian.AppendUint16(nil, unix.AF_INET6), []byte{7, 7, 8, 8, 8, 8}, addr.AsSlice())
}

func TestParse(t *testing.T) {
	const ip4, ip6 = unix.IPPROTO_IP, unix.IPPROTO_IPV6
	v4, v6 := reported("192.0.2.1"), reported("fd00::1")
	ttl := control(ip4, unix.IP_TTL, slices.Repeat([]byte{2}, 48)...)
	for _, c := range []struct {
		name string
		oob  []byte
		want string
	}{
		{"IPv4", control(ip4, unix.IP_RECVERR, v4...), "192.0.2.1"},
		{"IPv6", control(ip6, unix.IPV6_RECVERR, v6...), "fd00::1"},
		{"IPv4 in IPv6", control(ip6, unix.IPV6_RECVERR, reported("::ffff:192.0.2.2")...), "192.0.2.2"},
		{"behind another message", slices.Concat(ttl, control(ip4, unix.IP_RECVERR, v4...)), "192.0.2.1"},
		{"behind a short message", slices.Concat(control(ip4, unix.IP_RECVERR, v4[:23]...),
			control(ip4, unix.IP_RECVERR, v4...)), "192.0.2.1"},
		{"short", control(ip4, unix.IP_RECVERR, v4[:23]...), ""},
		{"short of IPv6", control(ip6, unix.IPV6_RECVERR, v6[:39]...), ""},
		{"another type", control(ip4, unix.IP_TTL, v4...), ""},
		{"another type of IPv6", control(ip6, unix.IPV6_HOPLIMIT, v6...), ""},
		{"another level", control(unix.SOL_SOCKET, unix.IP_RECVERR, v4...), ""},
		{"another level of IPv6", control(unix.SOL_SOCKET, unix.IPV6_RECVERR, v6...), ""},
		{"another family", control(ip4, unix.IP_RECVERR, make([]byte, 40)...), ""},
		{"nothing", nil, ""},
		{"a damaged message", []byte{1, 2, 3}, ""},
	} {
		got := parse(c.oob).From
		if want, _ := netip.ParseAddr(c.want); got != want {
			t.Errorf("%s: %v, want %v", c.name, got, want)
		}
	}
}
