package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

// outcomes is the log of a run: lines of the outcome, the test that noticed the fault, and the fault, with tabs
// between.
type outcomes struct {
	seen map[string]outcome // by fault
	f    *os.File
}

// openLog reads a log and opens it for more. An empty name stands for no log.
func openLog(name string) (*outcomes, error) {
	o := &outcomes{seen: map[string]outcome{}}
	if name == "" {
		return o, nil
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	o.f = f
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		cells := strings.SplitN(lines.Text(), "\t", 3)
		for got := killed; got <= uncovered && len(cells) == 3; got++ {
			if got.String() == cells[0] {
				o.seen[cells[2]] = got
			}
		}
	}
	return o, lines.Err()
}

func (o *outcomes) add(got outcome, by, fault string) {
	if o.f != nil {
		fmt.Fprintf(o.f, "%v\t%s\t%s\n", got, by, fault)
	}
}

func (o *outcomes) close() {
	if o.f != nil {
		_ = o.f.Close()
	}
}
