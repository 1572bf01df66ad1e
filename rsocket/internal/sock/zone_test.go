package sock

import (
	"net"
	"net/netip"
	"strconv"
	"testing"
)

// A link-local address keeps its zone and gets the one that is missing; others have none.
func TestZones(t *testing.T) {
	for _, c := range []struct{ a, zone, want string }{
		{"[fe80::1%eth9]:7", "eth8", "[fe80::1%eth9]:7"}, {"[fe80::1]:7", "eth8", "[fe80::1%eth8]:7"}, {"[fe80::1]:7", "",
			"[fe80::1]:7"},
		{"[ff02::1]:7", "eth8", "[ff02::1%eth8]:7"}, {"[fd00::1%eth9]:7", "eth8", "[fd00::1]:7"}, {"[fd00::1]:7", "eth8",
			"[fd00::1]:7"},
		{"169.254.1.2:7", "eth8", "169.254.1.2:7"}, {"[::ffff:169.254.1.2]:7", "eth8", "169.254.1.2:7"},
		{"[::ffff:192.0.2.1%eth9]:7", "eth8", "192.0.2.1:7"},
	} {
		if got := within(netip.MustParseAddrPort(c.a), c.zone).String(); got != c.want {
			t.Errorf("%s within %s is %s, want %s", c.a, c.zone, got, c.want)
		}
	}
	if a := unmapped(netip.AddrPort{}); a.IsValid() {
		t.Errorf("no address is %v", a)
	}
}

// The number of an interface stands for its name.
func TestZonesByNumber(t *testing.T) {
	ifs, err := net.Interfaces()
	if err != nil || len(ifs) == 0 {
		t.Skip("this machine has no network interface")
	}
	at := func(zone string) netip.AddrPort {
		return netip.AddrPortFrom(netip.MustParseAddr("fe80::1").WithZone(zone), 7)
	}
	for zone, want := range map[string]string{
		strconv.Itoa(ifs[0].Index): ifs[0].Name, ifs[0].Name: ifs[0].Name, "2147483647": "2147483647", "0x": "0x", "": "",
	} {
		if got := named(at(zone)); got != at(want) {
			t.Errorf("zone %q is %v", zone, got)
		}
	}
}

// A link-local address without a zone stays as it is while the socket has no address that could select one.
func TestZonesBeforeTheSocketIsOpen(t *testing.T) {
	d := &Datagram{}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, text := range []string{"[fe80::1]:7", "[fd00::1]:7", "192.0.2.1:7"} {
		if a := netip.MustParseAddrPort(text); d.zoned(a) != a {
			t.Errorf("%v is %v", a, d.zoned(a))
		}
	}
}

// The address of a socket that is not open is that of its family.
func TestLocalAddressBeforeTheSocketIsOpen(t *testing.T) {
	for v4, want := range map[bool]string{true: "0.0.0.0:0", false: "[::]:0"} {
		if got := (&Datagram{v4: v4}).Local(); got != netip.MustParseAddrPort(want) {
			t.Errorf("%v, want %s", got, want)
		}
	}
}

// Addresses without a number for a zone, which each message has, are compared without an allocation.
func TestZonesAllocateNothing(t *testing.T) {
	for _, text := range []string{"192.0.2.1:7", "[fe80::1]:7", "[fe80::1%eth0]:7"} {
		a := netip.MustParseAddrPort(text)
		if n := testing.AllocsPerRun(100, func() { a = named(a) }); n != 0 || a.String() != text {
			t.Errorf("%s has become %v, with %v allocations", text, a, n)
		}
	}
}
