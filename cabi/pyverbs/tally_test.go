package main

import (
	"regexp"
	"strings"
	"testing"
)

const printed = `test_a (tests.test_mr.MRTest.test_a)
Register and deregister ... ok
test_b (tests.test_mr.MRTest.test_b) ... skipped 'no such thing'
test_c (tests.test_mr.MRTest.test_c) ... ERROR
test_d (tests.test_qp.QPTest.test_d) ... warning: odd
FAIL
test_e (tests.test_qp.QPTest.test_e) ... skipped "it's not there"

======================================================================
ERROR: test_c (tests.test_mr.MRTest.test_c)
test_c (tests.test_mr.MRTest.test_c) ... ok
----------------------------------------------------------------------
`

func TestReadCountsEachResultOnce(t *testing.T) {
	got := read(printed)
	if got.line() != "1 ok, 2 failed, 2 skipped" || got.ran != 5 {
		t.Errorf("%s of %d", got.line(), got.ran)
	}
	got.add(read(printed))
	for _, want := range []string{"sum: 2 ok, 4 failed, 4 skipped", "FAILED 2 times: test_mr.test_c",
		"FAILED 2 times: test_qp.test_d", "skipped 2 times: it's not there\n  test_qp.test_e"} {
		if !strings.Contains(got.report(), want) {
			t.Errorf("%s\nmust have %q", got.report(), want)
		}
	}
}

func TestForgiveCountsLostPacketsApart(t *testing.T) {
	got := read(printed)
	got.forgive(regexp.MustCompile(`test_c`))
	if got.line() != "1 ok, 1 failed, 2 skipped, 1 lost the packet that they wait for" {
		t.Error(got.line())
	}
	if want := "a packet lost 1 times: test_mr.test_c"; !strings.Contains(got.report(), want) {
		t.Errorf("%s\nmust have %q", got.report(), want)
	}
}

func TestPagesThatNobodyUses(t *testing.T) {
	total, free := pages("MemFree: 5 kB\nHugePages_Total:      32\nHugePages_Free:       12\nHugePages_Rsvd:        3\n")
	if total != 32 || free != 9 {
		t.Errorf("%d pages, %d free, want 32 and 9", total, free)
	}
}
