package main

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// timeLimit is that of one run of the suite, which takes a minute on a quiet machine.
const timeLimit = 30 * time.Minute

// unpack copies the tests, some of which are compressed, to a new folder and returns it. A command rdma, by which
// later releases find network interfaces, is beside them.
func unpack(from, verbena string) (string, error) {
	entries, err := os.ReadDir(from)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "pyverbs")
	if err != nil {
		return "", err
	}
	abs, err := filepath.Abs(verbena)
	if err != nil {
		return "", err
	}
	script := "#!/bin/sh\nexec '" + abs + "' rdma \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "rdma"), []byte(script), 0o755); err != nil { //nolint:gosec // a command
		return "", err
	}
	to := filepath.Join(dir, "tests")
	if err := os.Mkdir(to, 0o755); err != nil {
		return "", err
	}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		if err := copyFile(filepath.Join(from, e.Name()), to); err != nil {
			return "", err
		}
	}
	return dir, nil
}

func copyFile(name, to string) error {
	in, err := os.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	var text io.Reader = in
	base, packed := strings.CutSuffix(filepath.Base(name), ".gz")
	if packed {
		if text, err = gzip.NewReader(in); err != nil {
			return err
		}
	}
	out, err := os.Create(filepath.Join(to, base))
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, text); err != nil {
		return err
	}
	return out.Close()
}

// one runs the suite once.
func one(suite, verbena, dev, environment, pattern string) (*tally, error) {
	abs, err := filepath.Abs(verbena)
	if err != nil {
		return newTally(), err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeLimit)
	defer cancel()
	args := []string{"run"}
	if _, err := os.Stat(filepath.Join(filepath.Dir(abs), "cabi", "librdmacm.so.1")); err != nil {
		// The tests of rdma_cm run if sysfs names the network interface. They need our librdmacm.so.1.
		args = append(args, "--no-preload")
	}
	args = append(args, "--", "/usr/bin/python3", "tests/run_tests.py")
	var without []*regexp.Regexp
	loss := strings.Contains(environment, "loss=")
	if loss {
		without = append(without, lossless)
	}
	if !reservePages() {
		fmt.Println("too few huge pages are free, and this user cannot reserve more: without the tests that need them")
		without = append(without, hugePageTests)
	}
	var only []string
	if len(without) > 0 {
		if only, err = selection(ctx, suite, abs, args, pattern, without); err != nil {
			return newTally(), err
		}
	} else if pattern != "" {
		only = []string{"-k", pattern}
	}
	args = append(append(args, "--dev", dev, "-v"), only...)
	if strings.HasSuffix(dev, "_lo") {
		args = append(args, "--gid", "1") // 127.0.0.1; the tests also take index 0, which is no address of the interface
	}
	cmd := exec.CommandContext(ctx, abs, args...)
	cmd.Dir = suite
	cmd.Env = append(os.Environ(), "PATH="+suite+":"+os.Getenv("PATH"))
	if environment != "" {
		cmd.Env = append(cmd.Env, environment)
	}
	out, err := cmd.CombinedOutput()
	t := read(string(out))
	if loss {
		t.forgive(refused)
	}
	if t.ran == 0 {
		return t, fmt.Errorf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	if len(t.failed) > 0 {
		fmt.Println(details(string(out)))
	}
	return t, nil
}

// lossless matches the tests that wait for each datagram that was sent, and test_tm_rndv, which looks once for the
// completion of a SEND: a lost packet ends them, with any device.
var lossless = regexp.MustCompile(`ud_traffic|ud_send|ud_zero|events_ud|resize_cq|multicast|udp_traffic|flow_traffic|` +
	`rss_traffic|tm_rndv`)

// refused matches the tests that expect the responder's refusal as the status. The responder's QP is in the error
// state then and drops the retransmission, so that a lost refusal ends as too many retries, with any device. One
// packet of such a test counts, so that they run, and a failure is counted apart.
var refused = regexp.MustCompile(`atomic_invalid_(qp_access|mr_access|rkey)|atomic_non_aligned|` +
	`rereg_(access_bad|atomic|pd|addr)|invalidate_mw_type1|mw_type2_invalidate|rc_bind_mw|flush_type_violate`)

// selection returns options that select the tests with the pattern, without those that an expression matches.
func selection(ctx context.Context, suite, verbena string, args []string, pattern string,
	without []*regexp.Regexp) ([]string, error) {
	cmd := exec.CommandContext(ctx, verbena, append(args[:len(args):len(args)], "--list-tests")...)
	cmd.Dir = suite
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	var only []string
	for line := range strings.Lines(string(out)) {
		name := strings.TrimSpace(line)
		left := slices.ContainsFunc(without, func(r *regexp.Regexp) bool { return r.MatchString(name) })
		if strings.HasPrefix(name, "tests.") && strings.Contains(name, pattern) && !left {
			only = append(only, "-k", name)
		}
	}
	return only, nil
}
