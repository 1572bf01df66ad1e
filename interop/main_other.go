//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "interop: cannot run here: the lab needs Linux (network namespaces, TAP devices)")
	os.Exit(2)
}
