package perftest

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/verbs"
)

func parseArgs(name, args string) (o *options, status int, ok bool, stderr string) {
	var errs bytes.Buffer
	i := slices.IndexFunc(tests, func(t *test) bool { return t.name == name })
	o, status, ok = tests[i].parse(&tool.Env{Argv0: name, Stdout: io.Discard, Stderr: &errs}, strings.Fields(args))
	return o, status, ok, errs.String()
}

// An invalid command line gives status 1; the first line of the error has the problem and the allowed
// values.
func TestOptionsRefused(t *testing.T) {
	whole := fmt.Sprintf("must be a whole number below 2^%d", strconv.IntSize-1)
	for args, want := range map[string]string{
		"ib_send_bw -l":      "-l needs a value: post this many requests at a time",
		"ib_send_bw -l 0":    "post list 0: must be 1 to 128",
		"ib_send_bw -l 256":  "post list 256: must be 1 to 128",
		"ib_send_bw -l 3":    "-n 1000 must be a multiple of -l 3",
		"ib_send_bw -l four": "-l four: " + whole,
		"ib_send_lat -l 4": "unknown option -l: it is an option of ib_send_bw, ib_write_bw, " +
			"ib_read_bw, ib_atomic_bw",
		"ib_read_bw -o -1": "outstanding reads -1: must be 0 to 255",
		"ib_send_bw -o 4": "unknown option -o: it is an option of ib_read_bw, ib_read_lat, " +
			"ib_atomic_bw, ib_atomic_lat",
		"ib_atomic_bw -A SWAP":       `atomic type "SWAP": must be CMP_AND_SWAP or FETCH_AND_ADD`,
		"ib_read_bw -A CMP_AND_SWAP": "unknown option -A: it is an option of ib_atomic_bw, ib_atomic_lat",
		"ib_atomic_lat -s 8": "unknown option -s: it is an option of ib_send_bw, ib_send_lat, " +
			"ib_write_bw, ib_write_lat, ib_read_bw, ib_read_lat",
		"ib_send_bw -H": "unknown option -H: it is an option of ib_send_lat, ib_write_lat, " +
			"ib_read_lat, ib_atomic_lat",
		"ib_send_bw -U": "unknown option -U: it is an option of ib_send_lat, ib_write_lat, " +
			"ib_read_lat, ib_atomic_lat",
		"ib_send_bw -r 0":      "rx depth 0: must be 1 to 15000",
		"ib_write_bw -r 8":     "unknown option -r: it is an option of ib_send_bw, ib_send_lat",
		"ib_send_bw -Q 0":      "CQ moderation 0: must be 1 to 1024",
		"ib_send_bw -Q 1025":   "CQ moderation 1025: must be 1 to 1024",
		"ib_send_bw -T 8":      "-T needs -R",
		"ib_send_bw -R -T 256": "type of service 256: must be 0 to 255",
		"ib_send_bw -R -T -4":  "type of service -4: must be 0 to 255",
		"ib_send_bw -p 0":      "TCP port 0: must be 1 to 65535",
		"ib_send_bw -p 70000":  "TCP port 70000: must be 1 to 65535",
		"ib_send_bw -p http":   "-p http: " + whole,
		"ib_send_bw -i 0":      "device port 0: must be 1 to 255",
		"ib_send_bw -i 300":    "device port 300: must be 1 to 255",
		"ib_send_bw -S 16":     "service level 16: must be 0 to 15",
		"ib_send_bw -S -1":     "service level -1: must be 0 to 15",
		"ib_send_bw -u 32":     "QP timeout 32: must be 0 to 31",
		"ib_send_lat --report_gbits": "unknown option --report_gbits: it is an option of ib_send_bw, " +
			"ib_write_bw, ib_read_bw, ib_atomic_bw",
		"ib_read_bw -I 8": "unknown option -I: it is an option of ib_send_bw, ib_send_lat, " +
			"ib_write_bw, ib_write_lat",
		"ib_send_lat -N": "unknown option -N: it is an option of ib_send_bw, ib_write_bw, " +
			"ib_read_bw, ib_atomic_bw",
		"ib_send_bw -D -1":      "duration -1: must be 1 to 1048576 seconds; omit -D to use -n",
		"ib_send_bw -D 0":       "duration 0: must be 1 to 1048576 seconds; omit -D to use -n",
		"ib_send_bw -D 4 -f 2":  "4 seconds with two margins of 2 leave no time to measure",
		"ib_send_bw -D 4 -f -2": "margin -2: must be at least 0 seconds and less than half of -D",
		"ib_send_bw -D 4 -a":    "-D cannot be combined with -a",
		"ib_send_bw -D 4 -e":    "-D cannot be combined with -e",
		"ib_send_bw -s 0":       `message size "0": must be 1 to 1073741824 bytes, K and M are 2^10 and 2^20`,
		"ib_send_bw -s 2G":      `message size "2G": must be 1 to 1073741824 bytes, K and M are 2^10 and 2^20`,
		"ib_send_bw --use_cuda=0": "unknown option --use_cuda: no ib_* program here has it; " +
			"omit it at both ends",
		"ib_send_bw -q 0":                "number of QPs 0: must be 1 to 8192",
		"ib_send_bw one.host other.host": "more than one host",
		"ib_send_bw -z -R":               "-z connects the QPs without rdma_cm, -R with it: choose one of them",
		"ib_send_bw --output latency":    `--output "latency": must be bandwidth or message_rate`,
		"ib_send_lat --output bandwidth": `--output "bandwidth": must be latency`,
		"ib_send_bw --cpu_util":          "--cpu_util needs -D",
		"ib_send_bw --report-both":       "--report-both needs -b",
		"ib_send_bw --run_infinitely -b": "--run_infinitely cannot be combined with -b for SEND",
		"ib_read_bw --run_infinitely -e": "--run_infinitely cannot be combined with -a or -e",
		"ib_send_bw --use-srq -c UC":     "--use-srq needs RC or UD: UC has no shared receive queue",
		"ib_send_bw --use-srq -q 9 -r 8": "--use-srq with 9 QPs needs -r 9 or more",
		"ib_send_bw -c XRC -R":           "rdma_cm does not connect XRC here; -z exchanges over it",
		"ib_send_bw -c XRC -q 9 -r 8":    "XRC with 9 QPs needs -r 9 or more: they share the receives",
		"ib_send_bw -c DC":               `connection type "DC": must be RC, XRC, UC or UD`,
		"ib_send_bw --tclass 256":        "traffic class 256: must be 0 to 255",
		"ib_send_bw -w -1":               "a limit must be a number from 0 on",
	} {
		name, rest, _ := strings.Cut(args, " ")
		_, status, ok, stderr := parseArgs(name, rest)
		if ok || status != 1 || stderr != name+": "+want+"\n"+name+" --help lists the options.\n" {
			t.Errorf("%s: ok %v, status %d: %q; want %q and a hint", args, ok, status, stderr, want)
		}
	}
}

// The values that common options set.
func TestOptionsTaken(t *testing.T) {
	for _, c := range []struct {
		args string
		want func(o *options) bool
	}{
		{"ib_send_bw", func(o *options) bool {
			return o.tcpPort == 18515 && o.size == 65536 && o.iters == 1000 && o.rxDepth == 512 && o.txDepth == 128 &&
				o.cqMod == 1 && o.gidIndex < 0 && o.tos < 0
		}},
		{"ib_send_bw -p 1 -S 15 -u 0 -i 2 -T 255 -R", func(o *options) bool {
			return o.tcpPort == 1 && o.sl == 15 && o.timeout == 0 && o.ibPort == 2 && o.tos == 255 && o.cm
		}},
		{"ib_send_bw -l 4 -t 16 -n 64 -r 16", func(o *options) bool {
			return o.postList == 4 && o.cqMod == 4 &&
				o.rxDepth == 16 && o.txDepth == 16
		}},
		{"ib_send_bw -s 64 -Q 10", func(o *options) bool { return o.cqMod == 10 && o.size == 64 }},
		{"ib_send_bw -s 2K --report_gbits -b", func(o *options) bool {
			return o.size == 2048 && o.gbits && o.duplex &&
				o.cqMod == 100
		}},
		{"ib_send_bw -c ud -s 1M", func(o *options) bool {
			return o.typ == verbs.QPTypeUD && o.size == 1<<20 &&
				o.rxDepth == 1000
		}},
		{"ib_send_bw -c ud --use-srq -n 50 -q 2", func(o *options) bool { return o.rxDepth == 100 && o.txDepth == 50 }},
		{"ib_send_bw -c XRC -q 3 -b", func(o *options) bool { return o.srq && o.qpCount() == 6 && o.rxDepth == 512 }},
		{"ib_read_bw -c xrc -q 3", func(o *options) bool { return o.qpCount() == 3 && o.qpType(2) == verbs.QPTypeXRCRecv }},
		{"ib_send_bw -D 8 -b", func(o *options) bool { return o.duration == 8 && o.margin == 2 && o.duplex }},
		{"ib_send_bw -D 8 -f 0", func(o *options) bool { return o.margin == 0 }},
		{"ib_read_lat -o 255 -H", func(o *options) bool { return o.outReads == 255 && o.histogram && o.size == 2 }},
		{"ib_atomic_lat -A CMP_AND_SWAP -U", func(o *options) bool { return o.cmpSwap && o.unsorted && o.size == 8 }},
		{"ib_write_bw -a -x 3 host", func(o *options) bool {
			return o.all && o.size == 1<<23 && o.gidIndex == 3 && o.server == "host" && o.iters == 5000
		}},
	} {
		name, rest, _ := strings.Cut(c.args, " ")
		if o, _, ok, stderr := parseArgs(name, rest); !ok || !c.want(o) {
			t.Errorf("%s: %+v %s", c.args, o, stderr)
		}
	}
}
