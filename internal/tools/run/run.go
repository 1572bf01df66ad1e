// Package run is "verbena run": it starts an unmodified C program with the libraries that "make cabi" builds. It finds
// them, refuses programs that cannot load them, and sets the environment. It imports verbs,
// internal/tools/{portrate,tool} and golang.org/x/sys, and for the names of counters in the virtual sysfs tree
// internal/{engine,iwtcp}.
package run

import (
	"fmt"
	"os"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
)

// Tool returns the program.
func Tool() tool.Tool {
	return tool.Tool{Name: "run", Short: "run a C program on Verbena's libibverbs.so.1", Run: run}
}

const usage = `[options] -- PROGRAM [ARGUMENT...]
[options] --env`

func run(env *tool.Env, args []string) int {
	f := tool.NewFlags(env, usage)
	f.SetInterspersed(false) // options after the program are the program's
	f.Programs = true
	export := f.Bool("env", false, "print the environment as export commands, for eval and mpirun -x")
	noPreload := f.Bool("no-preload", false, "no virtual /sys/class/infiniband and /dev/infiniband")
	sockets := f.Bool("sockets", false, "the program's TCP connections become rsockets; VERBENA_SOCKETS=all: its UDP too")
	explain := f.Bool("explain", false, "print why calls of the program fail, as VERBENA_EXPLAIN=1")
	devices := f.String("devices", "", "the devices, as VERBENA_DEVICES: IFACE,... or NAME=ADDR,...")
	if status, ok := f.Parse(args); !ok {
		return status
	}
	switch {
	case *export && f.NArg() > 0:
		return f.Misused("--env and a program: must be one of them")
	case !*export && f.NArg() == 0:
		return f.Misused("the program is missing")
	}
	l, err := findLibraries(os.Getenv)
	if err != nil {
		return env.Failf("%s: %v", env.Argv0, err)
	}
	set := map[string]string{}
	if f.Changed("devices") {
		set["VERBENA_DEVICES"] = *devices // for the tree, too
	}
	if *explain {
		set["VERBENA_EXPLAIN"] = "1"
	}
	for name, value := range set {
		if err := os.Setenv(name, value); err != nil {
			return env.Failf("%s: %v", env.Argv0, err)
		}
	}
	s := settings{libraries: l.dir}
	if *sockets {
		if l.sockets == "" {
			return env.Failf("%s: --sockets: %s lacks %s: make cabi builds it", env.Argv0, l.dir, socketsLib)
		}
		s.preloads = append(s.preloads, l.sockets)
	}
	if !*noPreload && l.sysfs != "" {
		tree, err := makeTree()
		if err != nil {
			fmt.Fprintf(env.Stderr, "%s: no virtual /sys/class/infiniband: %v; --no-preload does without\n", env.Argv0, err)
		} else {
			s.preloads, s.tree = append(s.preloads, l.sysfs), tree
		}
	}
	if *export {
		fmt.Fprint(env.Stdout, s.exports(os.Getenv))
		return 0
	}
	path, err := inspect(f.Arg(0), os.Getuid())
	if err != nil {
		return env.Failf("%s: %v", env.Argv0, err)
	}
	if err := execute(path, f.Args(), s.environ(os.Environ())); err != nil {
		return env.Failf("%s: %s: %v", env.Argv0, path, err)
	}
	return 0 // not reached: the program has taken this process
}
