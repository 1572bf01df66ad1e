package portrate_test

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/tools/portrate"
	"github.com/verbena-rdma/verbena/verbs"
)

func TestOf(t *testing.T) {
	for _, c := range []struct {
		width verbs.LinkWidth
		speed verbs.LinkSpeed
		gbps  string
		lanes int
		name  string
	}{
		{verbs.LinkWidth1X, verbs.LinkSpeedSDR, "2.5", 1, "SDR"},
		{verbs.LinkWidth4X, verbs.LinkSpeedSDR, "10", 4, "SDR"},
		{verbs.LinkWidth4X, verbs.LinkSpeedEDR, "100", 4, "EDR"},
		{verbs.LinkWidth12X, verbs.LinkSpeedXDR, "2400", 12, "XDR"},
		{verbs.LinkWidth2X, 0, "0", 2, ""},
		{0, verbs.LinkSpeedEDR, "0", 0, "EDR"},
	} {
		gbps, lanes := portrate.Of(&verbs.PortAttr{ActiveWidth: c.width, ActiveSpeed: c.speed})
		if name := portrate.Generation(c.speed); gbps != c.gbps || lanes != c.lanes || name != c.name {
			t.Errorf("%v, %v: %s Gb/s, %d lanes, %q", c.width, c.speed, gbps, lanes, name)
		}
	}
}
