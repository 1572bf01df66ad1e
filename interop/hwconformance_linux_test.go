package main

import (
	"maps"
	"testing"
)

func TestConformanceTable(t *testing.T) {
	passes := map[string]int{}
	for _, release := range []string{"6.1.0-56-amd64\n", "6.12.94+deb13-amd64", "7.1"} {
		want := expectedResults(release)
		count := map[string]int{}
		for _, w := range want {
			count[w]++
		}
		if len(want) < 300 || count["pass"]+count["skip"]+count["fail"] != len(want) {
			t.Errorf("%q: %d cases: %v", release, len(want), count)
		}
		passes[release] = count["pass"]
	}
	if passes["7.1"] != passes["6.12.94+deb13-amd64"] || passes["7.1"] <= passes["6.1.0-56-amd64\n"] {
		t.Errorf("cases that pass: %v", passes)
	}
	got := resultsOf(`    --- FAIL: TestConformance/rxe0 (1.00s)
        --- PASS: TestConformance/rxe0/First (0.00s)
        --- FAIL: TestConformance/rxe0/Second (0.10s)
            --- FAIL: TestConformance/rxe0/Second/part (0.10s)
        --- SKIP: TestConformance/rxe0/Third (0.00s)
`)
	if !maps.Equal(got, map[string]string{"First": "pass", "Second": "fail", "Third": "skip"}) {
		t.Errorf("%v", got)
	}
}
