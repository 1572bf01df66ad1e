package soft

import (
	"os"
	"slices"
	"strings"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/verbs"
)

// switches are the environment variables that switch a mechanism, with their values besides none. The packages of the
// links and of control read them.
var switches = []struct {
	name   string
	values []string
}{
	{"VERBENA_SHM", onOff}, {"VERBENA_SHM_DIRECT", onOff}, {"VERBENA_UDP", []string{"plain"}},
	{"VERBENA_UDP_GSO", onOff}, {"VERBENA_UDP_GRO", onOff}, {"VERBENA_UDP_LEND", onOff}, {"VERBENA_CONTROL", onOff},
	{envECN, onOff}, {driver.EnvTransport, []string{"roce", driver.IWARP}},
}

var onOff = []string{"0", "1"}

// checkSwitches refuses a value that has no meaning: a mistyped one would change nothing, without a word.
func checkSwitches() error {
	for _, s := range switches {
		if v := os.Getenv(s.name); v != "" && !slices.Contains(s.values, v) {
			return fail(verbs.EINVAL, "%s=%q: must be %s, or not set", s.name, v, strings.Join(s.values, " or "))
		}
	}
	return nil
}
