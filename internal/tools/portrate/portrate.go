// Package portrate computes the rates of ports, names their states and finds their network interfaces, for the tools
// that print them. It owns nothing and imports verbs only.
package portrate

import (
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// speeds are the rates of one lane in tenths of Gb/s, and the names of their generations.
var speeds = map[verbs.LinkSpeed]struct {
	tenths     int
	generation string
}{
	verbs.LinkSpeedSDR: {25, "SDR"}, verbs.LinkSpeedDDR: {50, "DDR"}, verbs.LinkSpeedQDR: {100, "QDR"},
	verbs.LinkSpeedFDR10: {100, "FDR10"}, verbs.LinkSpeedFDR: {140, "FDR"}, verbs.LinkSpeedEDR: {250, "EDR"},
	verbs.LinkSpeedHDR: {500, "HDR"}, verbs.LinkSpeedNDR: {1000, "NDR"}, verbs.LinkSpeedXDR: {2000, "XDR"},
}

// Of returns the rate of a port in Gb/s, with one decimal if it has one, and the number of its lanes. Both are 0 if the
// port has no valid width; the rate is 0 if it has no valid speed.
func Of(a *verbs.PortAttr) (gbps string, lanes int) {
	lanes = a.ActiveWidth.Lanes()
	tenths := speeds[a.ActiveSpeed].tenths * lanes
	gbps = fmt.Sprint(tenths / 10)
	if tenths%10 != 0 {
		gbps += fmt.Sprintf(".%d", tenths%10)
	}
	return gbps, lanes
}

// Generation returns the name of a lane speed: SDR, DDR, QDR, FDR10, FDR, EDR, HDR, NDR or XDR; "" for another value.
func Generation(s verbs.LinkSpeed) string { return speeds[s].generation }

// Interface returns the network interface of a port, as the device's GIDs tell; "" if they do not.
func Interface(gids []verbs.GIDEntry, port int) string {
	for _, g := range gids {
		if int(g.Port) == port && g.NetDev != "" {
			return g.NetDev
		}
	}
	return ""
}

// Range says which ports a device with n ports has, for an error.
func Range(n int) string {
	if n == 1 {
		return "1"
	}
	return fmt.Sprintf("1 to %d", n)
}

// State returns the name of a state as the kernel writes it.
func State(s verbs.PortState) string {
	switch s {
	case verbs.PortDown:
		return "DOWN"
	case verbs.PortInit:
		return "INIT"
	case verbs.PortArmed:
		return "ARMED"
	case verbs.PortActive:
		return "ACTIVE"
	case verbs.PortActiveDefer:
		return "ACTIVE_DEFER"
	default:
		return "NOP"
	}
}
