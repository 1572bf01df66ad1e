//go:build linux

package cabitest

import (
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/loopback"
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
					port := loopback.Port()
					line := append(inC(tool, "-d", "vrb_lo", "-x", "1", "-F", "-p", port, "-c", transport), options...)
					pair(t, nil, port, line, append(line[:len(line):len(line)], "localhost"))
				})
			}
		}
	}
}

// mixedPerftests are the options that are tried with one end of each kind, by tool.
var mixedPerftests = map[string][]string{
	"ib_send_bw": {"-c XRC", "-c XRC -q 3 -b", "-c XRC -s 64 -I 64", "--use-srq", "--use-srq -q 4", "-b --report-both",
		"-b --use-srq --report-both"},
	"ib_send_lat":  {"-c XRC", "--use-srq"},
	"ib_write_bw":  {"-c XRC", "-c XRC -q 2 -b", "-b --report-both"},
	"ib_write_lat": {"-c XRC"},
	"ib_read_bw":   {"-c XRC", "-c XRC -b", "-b --report-both"},
	"ib_read_lat":  {"-c XRC"},
	"ib_atomic_bw": {"-c XRC -q 2 -b"}, "ib_atomic_lat": {"-c XRC"},
}

// TestPerftestGoAndC runs tools with the C program at one end and ours at the other, in both roles.
func TestPerftestGoAndC(t *testing.T) {
	for tool, sets := range mixedPerftests {
		for _, options := range sets {
			for role, ends := range map[string][2]func(...string) []string{
				"C client": {inGo, inC}, "C server": {inC, inGo},
			} {
				if testing.Short() && role == "C client" {
					continue
				}
				t.Run(tool+" "+options+", "+role, func(t *testing.T) {
					needs(t, tool)
					port := loopback.Port()
					line := append([]string{tool, "-d", "vrb_lo", "-x", "1", "-F", "-p", port, "-n", "208"},
						strings.Fields(options)...)
					pair(t, nil, port, ends[0](line...), ends[1](append(line[:len(line):len(line)], "localhost")...))
				})
			}
		}
	}
}
