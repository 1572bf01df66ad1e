package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// sideBySide measures our device and rxe alternately in the same guest, each between two processes, and
// prints ratios of the medians: under emulation absolute figures mean little. Our device runs in its own
// network namespace, since rxe occupies port 4791 on every address.
func sideBySide(env *caseEnv, _, guest *place) error {
	verbena := "/tmp/verbena"
	if err := env.lab.put(guest.id, filepath.Join(env.lab.bin, "verbena"), "/tmp"); err != nil {
		return err
	}
	if _, err := env.lab.guest(guest.id,
		"ip netns add verbena 2>/dev/null; ip netns exec verbena ip link set lo up"); err != nil {
		return err
	}
	devices := []struct{ name, tool, address string }{
		{"rxe", "ib_%s -F -d rxe0 -x 1", guest.ip4},
		{"udp", "env VERBENA_SHM=0 ip netns exec verbena " + verbena + " ib_%s", "127.0.0.1"},
		{"shm", "ip netns exec verbena " + verbena + " ib_%s", "127.0.0.1"},
	}
	for _, m := range []struct {
		what, tool, args string
		column           int
	}{
		{"WRITE of 64 KiB, throughput", "write_bw", "-s 65536 -n 300", 3},
		{"SEND of 8 bytes, latency", "send_lat", "-s 8 -n 1000", 4},
	} {
		const rounds = 3
		got := make([][]float64, len(devices))
		for range rounds {
			for i, d := range devices {
				v, err := env.pairInGuest(guest, fmt.Sprintf(d.tool, m.tool)+" "+m.args, d.address, m.column)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", m.what, d.name, err)
				}
				got[i] = append(got[i], v)
			}
		}
		rxe := median(got[0])
		for i, d := range devices[1:] {
			env.note += fmt.Sprintf("%s: %s %.2f of rxe's (%.4g, %.4g); ", m.what, d.name, median(got[i+1])/rxe,
				median(got[i+1]), rxe)
		}
	}
	return nil
}

// pairInGuest runs a perftest program as server and client in a guest, and returns a column of the client's
// last row.
func (e *caseEnv) pairInGuest(guest *place, tool, address string, column int) (float64, error) {
	line := fmt.Sprintf("(timeout 60 %s >/tmp/server.txt 2>&1 &); sleep 2; timeout 60 %s %s || cat /tmp/server.txt",
		tool, tool, address)
	out, err := runCmd(e.lab.script(guest.id, "run", line), min(2*time.Minute, e.left()))
	if err != nil {
		return 0, err
	}
	e.log("side-by-side", out)
	rows := slices.DeleteFunc(strings.Split(out, "\n"), func(row string) bool {
		f := strings.Fields(row)
		if len(f) <= column {
			return true
		}
		_, err := strconv.Atoi(f[0])
		return err != nil
	})
	if len(rows) == 0 {
		return 0, fmt.Errorf("no result in\n%s", out)
	}
	return strconv.ParseFloat(strings.Fields(rows[len(rows)-1])[column], 64)
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}
