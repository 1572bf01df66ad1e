package soft

import (
	"net/netip"
	"testing"
	"unsafe"
)

// TestV_DM_01_Alignment: device memory begins at a multiple of the alignment that was asked for.
func TestV_DM_01_Alignment(t *testing.T) {
	d := newDevice(spec{name: "x", addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}})
	ctx, err := d.Open(&portEvents{})
	if err != nil {
		t.Fatal(err)
	}
	defer ctx.Close()
	for log := uint32(0); log <= maxDMAlign; log++ {
		for range 8 { // one may have a better alignment by chance
			m, err := ctx.AllocDM(24, log)
			if err != nil {
				t.Fatal(err)
			}
			at := uintptr(unsafe.Pointer(unsafe.SliceData(m.(*dm).mem)))
			if at&(1<<log-1) != 0 || len(m.(*dm).mem) != 24 {
				t.Errorf("alignment of 2^%d bytes: %d bytes at %#x", log, len(m.(*dm).mem), at)
			}
			if err := m.Free(); err != nil {
				t.Error(err)
			}
		}
	}
}
