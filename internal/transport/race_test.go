//go:build race

package transport

// slow tells that the race detector is on: the long tests do less.
const slow = true
