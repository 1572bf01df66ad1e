//go:build !linux

package soft

// linkSpeed is the speed of a network interface in Mb/s, 0 for unknown.
func linkSpeed(string) int { return 0 }
