package run

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// settings are what the environment of the program tells it.
type settings struct {
	libraries string // the folder
	preloads  []string
	tree      string // what stands for /sys; "" for none
}

// changes returns the variables to set, in terms of their present values.
func (s *settings) changes(getenv func(string) string) map[string]string {
	set := map[string]string{
		"LD_LIBRARY_PATH": join(s.libraries, getenv("LD_LIBRARY_PATH"), ":"),
	}
	list := getenv("LD_PRELOAD")
	for _, p := range slices.Backward(s.preloads) {
		list = join(p, list, ":")
		set["LD_PRELOAD"] = list
	}
	if s.tree != "" {
		set["VERBENA_SYSFS"] = s.tree
	}
	for _, name := range []string{"VERBENA_DEVICES", "VERBENA_EXPLAIN", "VERBENA_SOCKETS"} {
		if value := getenv(name); value != "" {
			set[name] = value
		}
	}
	return set
}

// join puts first at the beginning of a list, once: "verbena run" may run below "verbena run".
func join(first, list, separator string) string {
	out := []string{first}
	for _, e := range strings.Split(list, separator) {
		if e != "" && e != first {
			out = append(out, e)
		}
	}
	return strings.Join(out, separator)
}

// exports returns the changes as commands of the shell.
func (s *settings) exports(getenv func(string) string) string {
	var b strings.Builder
	set := s.changes(getenv)
	for _, name := range slices.Sorted(maps.Keys(set)) {
		fmt.Fprintf(&b, "export %s='%s'\n", name, strings.ReplaceAll(set[name], "'", `'\''`))
	}
	return b.String()
}

// environ returns old with the changes.
func (s *settings) environ(old []string) []string {
	set := s.changes(func(name string) string {
		for _, e := range slices.Backward(old) {
			if v, ok := strings.CutPrefix(e, name+"="); ok {
				return v
			}
		}
		return ""
	})
	var list []string
	for _, e := range old {
		name, _, _ := strings.Cut(e, "=")
		if _, ok := set[name]; !ok {
			list = append(list, e)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		list = append(list, name+"="+set[name])
	}
	return list
}
