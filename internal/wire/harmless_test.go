package wire_test

import (
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// TestHarmless: the packet is complete and for no group, with a correct ICRC.
func TestHarmless(t *testing.T) {
	for _, c := range [][2]string{
		{"192.0.2.1:1234", "198.51.100.2:4791"},
		{"[fd00::1]:1234", "[fd00::2]:4791"},
	} {
		src, dst := netip.MustParseAddrPort(c[0]), netip.MustParseAddrPort(c[1])
		b := wire.Harmless(src, dst)
		p, err := wire.Parse(b[:len(b)-wire.ICRCLen])
		if err != nil {
			t.Fatalf("%v: %v", src, err)
		}
		if p.BTH().Opcode() != wire.Ack || p.BTH().DestQPN() != wire.MulticastQPN || p.BTH().PKey() != 0xFFFF {
			t.Errorf("%v: opcode %v, QPN %#x, P_Key %#x", src, p.BTH().Opcode(), p.BTH().DestQPN(), p.BTH().PKey())
		}
		if _, ok := wire.NewFlow(src.Addr(), dst.Addr(), src.Port(), dst.Port()).Verify(b, 0); !ok {
			t.Errorf("%v: wrong ICRC", src)
		}
	}
}

// A longer one is one packet of that length, with a correct ICRC.
func TestHarmlessOf(t *testing.T) {
	src, dst := netip.MustParseAddrPort("192.0.2.1:1234"), netip.MustParseAddrPort("192.0.2.2:4791")
	for _, size := range []int{0, 24, 1000, 4120} {
		b := wire.HarmlessOf(size, src, dst)
		p, err := wire.Parse(b[:len(b)-wire.ICRCLen])
		if err != nil || len(b) != max(size, 24) || p.BTH().DestQPN() != wire.MulticastQPN {
			t.Errorf("%d: %d bytes, %v", size, len(b), err)
		}
	}
}
