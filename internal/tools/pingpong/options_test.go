package pingpong

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
)

func parse(v *variant, line string) (*options, int, bool, string) {
	var out bytes.Buffer
	o, status, ok := v.parse(&tool.Env{Argv0: v.name, Stdout: &out, Stderr: &out}, strings.Fields(line))
	return o, status, ok, out.String()
}

func TestDefaults(t *testing.T) {
	for i, v := range variants {
		o, _, ok, out := parse(v, "")
		if !ok {
			t.Fatalf("%s: %s", v.name, out)
		}
		want := options{
			tcpPort: 18515, port: 1, size: 4096, mtu: 1024, numQP: 1, rxDepth: 500, iters: 1000, gidIndex: -1,
		}
		switch i {
		case 2:
			want.size, want.mtu = 1024, 0
		case 3:
			want.numQP = 16
		}
		if *o != want {
			t.Errorf("%s: %+v\nwant %+v", v.name, *o, want)
		}
	}
}

func TestOptions(t *testing.T) {
	rc, ud, srq := variants[0], variants[2], variants[3]
	o, _, ok, out := parse(rc, "-p 0x1000 -d vrb_lo -i 1 -s 65536 -m 4096 -r 16 -n 10000 -l 3 -e -g 2 -c -N peer")
	if want := (options{
		tcpPort: 0x1000, device: "vrb_lo", port: 1, size: 65536, mtu: 4096, numQP: 1, rxDepth: 16, iters: 10000, sl: 3,
		events: true, gidIndex: 2, validate: true, newSend: true, server: "peer",
	}); !ok || *o != want {
		t.Errorf("%+v\nwant %+v\n%s", o, want, out)
	}
	o, _, ok, out = parse(srq, "peer --num-qp=2 --rx-depth=8 --iters 5 --size 1 --events --gid-idx=0 --chk --mtu 256")
	if !ok || o.numQP != 2 || o.rxDepth != 8 || o.iters != 5 || o.size != 1 || !o.events || o.gidIndex != 0 ||
		!o.validate || o.mtu != 256 || o.server != "peer" {
		t.Errorf("%+v\n%s", o, out)
	}
	o, _, ok, out = parse(ud, "-s 2048 -g -1")
	if !ok || o.size != 2048 || o.gidIndex != -1 {
		t.Errorf("%+v\n%s", o, out)
	}
}

func TestMisuse(t *testing.T) {
	rc, uc, ud, srq := variants[0], variants[1], variants[2], variants[3]
	for _, c := range []struct {
		v    *variant
		line string
		why  string
	}{
		{rc, "-p 65536", "-p 65536: must be a number from 0 to 65535"},
		{rc, "-i 0", "port 0: must be at least 1"},
		{rc, "-m 1500", "path MTU 1500"},
		{rc, "-m 0", "path MTU 0"},
		{rc, "-l 16", "service level 16"},
		{rc, "-r 0", "rx_depth 0"},
		{rc, "-s 2147483649", "message size 2147483649: must be 0 to 2^31 bytes"},
		{rc, "a b", "more than one host"},
		{rc, "-o -j", "device memory"},
		{rc, "-P", "prefetched"},
		{rc, "-q 2", "unknown option -q"},
		{uc, "-t", "unknown option -t"},
		{ud, "-m 1024", "unknown option -m"},
		{srq, "-q 16 -r 15", "must be at least 16"},
		{srq, "-q 256", "num_qp 256"},
		{srq, "-q 0", "num_qp 0"},
		{srq, "-s 0", "message size 0: must be 1 to 2^31 bytes"},
	} {
		_, status, ok, out := parse(c.v, c.line)
		if ok || status != 1 || !strings.Contains(out, c.why) || !strings.Contains(out, "--help lists the options.") {
			t.Errorf("%s %s: ok %v, status %d: %s", c.v.name, c.line, ok, status, out)
		}
	}
	if _, status, ok, out := parse(rc, "--help"); ok || status != 0 || !strings.Contains(out, "-n, --iters") {
		t.Errorf("--help: ok %v, status %d: %s", ok, status, out)
	}
}

func TestReport(t *testing.T) {
	var b bytes.Buffer
	report(&b, 4096, 1000, 13100*time.Microsecond)
	want := "8192000 bytes in 0.01 seconds = 5002.75 Mbit/sec\n1000 iters in 0.01 seconds = 13.10 usec/iter\n"
	if b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

func TestMark(t *testing.T) {
	for _, n := range []int{0, 1, page - 1, page, page + 1, 3 * page} {
		b := bytes.Repeat([]byte{0x7b}, n)
		if got, want := len(invalid(b)), (n+page-1)/page; got != want {
			t.Errorf("%d bytes: %d pages are invalid, want %d", n, got, want)
		}
		mark(b)
		if got := invalid(b); got != nil {
			t.Errorf("%d bytes: pages %v are invalid after mark", n, got)
		}
	}
}
