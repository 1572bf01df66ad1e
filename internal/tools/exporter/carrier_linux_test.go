package exporter

import (
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/apart"
	_ "github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

// A device whose interface has lost its carrier is down, and up again when the carrier is back.
func TestDeviceWithoutCarrierIsDown(t *testing.T) {
	apart.NeedsIP(t)
	if !apart.Run(t) {
		return
	}
	for _, line := range []string{
		"link add vrbtest0 type veth peer name vrbtest1", "addr add 192.0.2.1/24 dev vrbtest0",
		"link set vrbtest0 up", "link set vrbtest1 up",
	} {
		apart.IP(t, line)
	}
	c := of(false)
	c.devices = verbs.Devices
	for _, step := range []struct{ peer, want string }{{"up", "1"}, {"down", "0"}, {"up", "1"}} {
		apart.IP(t, "link set vrbtest1 "+step.peer)
		want := "\nverbena_device_up{device=\"vrb_vrbtest0\",interface=\"vrbtest0\"} " + step.want + "\n"
		out := text(t, c)
		for start := time.Now(); !strings.Contains(out, want) && time.Since(start) < 10*time.Second; out = text(t, c) {
			time.Sleep(10 * time.Millisecond)
		}
		if !strings.Contains(out, want) {
			t.Fatalf("the other end is %s, and no line%sin\n%s", step.peer, want, out)
		}
	}
}
