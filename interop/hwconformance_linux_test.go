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
        --- PASS: TestConformance/rxe0/V_GEN_01_A (0.00s)
        --- FAIL: TestConformance/rxe0/V_GEN_02_B (0.10s)
            --- FAIL: TestConformance/rxe0/V_GEN_02_B/part (0.10s)
        --- SKIP: TestConformance/rxe0/V_GEN_03_C (0.00s)
`)
	if !maps.Equal(got, map[string]string{"V_GEN_01_A": "pass", "V_GEN_02_B": "fail", "V_GEN_03_C": "skip"}) {
		t.Errorf("%v", got)
	}
}
