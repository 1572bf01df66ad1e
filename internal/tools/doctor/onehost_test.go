package doctor

import (
	"net/netip"
	"testing"
)

func TestPeerIsOneHost(t *testing.T) {
	for peer, want := range map[string]string{
		"239.1.1.1": "a multicast address", "ff02::1": "a multicast address", "0.0.0.0": "the unspecified address",
		"::": "the unspecified address", "255.255.255.255": "a broadcast address", "127.255.255.255": "a broadcast address",
	} {
		var r report
		if _, ok := r.source("peer", netip.MustParseAddr(peer)); ok {
			t.Errorf("%s: accepted", peer)
		}
		finds(t, peer, &r, bad, want, "ADDRESS-OF-ONE-HOST")
	}
	for _, peer := range []string{"127.0.0.1", "::1", "10.0.0.9"} {
		if why := notOneHost(netip.MustParseAddr(peer)); why != "" {
			t.Errorf("%s: %s", peer, why)
		}
	}
}

func TestLastAddressOfANetwork(t *testing.T) {
	for p, want := range map[string]string{
		"10.77.0.1/24": "10.77.0.255", "10.77.0.1/8": "10.255.255.255", "10.77.0.130/26": "10.77.0.191",
		"1.2.3.4/30": "1.2.3.7",
	} {
		if got := lastOf(netip.MustParsePrefix(p)); got.String() != want {
			t.Errorf("%s: %v, want %s", p, got, want)
		}
	}
}
