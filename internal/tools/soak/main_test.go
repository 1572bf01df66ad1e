package main

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestGoesOnWhereItEnded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "progress.json")
	for _, runs := range []uint64{20, 50, 30} {
		r, err := load(file, 7)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.run(runs, 2, 1, file); err != nil {
			t.Fatal(err)
		}
		if want := max(runs, r.Done); r.Done != want || r.Sums.Runs != want || len(r.Wrong) > 0 ||
			r.Sums.Completions < 10*want {
			t.Errorf("%d runs, wrong: %v; %+v", r.Done, r.Wrong, r.Sums)
		}
	}
	r, err := load(file, 7)
	if err != nil || r.Done != 50 || len(r.Commits) != 1 {
		t.Errorf("%d runs with %v: %v", r.Done, r.Commits, err)
	}
	if _, err := load(file, 8); err == nil || !strings.Contains(err.Error(), "seeds from 7 on") {
		t.Errorf("another seed: %v", err)
	}
}
