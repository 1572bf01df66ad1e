package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

type options struct {
	list, self, keep, capture, once bool
	run, skip                       string
	logs                            string
}

func main() { os.Exit(run()) }

func run() int {
	var o options
	flag.BoolVar(&o.list, "list", false, "list the cases and exit")
	flag.StringVar(&o.run, "run", "",
		"run only the cases that match this regular expression; also given as the first argument")
	flag.StringVar(&o.skip, "skip", "", "skip the cases that match this regular expression")
	flag.BoolVar(&o.keep, "keep", false, "keep the guests running, and the logs")
	flag.BoolVar(&o.self, "self", false, "use a second guest as our end: the kernel against itself, to check the suite")
	flag.BoolVar(&o.capture, "capture", false, "write a capture of each case into the logs")
	flag.BoolVar(&o.once, "once", false, "do not repeat failed cases")
	flag.StringVar(&o.logs, "logs", "", "folder for the cases' logs (default: a temporary one, kept if a case fails)")
	flag.Parse()
	if flag.NArg() > 0 {
		o.run = flag.Arg(0)
	}
	cases, err := selectCases(o.run, o.skip)
	if err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		return 2
	}
	if o.list {
		for _, c := range cases {
			fmt.Println(c.name)
		}
		return 0
	}
	if why := cannotRun(); why != "" {
		fmt.Fprintln(os.Stderr, "interop: cannot run here:", why)
		return 2
	}
	raisePriority()
	s, err := newSuite(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "interop: cannot run:", err)
		return 2
	}
	defer s.close()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if cases = s.possible(cases); len(cases) == 0 {
		return 2
	}
	return s.runAll(ctx, cases)
}

// possible leaves out the cases of iWARP, and says so, if the guest has no siw, as other kernels than
// that of the lab's own suite.
func (s *suite) possible(cases []testCase) []testCase {
	if _, err := s.lab.guest(1, "test -d /sys/module/siw/parameters"); err == nil {
		return cases
	}
	all := len(cases)
	cases = slices.DeleteFunc(cases, func(c testCase) bool { return strings.Contains(c.name, "siw") })
	if n := all - len(cases); n > 0 {
		fmt.Fprintf(os.Stderr, "interop: not run: %d cases of siw, which this guest does not have\n", n)
	}
	return cases
}

// raisePriority raises the priority of this run and its children: an end that waits for a processor looks
// like one that does not answer. If sessions are scheduled as groups, it raises the group's priority as
// well. If it fails the suite is only slower.
func raisePriority() {
	const nice = -10
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, nice)
	_ = os.WriteFile("/proc/self/autogroup", []byte(strconv.Itoa(nice)), 0)
}

// selectCases returns the cases that the expressions select.
func selectCases(run, skip string) ([]testCase, error) {
	want, err := regexp.Compile(run)
	if err != nil {
		return nil, err
	}
	without, err := regexp.Compile(skip)
	if err != nil {
		return nil, err
	}
	var list []testCase
	for _, c := range allCases() {
		if want.MatchString(c.name) && (skip == "" || !without.MatchString(c.name)) {
			list = append(list, c)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no case matches %q", run)
	}
	return list, nil
}

// allCases returns the whole table. Cases with the same network are adjacent, because changing it takes
// time.
func allCases() []testCase {
	var all []testCase
	for _, p := range pingpongCases() {
		all = append(all, p.testCase())
	}
	all = append(all, programCases()...)
	all = append(all, specialCases()...)
	all = append(all, cmCases()...)
	all = append(all, rsCases()...)
	all = append(all, perftestCases()...)
	for _, r := range refusals() {
		all = append(all, r.testCase(4), r.testCase(6))
	}
	all = append(all, hwCases()...)
	all = append(all, siwCases()...)
	all = append(all, otherCases()...)
	all = append(all, ourCaptureCases()...)
	var sorted []testCase
	for _, n := range []network{clean, lossy, faulty, veryLossy, lossyIWARP, distantIWARP} {
		for _, c := range all {
			if c.network == n && !c.last {
				sorted = append(sorted, c)
			}
		}
	}
	for _, c := range all {
		if c.last {
			sorted = append(sorted, c)
		}
	}
	return sorted
}

// suite is one run.
type suite struct {
	options
	lab     *lab
	places  [2]*place
	ends    *ends
	network network
	temp    string
	failed  int
	unlock  func()
}

func newSuite(o options) (*suite, error) {
	root, err := projectRoot()
	if err != nil {
		return nil, err
	}
	s := &suite{options: o}
	if s.temp, err = os.MkdirTemp("", "interop-"); err != nil {
		return nil, err
	}
	if s.logs == "" {
		s.logs = filepath.Join(s.temp, "logs")
	}
	s.lab = &lab{root: root, dir: filepath.Join(root, "interop", "lab"), bin: filepath.Join(s.temp, "bin")}
	if err := errors.Join(os.MkdirAll(s.logs, 0o755), os.MkdirAll(s.lab.bin, 0o755)); err != nil {
		return nil, err
	}
	s.places = s.lab.places(o.self)
	if s.unlock, err = s.lab.lock(); err != nil {
		return nil, err
	}
	if err := s.prepare(); err != nil {
		s.close()
		return nil, err
	}
	s.ends = &ends{suite: s}
	return s, nil
}

// prepare boots the guests and builds our programs.
func (s *suite) prepare() error {
	if !s.self {
		fmt.Fprintln(os.Stderr, "interop: building")
		if err := s.lab.build("./cmd/verbena", "./interop/peer", "./examples/http"); err != nil {
			return err
		}
	}
	for _, p := range s.places {
		if p.ours() {
			continue
		}
		fmt.Fprintf(os.Stderr, "interop: booting guest %d\n", p.id)
		if err := s.lab.up(p.id); err != nil {
			return err
		}
		if err := s.lab.put(p.id, filepath.Join(s.lab.root, "interop", "peer", "peer.py"), "/tmp"); err != nil {
			return err
		}
		if err := s.lab.preload(p.id); err != nil {
			return err
		}
	}
	log, err := s.lab.guest(1, "dmesg")
	s.lab.firstMessage = lastLine(log)
	s.lab.lastMessage = s.lab.firstMessage
	return err
}

func (s *suite) close() {
	defer s.unlock()
	if s.ends != nil {
		s.ends.stop()
	}
	if err := s.setNetwork(clean); err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
	}
	if !s.keep {
		s.lab.down()
	}
	if s.failed > 0 || s.keep || s.capture {
		fmt.Fprintln(os.Stderr, "interop: logs are in", s.logs)
		_ = os.RemoveAll(s.lab.bin)
		return
	}
	_ = os.RemoveAll(s.temp)
}

func (s *suite) runAll(ctx context.Context, cases []testCase) int {
	begin := time.Now()
	var t tally
	fmt.Println(tableHead)
	for _, c := range cases {
		directions := [][2]*place{{s.places[0], s.places[1]}, {s.places[1], s.places[0]}}
		if c.oneWay {
			directions = directions[:1]
		}
		for _, d := range directions {
			r := s.runCase(ctx, c, d[0], d[1], "")
			fmt.Println(r)
			if r.err != nil && ctx.Err() == nil && !s.once && !c.last {
				first := r
				r = s.runCase(ctx, c, d[0], d[1], "-again")
				r.note = strings.TrimSpace("second try; " + r.note)
				fmt.Println(r)
				r.first = first.err
			}
			if ctx.Err() != nil {
				s.failed++
				fmt.Fprintln(os.Stderr, "interop: interrupted")
				return 1
			}
			t.add(r)
		}
	}
	s.failed = len(t.failed) + len(t.late) // the logs of both are kept
	return t.print(time.Since(begin))
}

// runCase runs a case in one direction; suffix is part of its log names.
func (s *suite) runCase(ctx context.Context, c testCase, active, passive *place, suffix string) result {
	r := result{name: c.name, direction: active.name + " > " + passive.name}
	if c.oneWay {
		r.direction = "-"
	}
	if r.err = s.setNetwork(c.network); r.err != nil {
		return r
	}
	env := &caseEnv{lab: s.lab, ends: s.ends, logDir: s.logs, logName: fileName(c.name, active.name) + suffix}
	before := s.counters()
	var cancel func()
	begin := time.Now()
	env.ctx, cancel = context.WithTimeout(ctx, c.timeout)
	defer cancel()
	if s.capture && !c.oneWay {
		record := startCapture
		if strings.HasPrefix(c.name, "siw/") {
			record = captureStreams
		}
		stop, err := record(s.lab, filepath.Join(s.logs, env.logName+".pcap"))
		if err != nil {
			r.err = err
			return r
		}
		defer stop()
	}
	r.err = c.run(env, active, passive)
	r.seconds = time.Since(begin).Seconds()
	r.note = env.note + s.counters().since(before)
	if r.err != nil {
		env.log("error", r.err.Error())
	}
	return r
}
