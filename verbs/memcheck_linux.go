package verbs

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// checkMemory refuses memory that the process itself may not read, or write if the device shall: otherwise a peer
// could make it crash. It asks the kernel's list of mappings; if that cannot be read, it allows everything.
func checkMemory(buf []byte, write bool) error {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil
	}
	return checkRange(maps, uint64(sliceStart(buf)), uint64(len(buf)), write)
}

// checkRange walks the lines of maps, "start-end perms ...", which are in the order of addresses.
func checkRange(maps []byte, at, n uint64, write bool) error {
	end := at + n
	for line := range bytes.Lines(maps) {
		span, rest, ok := bytes.Cut(line, []byte{' '})
		from, to, ok2 := bytes.Cut(span, []byte{'-'})
		if !ok || !ok2 || len(rest) < 2 {
			return nil
		}
		first, err1 := strconv.ParseUint(string(from), 16, 64)
		last, err2 := strconv.ParseUint(string(to), 16, 64)
		if err1 != nil || err2 != nil {
			return nil
		}
		switch {
		case last <= at:
			continue
		case first > at:
			return fmt.Errorf("address %#x is not mapped", at)
		case rest[0] != 'r':
			return fmt.Errorf("the process may not read the memory at %#x", at)
		case write && rest[1] != 'w':
			return fmt.Errorf("LOCAL_WRITE is not possible: the process may not write the memory at %#x", at)
		}
		if at = last; at >= end {
			return nil
		}
	}
	return fmt.Errorf("address %#x is not mapped", at)
}
