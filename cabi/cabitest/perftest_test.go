//go:build linux

package cabitest

import (
	"strings"
	"testing"
)

// perftests are the tools with the transports that they have.
var perftests = map[string][]string{
	"ib_send_bw": {"RC", "UC", "UD", "XRC"}, "ib_send_lat": {"RC", "UC", "UD", "XRC"},
	"ib_write_bw": {"RC", "UC"}, "ib_write_lat": {"RC", "UC"},
	"ib_read_bw": {"RC"}, "ib_read_lat": {"RC"}, "ib_atomic_bw": {"RC"}, "ib_atomic_lat": {"RC"},
}

// perftestOptions returns the sets of options to try with a tool on a transport.
func perftestOptions(tool, transport string) [][]string {
	n := []string{"-n", "208"} // a multiple of the list of -l
	sets := [][]string{n}
	if testing.Short() {
		return sets
	}
	if !strings.HasPrefix(tool, "ib_write") { // which has no events
		sets = append(sets, append([]string{"-e"}, n...))
	}
	bandwidth := strings.HasSuffix(tool, "_bw")
	atomic := strings.HasPrefix(tool, "ib_atomic")
	if bandwidth {
		sets = append(sets, append([]string{"-q", "16"}, n...), []string{"-D", "1"})
		if transport != "XRC" {
			sets = append(sets, append([]string{"-l", "16"}, n...))
		}
	}
	if bandwidth && !atomic && transport != "UD" {
		sets = append(sets, append([]string{"-b"}, n...))
	}
	if !atomic {
		sets = append(sets, append([]string{"-a"}, "-n", "20"))
	}
	if strings.HasPrefix(tool, "ib_send") || strings.HasPrefix(tool, "ib_write") {
		sets = append(sets, append([]string{"-I", "64", "-s", "64"}, n...))
	}
	if strings.HasPrefix(tool, "ib_send") && transport == "RC" {
		sets = append(sets, append([]string{"--use-srq"}, n...))
	}
	return sets
}

// TestPerftest runs each tool with each transport; with -short over RC without options.
func TestPerftest(t *testing.T) {
	for tool, transports := range perftests {
		for _, transport := range transports {
			if testing.Short() && transport != "RC" {
				continue
			}
			for _, options := range perftestOptions(tool, transport) {
				if transport == "UD" && options[0] == "-a" {
					options = []string{"-s", "1024", "-n", "208"}
				}
				t.Run(tool+" "+transport+" "+strings.Join(options, " "), func(t *testing.T) {
					needs(t, tool)
					port := freePort(t)
					line := append(inC(tool, "-d", "vrb_lo", "-x", "1", "-F", "-p", port, "-c", transport), options...)
					pair(t, nil, port, line, append(line[:len(line):len(line)], "localhost"))
				})
			}
		}
	}
}
