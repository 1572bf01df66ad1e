package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/interop/internal/proc"
)

// testCase is one row of the suite. It runs in both directions.
type testCase struct {
	name    string
	timeout time.Duration
	network network
	// oneWay marks cases without a direction, which run once.
	oneWay bool
	last   bool // runs after all others
	// run runs the case: active connects to passive.
	run func(env *caseEnv, active, passive *place) error
}

// network is a netem configuration for the guest's interface, applied in each direction.
type network string

const (
	clean  network = ""
	lossy  network = "loss 1%"
	faulty network = "loss 1% duplicate 1% delay 1ms reorder 5%"

	veryLossy network = "loss 5%"
)

// caseEnv is the environment of a running case.
type caseEnv struct {
	lab     *lab
	ends    *ends
	ctx     context.Context // done at the case's time-out or at the end of the run
	logDir  string
	logName string // prefix of this case's file names
	note    string // note in the printed row
}

// left returns the remaining time of the case.
func (e *caseEnv) left() time.Duration {
	end, _ := e.ctx.Deadline()
	return time.Until(end)
}

// log writes text into a file of the case's logs.
func (e *caseEnv) log(part, text string) {
	_ = os.WriteFile(filepath.Join(e.logDir, e.logName+"."+part+".txt"), []byte(text), 0o644)
}

// result is a row of the printed table.
type result struct {
	name, direction string
	err             error
	seconds         float64
	note            string
	first           error // error of the first try if this is the second
}

func (r result) String() string {
	verdict := "ok"
	if r.err != nil {
		verdict = "FAIL"
	}
	line := fmt.Sprintf("%-42s %-18s %-6s %8.1f", r.name, r.direction, verdict, r.seconds)
	if r.note != "" {
		line += "  " + r.note
	}
	if r.err != nil {
		line += "\n  " + strings.ReplaceAll(proc.Tail(r.err.Error(), 40), "\n", "\n  ")
	}
	return line
}

// tableHead is the line above the rows.
var tableHead = fmt.Sprintf("%-42s %-18s %-6s %8s", "case", "direction", "result", "seconds")

// fileName converts names of cases and directions to a file name.
func fileName(parts ...string) string {
	return strings.NewReplacer("/", "_", " ", "", ">", "", "%", "").Replace(strings.Join(parts, "_"))
}
