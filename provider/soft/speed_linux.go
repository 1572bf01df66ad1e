package soft

import (
	"os"
	"strconv"
	"strings"
)

// linkSpeed is the speed of a network interface in Mb/s, 0 if it has none.
func linkSpeed(iface string) int {
	b, err := os.ReadFile("/sys/class/net/" + iface + "/speed")
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return max(n, 0)
}
