package main

import (
	"strings"
	"testing"
)

// The tools run over TCP if the environment asks for iWARP devices.
func TestToolsOverIWARP(t *testing.T) {
	t.Setenv("VERBENA_TRANSPORT", "iwarp")
	if out, _, _ := output(t, "ibv_devices"); !strings.Contains(out, "vrw_test") {
		t.Errorf("ibv_devices:\n%s", out)
	}
	for _, c := range []struct{ tool, server, client string }{
		{"rping", "-s -C 10 -a " + serverAddr, "-c -C 10 -v -a " + serverAddr},
		{"ucmatose", "-c 5 -b " + serverAddr, "-c 5 -s " + serverAddr}, // the server sends first
		{"rdma_server", "", "-s " + serverAddr},
		{"rdma_xserver", "", "-s " + serverAddr},
		{"rstream", "-S all -C 20 -T v -b " + serverAddr, "-S all -C 20 -T v -s " + serverAddr},
		{"riostream", "-S all -C 20 -b " + serverAddr, "-S all -C 20 -s " + serverAddr},
		{"ib_send_bw", "-R -a -n 100", "-R -a -n 100 " + serverAddr},
		{"ib_send_bw", "-R -n 5000 -r 8", "-R -n 5000 -r 8 " + serverAddr}, // the receiver gives credits
		{"ib_send_bw", "-R -b -e -q 2 -n 2000 -r 7", "-R -b -e -q 2 -n 2000 -r 7 " + serverAddr},
		{"ib_send_bw", "-R -D 1 -f 0 -r 2", "-R -D 1 -f 0 -r 2 " + serverAddr},
		{"ib_send_lat", "-R -n 100", "-R -n 100 " + serverAddr},
		{"ib_write_bw", "-R -n 100 -q 4", "-R -n 100 -q 4 " + serverAddr},
		{"ib_write_lat", "-R -n 100", "-R -n 100 " + serverAddr},
		{"ib_read_bw", "-R -n 100", "-R -n 100 " + serverAddr},
		{"ib_read_lat", "-R -n 100", "-R -n 100 " + serverAddr},
		{"ib_atomic_bw", "-R -n 100", "-R -n 100 " + serverAddr},
		{"ib_atomic_lat", "-R -n 100", "-R -n 100 " + serverAddr},
	} {
		t.Run(c.tool, func(t *testing.T) {
			serverTool, clientTool := c.tool, strings.Replace(c.tool, "server", "client", 1)
			pairOf(t, serverTool, c.server, clientTool, c.client)
		})
	}
}
