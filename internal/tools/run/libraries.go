package run

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The files that "make cabi" builds.
const (
	ibverbs    = "libibverbs.so.1"
	engineLib  = "libverbena-engine.so"
	sysfsLib   = "libverbena-sysfs.so"
	socketsLib = "libverbena-sockets.so"
)

// libraries is a folder with the C libraries.
type libraries struct {
	dir            string
	sysfs, sockets string // the paths of sysfsLib and socketsLib; "" if they are missing
}

// findLibraries returns the first folder that has the libraries. If VERBENA_LIB is set it must be that folder.
func findLibraries(getenv func(string) string) (libraries, error) {
	if dir := getenv("VERBENA_LIB"); dir != "" {
		l, err := librariesIn(dir)
		if err != nil {
			return l, fmt.Errorf("VERBENA_LIB: %w: must be a folder with %s and %s, as make cabi builds them", err, ibverbs,
				engineLib)
		}
		return l, nil
	}
	places := []string{"/usr/lib/verbena"}
	if exe, err := os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(exe); err == nil {
			exe = real
		}
		dir := filepath.Dir(exe)
		places = append([]string{dir, filepath.Join(dir, "cabi"), filepath.Join(dir, "..", "lib", "verbena")}, places...)
	}
	for _, dir := range places {
		if l, err := librariesIn(dir); err == nil {
			return l, nil
		}
	}
	return libraries{}, fmt.Errorf("the C libraries are in none of %s: build them with make cabi, and use bin/verbena or "+
		"set VERBENA_LIB to their folder", strings.Join(places, ", "))
}

// librariesIn returns the libraries in dir.
func librariesIn(dir string) (libraries, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return libraries{}, err
	}
	if strings.ContainsAny(abs, ": ;$") {
		// The dynamic loader divides its lists there and expands the dollar.
		return libraries{}, fmt.Errorf("%q: must be a path without colon, semicolon, space and dollar", abs)
	}
	for _, name := range []string{ibverbs, engineLib} {
		if _, err := os.Stat(filepath.Join(abs, name)); err != nil {
			return libraries{}, err
		}
	}
	l := libraries{dir: abs}
	for name, path := range map[string]*string{sysfsLib: &l.sysfs, socketsLib: &l.sockets} {
		if _, err := os.Stat(filepath.Join(abs, name)); err == nil {
			*path = filepath.Join(abs, name)
		}
	}
	return l, nil
}
