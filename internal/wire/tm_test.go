package wire_test

import (
	"bytes"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire"
)

func TestTMBytes(t *testing.T) {
	tmh, rvh := make(wire.TMH, wire.TMHLen), make(wire.RVH, wire.RVHLen)
	tmh[1], tmh[3] = 0xEE, 0xEE // reserved bytes become 0
	tmh.Put(wire.TMEager, 0x01020304, 0x1112131415161718)
	rvh.Put(0x2122232425262728, 0x31323334, 0x41424344)
	if want := unhex(t, "03000000 01020304 1112131415161718"); !bytes.Equal(tmh, want) {
		t.Errorf("TMH %x", []byte(tmh))
	}
	if want := unhex(t, "2122232425262728 31323334 41424344"); !bytes.Equal(rvh, want) {
		t.Errorf("RVH %x", []byte(rvh))
	}
	if tmh.Op() != wire.TMEager || tmh.AppCtx() != 0x01020304 || tmh.Tag() != 0x1112131415161718 ||
		rvh.Addr() != 0x2122232425262728 || rvh.RKey() != 0x31323334 || rvh.Length() != 0x41424344 {
		t.Errorf("read as %d %x %x, %x %x %x", tmh.Op(), tmh.AppCtx(), tmh.Tag(), rvh.Addr(), rvh.RKey(), rvh.Length())
	}
}
