package link

import (
	"net/netip"
	"testing"
)

func TestSourceOf(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1", "2001:db8::1": "2001:db8::",
		"2001:db8:0:1:2:3:4:5": "2001:db8:0:1::", "fe80::1%eth0": "fe80::",
	} {
		if got := SourceOf(netip.MustParseAddr(in)); got != netip.MustParseAddr(want) {
			t.Errorf("%s: %v, want %s", in, got, want)
		}
	}
}
