//go:build linux && (amd64 || arm64)

package hw

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// TestGIDIndexOf8Bits makes address handles and moves QPs with GID indices that C has no room for. C would take another
// address, index 256 for 0, so it must not be called: there is no library here.
func TestGIDIndexOf8Bits(t *testing.T) {
	for _, index := range []int{-1, 256, 257, 1 << 16} {
		attr := verbs.AHAttr{IsGlobal: true, GRH: verbs.GlobalRoute{SGIDIndex: index}}
		_, ah := (&pd{}).CreateAH(attr)
		primary := (&qp{}).Modify(&verbs.QPAttr{AHAttr: attr}, verbs.QPAttrAV)
		alternate := (&qp{}).Modify(&verbs.QPAttr{AltAHAttr: attr}, verbs.QPAttrAltPath)
		for what, err := range map[string]error{"AH": ah, "path": primary, "alternate path": alternate} {
			if !errors.Is(err, syscall.EINVAL) || err == nil || !strings.Contains(err.Error(), "must be 0 to 255") {
				t.Errorf("%s with GID index %d: %v, want EINVAL", what, index, err)
			}
		}
	}
	for _, attr := range []verbs.AHAttr{
		{IsGlobal: true, GRH: verbs.GlobalRoute{SGIDIndex: 255}}, {GRH: verbs.GlobalRoute{SGIDIndex: 256}},
	} {
		if err := checkGIDIndex(&attr); err != nil {
			t.Errorf("%+v: %v", attr, err)
		}
	}
}
