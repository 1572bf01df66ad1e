package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestDemo(t *testing.T) {
	out, errs, status := output(t, "verbena", "demo")
	if status != 0 || errs != "" {
		t.Fatalf("status %d\n%s%s", status, out, errs)
	}
	if n := strings.Count(out, "✓"); n != 6 {
		t.Errorf("%d operations succeeded, want 6", n)
	}
	for _, want := range []string{
		"\n  ✓ SEND ", "\n  ✓ RDMA WRITE ", "\n  ✓ WRITE_WITH_IMM ", "\n  ✓ RDMA READ ", "\n  ✓ FETCH_ADD ",
		"\n  ✓ CMP_SWAP ",
		" bytes verified, all correct\n", "\n  plain TCP ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if strings.Contains(out, "\x1b") || t.Failed() {
		t.Errorf("no colours without a terminal:\n%s", out)
	}
}

func TestDemoFile(t *testing.T) {
	const part = 4 << 20
	for _, size := range []int{0, 1, part, 2*part + 12345} {
		content := bytes.Repeat([]byte("verbena "), size/8+1)[:size]
		for i := 0; i < size; i += 4096 {
			content[i] = byte(i >> 12) // all parts differ
		}
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		out, errs, status := output(t, "verbena", "demo", "--file", path)
		sum := fmt.Sprintf("%x", sha256.Sum256(content))
		if status != 0 || errs != "" || strings.Count(out, sum) != 2 {
			t.Errorf("%d bytes: status %d, want %s twice\n%s%s", size, status, sum, out, errs)
		}
	}
	if _, errs, status := output(t, "verbena", "demo", "--file", t.TempDir()); status != 1 ||
		!strings.Contains(errs, "not a regular file") {
		t.Errorf("a folder: status %d\n%s", status, errs)
	}
}

func TestBench(t *testing.T) {
	out, errs, status := output(t, "verbena", "bench", "--rounds", "1", "--time", "10ms", "--qps", "100", "--json")
	var results []struct {
		Name      string
		RDMA      float64
		Base      float64
		Ratio     float64
		Target    float64
		OK        bool
		UnitOfOne string `json:"unit"`
	}
	if err := json.Unmarshal([]byte(out), &results); err != nil || status != 0 {
		t.Fatalf("status %d, %v\n%s%s", status, err, out, errs)
	}
	var names []string
	for _, r := range results {
		names = append(names, r.Name)
		if r.RDMA <= 0 || r.Base <= 0 || r.Ratio <= 0 || r.UnitOfOne == "" {
			t.Errorf("%+v", r)
		}
	}
	for _, want := range []string{
		"shm-latency", "shm-rate", "shm-write-65536", "shm-copy-65536", "shm-write-1048576", "shm-copy-1048576",
		"shm-ring-65536", "shm-ring-1048576",
		"throughput", "latency", "rate", "loss", "size-10", "scale-10", "size-100", "scale-100", "connect", "idle", "accept",
		"rsocket stream", "rsocket request", "rsocket size", "rsocket idle", "rsocket accept", "processes2", "processes4",
		"processes8",
	} {
		if n := len(slices.DeleteFunc(slices.Clone(names), func(s string) bool { return s != want })); n != 1 {
			t.Errorf("figure %q occurs %d times; all: %q", want, n, names)
		}
	}
}
