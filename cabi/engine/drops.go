//go:build linux && cgo

package main

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/verbena-rdma/verbena/internal/control"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

// waitReasons are the counters that show why a program waits for ever: no call fails, and no completion comes.
var waitReasons = []string{"recv_dropped", "bad_qkey", "bad_pkey", "unknown_group", "send_rnr_err", "rcvd_rnr_err",
	"rx_icrc_errors"}

// drops prints the first growth of each counter of waitReasons of each device, for VERBENA_EXPLAIN.
type drops struct {
	mu   sync.Mutex
	seen map[string][]string // the counters printed of each watched device, by its name; guarded by mu
}

var dropped = drops{seen: map[string][]string{}}

// dropInterval is the time between two looks at the counters.
const dropInterval = 200 * time.Millisecond

// watch begins to print for a device that the program has opened, if VERBENA_EXPLAIN is set. It ends when the last
// context of the device is closed.
func (d *drops) watch(dev *verbs.Device) {
	if !explain {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, watched := d.seen[dev.Name()]; watched {
		return
	}
	d.seen[dev.Name()] = []string{}
	go func() {
		for d.look(dev) {
			time.Sleep(dropInterval)
		}
	}()
}

// look prints the counters of a device that have grown for the first time. It reports whether the device is open.
func (d *drops) look(dev *verbs.Device) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	seen, watched := d.seen[dev.Name()]
	if !watched {
		return false
	}
	counters := soft.Counters(dev)
	if counters == nil {
		delete(d.seen, dev.Name())
		return false
	}
	lines, seen := firstDrops(dev.Name(), counters, seen)
	d.seen[dev.Name()] = seen
	for _, l := range lines {
		os.Stderr.WriteString(l)
	}
	return true
}

// firstDrops returns a line for each counter of waitReasons that is not 0 and not seen, and those seen now.
func firstDrops(device string, counters []soft.Counter, seen []string) (lines, now []string) {
	for _, c := range counters {
		if c.Value > 0 && slices.Contains(waitReasons, c.Name) && !slices.Contains(seen, c.Name) {
			lines = append(lines, fmt.Sprintf("verbena: %s: %s %d: %s\n", device, c.Name, c.Value, control.Help(c.Name)))
			seen = append(seen, c.Name)
		}
	}
	return lines, seen
}
