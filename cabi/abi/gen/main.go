// Gen makes the files that follow from cabi/abi/symbols*.txt: the version scripts and the stubs of the C libraries,
// and the page docs/c-abi.md.
//
//	go run ./cabi/abi/gen      fails if a file is not up to date
//	go run ./cabi/abi/gen -w   writes them
//
// It runs in the module's root.
package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/verbena-rdma/verbena/cabi/abi"
)

func main() {
	write := flag.Bool("w", false, "write the files")
	flag.Parse()
	if err := run(*write); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(write bool) error {
	files := abi.Files()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if write {
			if err := os.WriteFile(name, []byte(files[name]), 0o644); err != nil {
				return err
			}
			continue
		}
		if old, err := os.ReadFile(name); err != nil || string(old) != files[name] {
			return fmt.Errorf("%s is not up to date: run go run ./cabi/abi/gen -w", name)
		}
	}
	return nil
}
