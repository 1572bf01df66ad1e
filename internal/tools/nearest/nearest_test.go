package nearest

import (
	"net/netip"
	"testing"

	_ "github.com/verbena-rdma/verbena/provider/soft" // the devices
)

// TestAddressOfAnotherPort checks that Open looks for the source address at the port that the tool uses.
func TestAddressOfAnotherPort(t *testing.T) {
	peer := netip.MustParseAddr("127.0.0.91") // the source address is 127.0.0.1
	t.Setenv("VERBENA_DEVICES", "vrb_near1=127.0.0.95/127.0.0.94,vrb_near2=127.0.0.96/127.0.0.1,vrb_near3=127.0.0.97")
	for port, want := range map[uint8]string{0: "vrb_near2", 1: "vrb_near1", 2: "vrb_near2"} {
		ctx, err := Open(peer, port)
		if err != nil {
			t.Errorf("port %d: %v", port, err)
			continue
		}
		if got := ctx.Device().Name(); got != want {
			t.Errorf("port %d: %s, want %s", port, got, want)
		}
		ctx.Close()
	}
	for _, port := range []uint8{3, 255} {
		if ctx, err := Open(peer, port); err == nil {
			t.Errorf("port %d of %s", port, ctx.Device().Name())
			ctx.Close()
		}
	}
}
