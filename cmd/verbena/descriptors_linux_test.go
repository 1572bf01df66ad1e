package main

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/loopback"
)

// A program with too few descriptors for the addresses of its device says how many it may have, and how to get more.
// 40 are sometimes enough: the shards of its first QPs are random, and each shard in use has its own descriptors.
func TestTooFewDescriptors(t *testing.T) {
	c, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(c, "sh", "-c", `ulimit -n 28 && exec "$0" -s -C 1`, link(t, "rping"))
	addrs := loopback.Addr(41) + "+" + loopback.Addr(42) + "+" + loopback.Addr(43)
	cmd.Env = append(os.Environ(), "VERBENA_DEVICES=vrb_few="+addrs, "GOMAXPROCS=4")
	out, err := cmd.CombinedOutput()
	for _, want := range []string{"EMFILE", "the process may have 28 descriptors", "ulimit -n 1024", "LimitNOFILE="} {
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%v: %q does not say %q", err, out, want)
		}
	}
}
