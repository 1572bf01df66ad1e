package main

import (
	"os"
	"strings"
	"testing"
)

// A tool that cannot write its output fails, and says so in one line.
func TestFullOutput(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("no file that is always full: %v", err)
	}
	defer full.Close()
	for _, args := range []string{
		"version", "version --json", "doctor", "doctor --json", "ibv_devices", "ibv_devinfo", "ibv_devinfo --help", "ibstat",
		"ibstatus", "show_gids", "ibdev2netdev", "rdma link", "rdma -j link", "rdma -V", "rdma resource show qp",
		"exporter --once", "completion bash", "--help", "--version", "help ibstat", "ib_write_bw --help",
	} {
		cmd := command(t, "127.0.0.1", "verbena", strings.Fields(args)...)
		errs := new(strings.Builder)
		cmd.Stdout, cmd.Stderr = full, errs
		err := cmd.Run()
		var got string
		for line := range strings.Lines(errs.String()) {
			if !strings.Contains(line, "no answer within") { // another program of the host that is busy
				got += line
			}
		}
		if status := cmd.ProcessState.ExitCode(); status != 1 || strings.Count(got, "\n") != 1 ||
			!strings.HasPrefix(got, "verbena") || !strings.HasSuffix(got, ": no space left on device\n") {
			t.Errorf("%s: %v, %q", args, err, got)
		}
	}
}
