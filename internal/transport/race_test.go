//go:build race

package transport

// slow reports that the race detector is on: long tests do less.
const slow = true
