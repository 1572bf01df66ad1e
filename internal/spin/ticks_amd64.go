package spin

import (
	"os"
	"strings"
	"sync"
)

// ticks returns the processor's count of ticks.
func ticks() uint64

// ticksAreClock reports whether the kernel uses the ticks as its clock.
var ticksAreClock = sync.OnceValue(func() bool {
	b, err := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	return err == nil && strings.TrimSpace(string(b)) == "tsc"
})
