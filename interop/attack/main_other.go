//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "attack: cannot run here: it needs Linux")
	os.Exit(2)
}
