package lookup

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The messages of rtnetlink, as in linux/rtnetlink.h: numbers are in the machine's byte order, addresses in that of
// the network.

var ne = binary.NativeEndian

func TestRequest(t *testing.T) {
	want := ne.AppendUint32(nil, 16+3)
	want = ne.AppendUint16(want, unix.RTM_GETROUTE)
	want = ne.AppendUint16(want, unix.NLM_F_REQUEST)
	want = append(want, 1, 0, 0, 0, 0, 0, 0, 0, 'a', 'b', 'c') // number 1, to the kernel
	if got := request(unix.RTM_GETROUTE, []byte("abc")); !bytes.Equal(got, want) {
		t.Errorf("% x, want % x", got, want)
	}
}

// message is a message of the kernel.
func message(kind uint16, payload ...byte) []byte {
	m := make([]byte, unix.SizeofNlMsghdr, unix.SizeofNlMsghdr+len(payload))
	ne.PutUint16(m[4:], kind)
	return append(m, payload...)
}

// failure is the payload of NLMSG_ERROR.
func failure(code int32) []byte { return ne.AppendUint32(nil, uint32(code)) }

func TestAnswer(t *testing.T) {
	for _, c := range []struct {
		name    string
		msg     []byte
		payload string
		err     error
	}{
		{"whole", message(unix.RTM_NEWROUTE, 'o', 'k'), "ok", nil},
		{"empty", message(unix.RTM_NEWROUTE), "", nil},
		{"of another kind", message(unix.RTM_NEWNEIGH, 'o', 'k'), "", errNoAnswer},
		{"the request", message(unix.RTM_GETROUTE), "", errNoAnswer},
		{"short", message(unix.RTM_NEWROUTE)[:unix.SizeofNlMsghdr-1], "", errNoAnswer},
		{"no bytes", nil, "", errNoAnswer},
		{"an error", message(unix.NLMSG_ERROR, failure(-int32(unix.ENETUNREACH))...), "", unix.ENETUNREACH},
		{"EPERM", message(unix.NLMSG_ERROR, failure(-1)...), "", unix.EPERM},
		{"an error with more", message(unix.NLMSG_ERROR, append(failure(-int32(unix.ENOENT)), 1, 2)...), "", unix.ENOENT},
		{"no error", message(unix.NLMSG_ERROR, failure(0)...), "", errNoAnswer},
		{"a positive error", message(unix.NLMSG_ERROR, failure(5)...), "", errNoAnswer},
		{"a short error", message(unix.NLMSG_ERROR, 1, 2, 3), "", errNoAnswer},
	} {
		got, err := answer(unix.RTM_GETROUTE, c.msg)
		if string(got) != c.payload || !errors.Is(err, c.err) {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
}

// attr is an attribute, with its padding.
func attr(kind uint16, value ...byte) []byte {
	b := appendAttr(nil, kind, value)
	return append(b, make([]byte, -len(b)&3)...)
}

func TestRouteRequest(t *testing.T) {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Skip(err)
	}
	rtmsg := func(family, to, from byte) []byte {
		return append([]byte{family, to, from}, make([]byte, unix.SizeofRtMsg-3)...)
	}
	v4, v6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("fe80::2")
	oif := attr(unix.RTA_OIF, ne.AppendUint32(nil, uint32(lo.Index))...)
	for _, c := range []struct {
		src, dst netip.Addr
		want     [][]byte
	}{
		{netip.Addr{}, v4, [][]byte{rtmsg(unix.AF_INET, 32, 0), attr(unix.RTA_DST, 192, 0, 2, 1)}},
		{netip.IPv4Unspecified(), v4, [][]byte{rtmsg(unix.AF_INET, 32, 0), attr(unix.RTA_DST, 192, 0, 2, 1)}},
		{v4.Next(), v4, [][]byte{rtmsg(unix.AF_INET, 32, 32), attr(unix.RTA_DST, 192, 0, 2, 1),
			attr(unix.RTA_SRC, 192, 0, 2, 2)}},
		{netip.Addr{}, v6.WithZone("lo"), [][]byte{rtmsg(unix.AF_INET6, 128, 0), attr(unix.RTA_DST, v6.AsSlice()...), oif}},
		{netip.Addr{}, v6.WithZone("none0"), [][]byte{rtmsg(unix.AF_INET6, 128, 0), attr(unix.RTA_DST, v6.AsSlice()...)}},
		{v6, v6, [][]byte{rtmsg(unix.AF_INET6, 128, 128), attr(unix.RTA_DST, v6.AsSlice()...),
			attr(unix.RTA_SRC, v6.AsSlice()...)}},
	} {
		if got := routeRequest(c.src, c.dst); !bytes.Equal(got, slices.Concat(c.want...)) {
			t.Errorf("%v to %v: % x, want % x", c.src, c.dst, got, slices.Concat(c.want...))
		}
	}
}

func TestParseRoute(t *testing.T) {
	dst := netip.MustParseAddr("192.0.2.1")
	oif := attr(unix.RTA_OIF, ne.AppendUint32(nil, 7)...)
	via := func(family uint16, a string) []byte {
		return attr(unix.RTA_VIA, append(ne.AppendUint16(nil, family), netip.MustParseAddr(a).AsSlice()...)...)
	}
	hop := func(a string) nextHop { return nextHop{netip.MustParseAddr(a), 7} }
	for _, c := range []struct {
		name  string
		kind  byte
		attrs [][]byte
		want  nextHop
		err   error
	}{
		{"on the link", unix.RTN_UNICAST, [][]byte{attr(unix.RTA_DST, 192, 0, 2, 1), oif}, hop("192.0.2.1"), nil},
		{"by a router", unix.RTN_UNICAST, [][]byte{attr(unix.RTA_GATEWAY, 192, 0, 2, 9), oif}, hop("192.0.2.9"), nil},
		{"by a router of IPv6", unix.RTN_UNICAST, [][]byte{oif, via(unix.AF_INET6, "fe80::9")}, hop("fe80::9"), nil},
		{"by a router of 3 bytes", unix.RTN_UNICAST, [][]byte{attr(unix.RTA_GATEWAY, 1, 2, 3), oif}, hop("192.0.2.1"), nil},
		{"an empty RTA_VIA", unix.RTN_UNICAST, [][]byte{attr(unix.RTA_VIA, 10, 0), oif}, hop("192.0.2.1"), nil},
		{"a tiny RTA_VIA", unix.RTN_UNICAST, [][]byte{attr(unix.RTA_VIA, 1), oif, attr(unix.RTA_VIA)}, hop("192.0.2.1"), nil},
		{"a strange RTA_VIA", unix.RTN_UNICAST, [][]byte{attr(unix.RTA_VIA, 10, 0, 1, 2, 3), oif}, hop("192.0.2.1"), nil},
		{"a short RTA_OIF", unix.RTN_UNICAST, [][]byte{attr(unix.RTA_OIF, 7, 0, 0)}, nextHop{addr: dst}, nil},
		{"a long other one", unix.RTN_UNICAST, [][]byte{attr(unix.RTA_PRIORITY, 9, 0, 0, 0), oif}, hop("192.0.2.1"), nil},
		{"local", unix.RTN_LOCAL, [][]byte{oif}, nextHop{}, nil},
		{"broadcast", unix.RTN_BROADCAST, [][]byte{oif}, nextHop{}, nil},
		{"blackhole", unix.RTN_BLACKHOLE, nil, nextHop{}, syscall.EINVAL},
		{"unreachable", unix.RTN_UNREACHABLE, nil, nextHop{}, syscall.EHOSTUNREACH},
		{"prohibit", unix.RTN_PROHIBIT, nil, nextHop{}, syscall.EACCES},
	} {
		b := make([]byte, unix.SizeofRtMsg)
		b[7] = c.kind
		got, err := parseRoute(dst, append(b, slices.Concat(c.attrs...)...))
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %v, %v; want %v", c.name, got, err, c.want)
		}
	}
	for n := range unix.SizeofRtMsg {
		b := bytes.Repeat([]byte{unix.RTN_BLACKHOLE}, n)
		if got, err := parseRoute(dst, b); got != (nextHop{}) || err != nil {
			t.Errorf("%d bytes: %v, %v", n, got, err)
		}
	}
}

// What forbids to ask says nothing of the route.
func TestRouteError(t *testing.T) {
	for err, want := range map[error]error{
		unix.ENETUNREACH: unix.ENETUNREACH, unix.EHOSTUNREACH: unix.EHOSTUNREACH, unix.EPERM: nil, unix.EOPNOTSUPP: nil,
		errNoAnswer: nil,
	} {
		if got := routeError(err); !errors.Is(got, want) {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// Attributes with impossible lengths end the list.
func TestAttrs(t *testing.T) {
	type pair struct {
		kind  uint16
		value string
	}
	raw := func(n, kind uint16, value ...byte) []byte {
		return append(ne.AppendUint16(ne.AppendUint16(nil, n), kind), value...)
	}
	for _, c := range []struct {
		name string
		b    []byte
		want []pair
	}{
		{"two", append(attr(1, 'a', 'b', 'c', 'd', 'e'), attr(2, 'f')...), []pair{{1, "abcde"}, {2, "f"}}},
		{"an empty one", append(attr(3), attr(4, 'x')...), []pair{{3, ""}, {4, "x"}}},
		{"without padding", append(attr(1, 'a', 'b', 'c', 'd'), raw(5, 2, 'e')...), []pair{{1, "abcd"}, {2, "e"}}},
		{"a length of 3", append(raw(3, 1), attr(2, 'x')...), nil},
		{"an empty one at the end", append(attr(1, 'a'), raw(4, 9)...), []pair{{1, "a"}, {9, ""}}},
		{"a length of 4", append(raw(4, 1), attr(2, 'x')...), []pair{{1, ""}, {2, "x"}}},
		{"longer than the message", raw(9, 1, 'a', 'b', 'c', 'd'), nil},
		{"as long as the message", raw(8, 1, 'a', 'b', 'c', 'd'), []pair{{1, "abcd"}}},
		{"three bytes", []byte{4, 0, 1}, nil},
		{"nothing", nil, nil},
	} {
		var got []pair
		for kind, value := range attrs(c.b) {
			got = append(got, pair{kind, string(value)})
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	for range attrs(append(attr(1), attr(2)...)) {
		break // the loop can end before the list
	}
}

func TestKnowledge(t *testing.T) {
	for _, c := range []struct {
		state uint16
		err   error
		want  Knowledge
	}{
		{unix.NUD_REACHABLE, nil, Known}, {unix.NUD_STALE, nil, Known}, {unix.NUD_PERMANENT, nil, Known},
		{unix.NUD_NOARP, nil, Known}, {unix.NUD_DELAY, nil, Known}, {unix.NUD_PROBE, nil, Known},
		{unix.NUD_INCOMPLETE, nil, Unknown}, {unix.NUD_NONE, nil, Unknown}, {unix.NUD_FAILED, nil, Unanswered},
		{unix.NUD_FAILED, unix.ENOENT, Unknown}, {unix.NUD_FAILED, unix.EOPNOTSUPP, Known}, {0, errNoAnswer, Known},
	} {
		if got := knowledge(c.state, c.err); got != c.want {
			t.Errorf("state %#x, %v: %v, want %v", c.state, c.err, got, c.want)
		}
	}
	b := make([]byte, unix.SizeofNdMsg)
	ne.PutUint16(b[8:], unix.NUD_STALE)
	if got, err := parseState(b); got != unix.NUD_STALE || err != nil {
		t.Errorf("%#x, %v", got, err)
	}
	if got, err := parseState(b[:len(b)-1]); got != 0 || !errors.Is(err, errNoAnswer) {
		t.Errorf("a short answer: %#x, %v", got, err)
	}
}

// An interface has no neighbours if it is the loopback or does no ARP. An answer that does not tell counts too.
func TestPlain(t *testing.T) {
	for flags, want := range map[uint32]bool{
		unix.IFF_UP: false, unix.IFF_UP | unix.IFF_NOARP: true, unix.IFF_LOOPBACK: true, 0: false,
	} {
		b := make([]byte, unix.SizeofIfInfomsg)
		ne.PutUint32(b[8:], flags)
		if got := plain(b); got != want {
			t.Errorf("flags %#x: %v", flags, got)
		}
		if !plain(b[:len(b)-1]) {
			t.Error("a short answer")
		}
	}
}

// A zone that does not exist has no address.
func TestSockaddr(t *testing.T) {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Skip(err)
	}
	for a, want := range map[string]unix.Sockaddr{
		"192.0.2.1":        &unix.SockaddrInet4{Addr: [4]byte{192, 0, 2, 1}, Port: 5},
		"::ffff:192.0.2.1": &unix.SockaddrInet4{Addr: [4]byte{192, 0, 2, 1}, Port: 5},
		"fd00::1":          &unix.SockaddrInet6{Addr: [16]byte{0xFD, 15: 1}, Port: 5},
		"fe80::1%lo":       &unix.SockaddrInet6{Addr: [16]byte{0xFE, 0x80, 15: 1}, Port: 5, ZoneId: uint32(lo.Index)},
		"fe80::1%7":        &unix.SockaddrInet6{Addr: [16]byte{0xFE, 0x80, 15: 1}, Port: 5, ZoneId: 7},
		"fe80::1%none0":    nil,
	} {
		got := Sockaddr(netip.AddrPortFrom(netip.MustParseAddr(a), 5))
		switch want := want.(type) {
		case *unix.SockaddrInet4:
			if g, ok := got.(*unix.SockaddrInet4); !ok || *g != *want {
				t.Errorf("%s: %+v", a, got)
			}
		case *unix.SockaddrInet6:
			if g, ok := got.(*unix.SockaddrInet6); !ok || *g != *want {
				t.Errorf("%s: %+v", a, got)
			}
		default:
			if got != nil {
				t.Errorf("%s: %+v", a, got)
			}
		}
	}
}
