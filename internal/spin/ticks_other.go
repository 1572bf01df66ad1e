//go:build !amd64

package spin

func ticks() uint64 { return 0 }

func ticksAreClock() bool { return false }
