package pingpong

import (
	"bytes"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
)

func TestXSRQOptions(t *testing.T) {
	run := func(line string) (*options, int, bool, string) {
		var out bytes.Buffer
		o, status, ok := parseXSRQ(&tool.Env{Argv0: "ibv_xsrq_pingpong", Stdout: &out, Stderr: &out}, strings.Fields(line))
		return o, status, ok, out.String()
	}
	for line, want := range map[string]options{
		"": {tcpPort: 18515, port: 1, size: 4096, mtu: 1024, numQP: 1, iters: 5, gidIndex: -1},
		"-p 1 -d vrb_lo -i 2 -s 1 -m 256 -c 4096 -n 7 -l 3 -e -g 1 -o": {
			tcpPort: 1, device: "vrb_lo", port: 2, size: 1, mtu: 256, numQP: 4096, iters: 7, sl: 3, events: true, gidIndex: 1,
			onDemand: true,
		},
		"--clients=3 --num_tests=9 peer": {tcpPort: 18515, port: 1, size: 4096, mtu: 1024, numQP: 1, iters: 9, gidIndex: -1,
			server: "peer"},
	} {
		want.rxDepth = 1
		if o, _, ok, out := run(line); !ok || *o != want {
			t.Errorf("%q: %+v\nwant %+v\n%s", line, o, want, out)
		}
	}
	for line, why := range map[string]string{
		"-c 0": "clients 0", "-c 4097": "clients 4097", "-n 0": "num_tests 0", "-m 1500": "path MTU 1500",
		"-i 0": "port 0: must be at least 1",
		"a b":  "more than one host", "-l 16": "service level", "-s 2147483649": "message size", "-q 1": "unknown option -q",
	} {
		if _, status, ok, out := run(line); ok || status != 1 || !strings.Contains(out, why) ||
			!strings.Contains(out, "--help lists the options.") {
			t.Errorf("%q: ok %v, status %d: %s", line, ok, status, out)
		}
	}
}
