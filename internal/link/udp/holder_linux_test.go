package udp

import (
	"strings"
	"testing"
)

// The advice must help: rdma_rxe gives the port back when its module goes, not when its devices do, and has it at every address.
func TestHiddenHolder(t *testing.T) {
	for _, c := range []struct {
		rxe       []string
		loaded    bool
		has, lack string
	}{
		{nil, false, "another user's program; stop it, or use another address", "rdma_rxe"},
		{nil, true, "remove it (modprobe -r rdma_rxe), or use another network namespace", "use another address"},
		{[]string{"rxe0"}, true, "remove it (rdma link delete rxe0; modprobe -r rdma_rxe)", "use another address"},
		{[]string{"rxe0", "r1"}, false, "(rdma link delete r1; rdma link delete rxe0; modprobe -r rdma_rxe)", "use another address"},
	} {
		if got := hiddenHolder(c.rxe, c.loaded); !strings.Contains(got, c.has) || strings.Contains(got, c.lack) {
			t.Errorf("%q, %v: %s", c.rxe, c.loaded, got)
		}
	}
}
