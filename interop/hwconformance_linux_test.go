package main

import (
	"maps"
	"testing"
)

func TestConformanceTable(t *testing.T) {
	want := expectedResults()
	count := map[string]int{}
	for _, w := range want {
		count[w]++
	}
	if len(want) < 300 || count["pass"]+count["skip"]+count["fail"] != len(want) {
		t.Errorf("%d cases: %v", len(want), count)
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
