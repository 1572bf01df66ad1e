package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// testCase is one line of the suite, to be run in both directions.
type testCase struct {
	name    string
	timeout time.Duration
	network network
	// oneWay is set for cases that have no direction: they run once.
	oneWay bool
	last   bool // after all others
	// run runs the case: active connects to, or does things to, passive.
	run func(env *caseEnv, active, passive *place) error
}

// network is what the guest's interface does to packets, each way.
type network string

const (
	clean  network = ""
	lossy  network = "loss 1%"
	faulty network = "loss 1% duplicate 1% delay 1ms reorder 5%"

	veryLossy network = "loss 5%"
)

// caseEnv is what a running case has.
type caseEnv struct {
	lab     *lab
	ends    *ends
	ctx     context.Context // ends with the case's time, or with the run
	logDir  string
	logName string // file names of this case begin with it
	note    string // for the printed row
}

// left is the time that the case has.
func (e *caseEnv) left() time.Duration {
	end, _ := e.ctx.Deadline()
	return time.Until(end)
}

// log keeps text of this case for whoever looks at it afterwards.
func (e *caseEnv) log(part, text string) {
	_ = os.WriteFile(filepath.Join(e.logDir, e.logName+"."+part+".txt"), []byte(text), 0o644)
}

// result is a row of the printed table.
type result struct {
	name, direction string
	err             error
	seconds         float64
	note            string
	first           error // why the first try failed, when this is the second one
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
		line += "\n  " + strings.ReplaceAll(tail(r.err.Error(), 40), "\n", "\n  ")
	}
	return line
}

// tableHead is the line above the rows.
var tableHead = fmt.Sprintf("%-42s %-18s %-6s %8s", "case", "direction", "result", "seconds")

// fileName makes a file name of a case and a direction.
func fileName(parts ...string) string {
	return strings.NewReplacer("/", "_", " ", "", ">", "", "%", "").Replace(strings.Join(parts, "_"))
}
