package main

import (
	"fmt"
	"time"
)

// tally collects the results of all cases. The emulated machine stops for seconds at times (its kernel then
// reports stalled processors), which no protocol with a retry limit survives, and UD may lose packets. So a
// failed case is repeated, and the table shows both tries. A case that often needs a
// second try has a fault of its own.
type tally struct {
	passed       int
	late, failed []result
}

func (t *tally) add(r result) {
	switch {
	case r.err != nil:
		t.failed = append(t.failed, r)
		return
	case r.first != nil:
		t.late = append(t.late, r)
	}
	t.passed++
}

// print prints the totals and returns the exit status.
func (t *tally) print(d time.Duration) int {
	fmt.Printf("\n%d of %d passed in %.0f s", t.passed, t.passed+len(t.failed), d.Seconds())
	if len(t.late) > 0 {
		fmt.Printf(", %d of them at the second try", len(t.late))
	}
	fmt.Println()
	list("passed at the second try", t.late)
	list("failed", t.failed)
	return min(1, len(t.failed))
}

func list(title string, results []result) {
	if len(results) == 0 {
		return
	}
	fmt.Printf("\n%s:\n", title)
	for _, r := range results {
		fmt.Printf("%-42s %s\n", r.name, r.direction)
	}
}
