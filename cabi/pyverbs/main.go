// Pyverbs runs rdma-core's own tests of libibverbs, which Debian ships in package python3-pyverbs, on the C libraries,
// and counts what passed, failed and was skipped, with the reason of each skip.
//
//	go run ./cabi/pyverbs [-runs 20] [-dev vrb_eth0,vrb_lo] [-environment "VERBENA_SHM=0;..."] [-tests FOLDER] VERBENA
//
// The tests of another release need its pyverbs: PYTHONPATH=.../build/python and -tests .../tests.
//
// With an environment that loses packets it leaves out the tests that fail with each lost packet, and counts apart the
// failures of those that fail if one certain packet is lost.
//
// VERBENA is the command verbena beside the libraries. The exit status is 1 if a test failed. As root it reserves huge
// pages for the tests that need them, and gives them back.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
)

func main() {
	runs := flag.Int("runs", 1, "how often each combination runs")
	dev := flag.String("dev", "vrb_eth0,vrb_lo", "the devices")
	environments := flag.String("environment", ";VERBENA_SHM=0;VERBENA_FAULT=loss=0.01",
		"environments, divided by semicolons; an empty one is the ordinary one")
	tests := flag.String("tests", "/usr/share/doc/rdma-core/tests", "the folder of the tests")
	pattern := flag.String("k", "", "only the tests whose names contain this")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "pyverbs: the path of verbena is missing: bin/verbena")
		os.Exit(2)
	}
	os.Exit(run(flag.Arg(0), *tests, *runs, strings.Split(*dev, ","), strings.Split(*environments, ";"), *pattern))
}

// run runs the suite in all combinations and returns the exit status.
func run(verbena, tests string, runs int, devices, environments []string, pattern string) int {
	suite, err := unpack(tests, verbena)
	if err != nil {
		fmt.Fprintf(os.Stderr, "pyverbs: %v: apt-get install python3-pyverbs\n", err)
		return 2
	}
	defer os.RemoveAll(suite)
	defer returnPages()
	total := newTally()
	for run := range runs {
		for _, d := range devices {
			for _, e := range environments {
				t, err := one(suite, verbena, d, e, pattern)
				if err != nil {
					fmt.Fprintln(os.Stderr, "pyverbs:", err)
					total.failed["the suite"]++
				}
				fmt.Printf("run %d, %s %s: %s\n", run+1, d, e, t.line())
				total.add(t)
			}
		}
	}
	fmt.Print(total.report())
	if len(total.failed) > 0 {
		return 1
	}
	return 0
}
