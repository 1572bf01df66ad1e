package bench

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/term"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
)

func TestTable(t *testing.T) {
	var b bytes.Buffer
	show(term.NewPrinter(&b), []result{
		{What: "WRITE", RDMA: 3e9, Base: 4e9, BaseOf: "TCP", Unit: "bytes/s", Ratio: 0.75, Target: 0.5, OK: true},
		{What: "SEND", RDMA: 15e-6, Base: 5e-6, BaseOf: "TCP", Unit: "s", Ratio: 3, Target: 2.5, AtMost: true},
		{What: "many", RDMA: 1234567, Base: 1e6, BaseOf: "1", Unit: "messages/s", Ratio: 1.23, OK: true},
		{What: "size", RDMA: 150e6, Base: 200e6, Unit: "bytes", Ratio: 0.75, Target: 1, AtMost: true, OK: true},
	})
	const want = `
              RDMA  compared with  ratio    target
  WRITE  3.00 GB/s  TCP 4.00 GB/s   0.75     ≥ 0.5  ✓
  SEND     15.0 µs     TCP 5.0 µs   3.00     ≤ 2.5  ✗
  many 1,234,567/s  1 1,000,000/s   1.23
  size      150 MB                        ≤ 200 MB  ✓
`
	if got, want := strings.Fields(b.String()), strings.Fields(want); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("got\n%s\nwant, but for spaces,%s", b.String(), want)
	}
}

func TestRoundsAreMedians(t *testing.T) {
	r := result{Target: 0.5}
	i, j := -1, -1
	a, b := []float64{10, 90, 20}, []float64{20, 30, 25}
	err := r.rounds(3, func() (float64, error) { i++; return a[i], nil }, func() (float64, error) { j++; return b[j], nil })
	if err != nil || r.RDMA != 20 || r.Base != 25 || r.Ratio != 0.8 || r.Low != 0.5 || r.High != 3 || !r.OK {
		t.Errorf("%+v, %v", r, err)
	}
	r.Target = 0.9
	if r.judge(); r.OK {
		t.Error("0.8 reaches 0.9")
	}
	r.AtMost = true
	if r.judge(); !r.OK {
		t.Error("0.8 exceeds 0.9")
	}
}

func TestParse(t *testing.T) {
	for args, ok := range map[string]bool{
		"": true, "--only rate,scale --rounds 3 --time 1s --qps 5 --json --check": true, "--only speed": false, "--rounds 0": false, "x": false,
	} {
		var out bytes.Buffer
		c, status, got := parse(&tool.Env{Argv0: "bench", Stdout: &out, Stderr: &out}, strings.Fields(args))
		if got != ok || !ok && status != 1 {
			t.Errorf("%q: %+v, %d, %v: %s", args, c, status, got, out.String())
		}
		if strings.HasPrefix(args, "--only rate") && (len(c.only) != 2 || c.rounds != 3 || c.each != time.Second || c.qps != 5 || !c.json || !c.check) {
			t.Errorf("%+v", c)
		}
	}
}
