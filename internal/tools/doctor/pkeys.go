package doctor

import (
	"os"
	"strings"

	"github.com/verbena-rdma/verbena/verbs"
)

// pkeys reports the devices that VERBENA_PKEYS names and that do not exist: their tables have no effect.
func (r *report) pkeys(list []*verbs.Device) {
	const variable = "VERBENA_PKEYS"
	has := map[string]bool{}
	for _, d := range list {
		has[d.Name()] = true
	}
	for entry := range strings.SplitSeq(os.Getenv(variable), ",") {
		name, _, named := strings.Cut(strings.TrimSpace(entry), "=")
		name, _, _ = strings.Cut(name, "/")
		if named && !has[name] {
			r.add(bad, variable, "no device "+name+": its P_Keys have no effect",
				"correct the name: verbena ibv_devices lists the devices")
		}
	}
}
