package spin

import (
	"os"
	"strings"
	"sync"
)

// ticks returns the processor's count of ticks.
func ticks() uint64

// ticksAreClock reports whether the kernel uses the ticks as its clock. That of KVM counts the ticks too, and corrects
// them for the processor that the virtual machine runs on.
var ticksAreClock = sync.OnceValue(func() bool {
	b, err := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	name := strings.TrimSpace(string(b))
	return err == nil && (name == "tsc" || name == "kvm-clock")
})
