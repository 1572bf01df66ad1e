package doctor

import (
	"slices"
	"strings"
)

// variables lists Verbena's environment variables, as docs/environment.md does.
var variables = []string{
	"VERBENA_CONTROL", "VERBENA_DEVICES", "VERBENA_ECN", "VERBENA_EXPLAIN", "VERBENA_FAULT", "VERBENA_FORK_WAIT",
	"VERBENA_IWARP_CRC", "VERBENA_IWARP_P2P", "VERBENA_LIB", "VERBENA_LOG", "VERBENA_PCAP", "VERBENA_PCAP_SNAPLEN",
	"VERBENA_PKEYS", "VERBENA_PROVIDER", "VERBENA_RSOCKET_CONFIG", "VERBENA_RUN", "VERBENA_SHM", "VERBENA_SHM_DIRECT",
	"VERBENA_SOCKETS", "VERBENA_SYSFS", "VERBENA_TRANSPORT", "VERBENA_UDP", "VERBENA_UDP_GRO", "VERBENA_UDP_GSO",
	"VERBENA_UDP_LEND",
}

// unknown reports variables of an environment that look like Verbena's and have no effect.
func (r *report) unknown(environ []string) {
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(name, "VERBENA_") || slices.Contains(variables, name) {
			continue
		}
		like := slices.MinFunc(variables, func(a, b string) int { return edits(a, name) - edits(b, name) })
		r.add(note, name, "no variable of Verbena has this name, so it has no effect", "unset "+name+", or use "+like)
	}
}

// edits returns the number of bytes to insert, remove and replace to make b of a.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0] // the row above, one column to the left
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
