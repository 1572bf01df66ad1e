//go:build linux

package cabitest

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/loopback"
)

// Perftest opens the files of counters before the traffic, and reads them again after it. Both ends are programs of
// one user on one device: each reads its own counters.
func TestPerftestReportsCounters(t *testing.T) {
	for tool := range perftests {
		t.Run(tool, func(t *testing.T) {
			needs(t, tool)
			const n = 208
			port := loopback.Port()
			line := inC(tool, "-d", "vrb_lo", "-x", "1", "-F", "-p", port, "-n", fmt.Sprint(n),
				"-W", "hw_counters/sent_pkts,counters/port_xmit_packets,hw_counters/duplicate_request")
			ofServer, ofClient := pair(t, nil, port, line, append(line[:len(line):len(line)], "localhost"))
			for end, text := range map[string]string{"server": ofServer, "client": ofClient} {
				if end == "server" && !strings.HasSuffix(tool, "send_bw") && !strings.HasSuffix(tool, "write_lat") {
					continue // which reports nothing, or sends nothing but a few acknowledgements
				}
				hw, port := reported(text, "hw_counters/sent_pkts"), reported(text, "counters/port_xmit_packets")
				if end == "client" && hw < n || hw < 1 || port < 1 || reported(text, "hw_counters/duplicate_request") < 0 {
					t.Errorf("%s: %d and %d packets sent: the client sends at least %d:\n%s", end, hw, port, n, text)
				}
			}
		})
	}
}

// reported returns the value of a counter in the output of perftest, -1 if it is not there.
func reported(text, name string) int {
	m := regexp.MustCompile(regexp.QuoteMeta(name) + `=(\d+)`).FindStringSubmatch(text)
	if m == nil {
		return -1
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

// A program without a device of its own reads the sums of all programs of its user, whatever way it opens the files.
// The programs do not count in a read if they have no processor for 0.2 s, so each value is read until it is there.
func TestMonitorsReadCountersOfOtherPrograms(t *testing.T) {
	needs(t, "ib_send_lat", "python3")
	port := loopback.Port()
	line := inC("ib_send_lat", "-d", "vrb_lo", "-x", "1", "-F", "-p", port, "-D", "100") // killed by the test's end
	listens(t, start(t, nil, line...), port)
	c := start(t, nil, append(line[:len(line):len(line)], "localhost")...)
	const folder = "/sys/class/infiniband/vrb_lo/ports/1/hw_counters"
	const again = `import os, time
fd = os.open("` + folder + `/sent_pkts", os.O_RDONLY)
def more(read, than):
    for i in range(200):
        n = int(read())
        if n > than: return n
        time.sleep(0.1)
    raise AssertionError("%d after %d" % (n, than))
def rewound():
    os.lseek(fd, 0, os.SEEK_SET)
    return os.read(fd, 30)
n = more(rewound, more(lambda: os.pread(fd, 30, 0), more(rewound, 0)))
assert os.read(fd, 30) == b"" # a pread before this would add the digits of a longer value
print(n)`
	for { // both ends have connected, and exchange messages
		if n, _ := strconv.Atoi(strings.TrimSpace(output(t, inC("cat", folder+"/sent_pkts")...))); n > 100 {
			break
		}
		select {
		case <-c.ended:
			t.Fatalf("the client has ended, and its packets were not seen:\n%s", c.out.String())
		case <-time.After(50 * time.Millisecond):
		}
	}
	for _, program := range [][]string{
		{"python3", "-c", again},
		{"sh", "-c", "cd " + folder + " && cat sent_pkts"},
		{"sh", "-c", "cd " + folder + "/.. && grep -r -h . hw_counters/sent_pkts"},
		{"sh", "-c", "read n < " + folder + "/sent_pkts && echo $n"},
	} {
		text := "0"
		for try := 0; text == "0" && try < 20; try++ {
			text = strings.TrimSpace(output(t, inC(program...)...))
		}
		if n, err := strconv.Atoi(text); err != nil || n == 0 {
			t.Errorf("%q prints %q: must be a number of packets", program, text)
		}
	}
}
