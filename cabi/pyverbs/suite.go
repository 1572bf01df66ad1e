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
	"strings"
	"time"
)

// timeLimit is that of one run of the suite, which takes a minute on a quiet machine.
const timeLimit = 30 * time.Minute

// unpack copies the tests, some of which are compressed, to a new folder and returns it.
func unpack(from string) (string, error) {
	entries, err := os.ReadDir(from)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "pyverbs")
	if err != nil {
		return "", err
	}
	to := filepath.Join(dir, "tests")
	if err := os.Mkdir(to, 0o755); err != nil {
		return "", err
	}
	for _, e := range entries {
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
	var only []string
	if strings.Contains(environment, "loss=") {
		if only, err = forLoss(ctx, suite, abs, args, pattern); err != nil {
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
	cmd.Env = os.Environ()
	if environment != "" {
		cmd.Env = append(cmd.Env, environment)
	}
	out, err := cmd.CombinedOutput()
	t := read(string(out))
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

// forLoss returns options that select the tests with the pattern but those.
func forLoss(ctx context.Context, suite, verbena string, args []string, pattern string) ([]string, error) {
	cmd := exec.CommandContext(ctx, verbena, append(args[:len(args):len(args)], "--list-tests")...)
	cmd.Dir = suite
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	var only []string
	for line := range strings.Lines(string(out)) {
		name := strings.TrimSpace(line)
		if strings.HasPrefix(name, "tests.") && strings.Contains(name, pattern) && !lossless.MatchString(name) {
			only = append(only, "-k", name)
		}
	}
	return only, nil
}

// hugePages reserves 8 huge pages if there are none and this is root, and returns a function that gives them back.
func hugePages() func() {
	const file = "/proc/sys/vm/nr_hugepages"
	old, err := os.ReadFile(file)
	if err != nil || strings.TrimSpace(string(old)) != "0" || os.WriteFile(file, []byte("8"), 0) != nil {
		return func() {}
	}
	return func() { _ = os.WriteFile(file, old, 0) }
}
