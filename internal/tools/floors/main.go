// Floors draws the packages of the module and their imports as floors: imports point down only.
//
//	floors FILE.svg      fails if the picture is not up to date
//	floors -w FILE.svg   writes it
//
// It fails if a package is on no floor, or imports a package of its own floor or of a higher one. Programs
// (cmd, cabi, examples, interop, internal/tools) are above all floors and not drawn one by one. Imports that follow
// from others are not drawn: if a imports b and c, and b imports c, there is no line from a to c.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// module is the prefix of the module's import paths.
const module = "github.com/verbena-rdma/verbena/"

// A floor is a set of packages that do not import each other.
type floor struct {
	title    string
	packages []string
}

// building is the floors from top to bottom.
var building = []floor{
	{"simulation, suites", []string{"internal/sim", "internal/conformance", "rsocket/internal/socktest"}},
	{"test fabric, metrics", []string{"rdmatest", "metrics/prometheus"}},
	{"sockets", []string{"rsocket", "rsocket/socket"}},
	{"streams, datagrams", []string{"rsocket/internal/sock"}},
	{"connection manager", []string{"rdmacm", "provider/auto", "provider/iwarp"}},
	{"datagrams, providers", []string{"umad", "provider/soft", "provider/hw"}},
	{"accessors of verbs", []string{
		"internal/driver", "internal/gsi", "internal/iwtcp", "internal/kmad", "internal/ucma",
	}},
	{"verbs, engine", []string{"verbs", "internal/engine", "internal/raw", "internal/iwarp"}},
	{"state machines", []string{"internal/cm", "internal/transport"}},
	{"links", []string{
		"internal/link/udp", "internal/link/shm", "internal/link/mem", "internal/link/pcap", "internal/link/packet",
	}},
	{"decorator, host", []string{
		"internal/link/fault", "internal/host", "internal/softlink", "internal/sysroute", "internal/cm/cmtest",
	}},
	{"link interfaces", []string{"internal/link"}},
	{"memory, messages", []string{
		"internal/mr", "internal/wire/cmmsg", "internal/wire/captures", "internal/wire/wiretest",
	}},
	{"formats, helpers", []string{
		"internal/wire", "internal/wire/iwarp", "internal/psn", "internal/numbered", "internal/secret", "internal/ring",
		"internal/board", "internal/rs", "internal/spin", "internal/notify", "internal/control", "internal/lookup",
		"internal/printable", "internal/xrcd", "internal/apart", "internal/cheader", "internal/refuse", "internal/seam",
		"internal/transcript", "observe",
	}},
	{"descriptors, CRCs", []string{
		"internal/fdset", "internal/peeruser", "internal/errqueue", "internal/environ", "internal/loopback",
		"internal/prefetch",
		"internal/untrusted", "internal/untrusted/lingering", "internal/winsock", "internal/wire/fold",
	}},
}

func main() {
	write := flag.Bool("w", false, "write the picture")
	flag.Parse()
	if err := run(flag.Arg(0), *write); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(file string, write bool) error {
	imports, err := list()
	if err != nil {
		return err
	}
	if err := check(building, imports); err != nil {
		return err
	}
	text := draw(building, reduce(imports))
	if write {
		return os.WriteFile(file, text, 0o644)
	}
	if old, err := os.ReadFile(file); err != nil || !bytes.Equal(old, text) {
		return fmt.Errorf("%s is not up to date: run make docs", file)
	}
	return nil
}

// program reports whether a package is above all floors.
func program(path string) bool {
	return path == "interop" || strings.HasPrefix(path, "cmd/") || strings.HasPrefix(path, "examples/") ||
		strings.HasPrefix(path, "interop/") || strings.HasPrefix(path, "internal/tools/") ||
		path == "cabi" || strings.HasPrefix(path, "cabi/")
}

// list returns the imports within the module of each package that is not a program, on Linux.
func list() (map[string][]string, error) {
	cmd := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...")
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	imports := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		path := strings.TrimPrefix(f[0], module)
		if program(path) {
			continue
		}
		imports[path] = nil
		for _, to := range f[1:] {
			if to, ok := strings.CutPrefix(to, module); ok {
				imports[path] = append(imports[path], to)
			}
		}
	}
	return imports, nil
}

// check returns an error for each package without a floor and each import that does not point down.
func check(floors []floor, imports map[string][]string) error {
	level := map[string]int{}
	for i, f := range floors {
		for _, p := range f.packages {
			level[p] = i + 1
		}
	}
	var errs []error
	for _, p := range sorted(imports) {
		if level[p] == 0 {
			errs = append(errs, fmt.Errorf("%s is on no floor: add it to internal/tools/floors", p))
			continue
		}
		for _, to := range imports[p] {
			if level[to] != 0 && level[to] <= level[p] {
				errs = append(errs, fmt.Errorf("%s imports %s, which is not below it", p, to))
			}
		}
	}
	for p := range level {
		if _, ok := imports[p]; !ok {
			errs = append(errs, fmt.Errorf("%s does not exist: remove it from internal/tools/floors", p))
		}
	}
	return errors.Join(errs...)
}

func sorted(imports map[string][]string) (list []string) {
	for p := range imports {
		list = append(list, p)
	}
	slices.Sort(list)
	return list
}

// reduce removes the imports that follow from others.
func reduce(imports map[string][]string) map[string][]string {
	var reaches func(from, to string) bool
	reaches = func(from, to string) bool {
		return from == to || slices.ContainsFunc(imports[from], func(p string) bool { return reaches(p, to) })
	}
	reduced := map[string][]string{}
	for p, list := range imports {
		for _, to := range list {
			if !slices.ContainsFunc(list, func(other string) bool { return other != to && reaches(other, to) }) {
				reduced[p] = append(reduced[p], to)
			}
		}
	}
	return reduced
}
