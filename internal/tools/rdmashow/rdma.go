// Package rdmashow is "verbena rdma link|resource|statistic show" in the format of iproute2's rdma, and
// "verbena top". They ask the running programs (internal/control), because the kernel has no list of devices in user
// space.
//
//	rdma.go    the command line            host.go    devices and programs
//	filter.go  filters, as in lqpn 17      output.go  lines and JSON
//	link.go, resource.go, statistic.go     the objects
//	complete.go  words for a shell         top.go     QPs and rates, live
//
// It imports verbs, internal/{control,printable}, internal/tools/{nearest,portrate,tool} and golang.org/x/term.
package rdmashow

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/verbena-rdma/verbena/internal/control"
	"github.com/verbena-rdma/verbena/internal/printable"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
)

// Tools returns the programs.
func Tools() []tool.Tool {
	return []tool.Tool{
		{Name: "rdma", Short: "devices, resources and counters, as iproute2's rdma shows them", Run: run},
		{Name: "top", Short: "QPs and their rates, live", Run: runTop},
	}
}

const usage = `[-j] [-p] dev [show [DEV]]
[-j] [-p] [-d] link [show [DEV[/PORT]]]
[-j] [-p] resource [show [DEV]]
[-j] [-p] resource show qp|cm_id [link DEV[/PORT]] [FILTER VALUE]...
[-j] [-p] resource show pd|mr|cq|srq|ctx [dev DEV] [FILTER VALUE]...
[-j] [-p] statistic [show [link DEV[/PORT]]]
[-j] [-p] statistic qp [show [link DEV[/PORT]] [FILTER VALUE]...]
monitor
-V`

// viewer runs one command.
type viewer struct {
	host      host
	rows      []row
	out       io.Writer // of monitor, which prints by itself
	monitored bool      // monitor has run
}

// command is a word and the function for the words after it.
type command struct {
	name string
	run  func(words []string) error
}

func run(env *tool.Env, args []string) int { return show(env, &system{}, args) }

// show is run for the devices and programs of a host.
func show(env *tool.Env, h host, args []string) int {
	f := tool.NewFlags(env, usage)
	asJSON := f.BoolP("json", "j", false, "as JSON")
	pretty := f.BoolP("pretty", "p", false, "indented JSON; statistics: one counter per line")
	version := f.BoolP("Version", "V", false, "print the version of iproute2 whose output this is")
	details := f.BoolP("details", "d", false, "more about links")
	f.Words = func(words []string) []string { return proposals(h, words) }
	if status, ok := f.Parse(args); !ok {
		return status
	}
	if *version {
		fmt.Fprintln(env.Stdout, "rdma utility, of Verbena, with the output of iproute2-6.1.0")
		return 0
	}
	v := &viewer{host: h, out: env.Stdout}
	words := f.Args()
	if n := len(words); n == 0 || words[n-1] == "help" {
		return f.Help()
	}
	if err := v.object(words, *details); err != nil {
		return env.Failf("%s: %v", env.Argv0, err)
	}
	if v.monitored {
		return 0
	}
	complain(env, h.silent())
	write := writeText
	if *asJSON {
		write = writeJSON
	}
	if err := write(env.Stdout, v.rows, *pretty); err != nil {
		return env.Failf("%s: %v", env.Argv0, err)
	}
	return 0
}

// complain reports the programs that did not answer: those that this user may not ask in one line.
func complain(env *tool.Env, list []control.Silent) {
	forbidden := 0
	for _, s := range list {
		if errors.Is(s.Err, fs.ErrPermission) {
			forbidden++
			continue
		}
		env.Failf("%s: %s: %v", env.Argv0, printable.Text(s.Name), s.Err)
	}
	switch {
	case forbidden == 1:
		env.Failf("%s: 1 program of another user is not shown: run this as root, or as that user", env.Argv0)
	case forbidden > 1:
		env.Failf("%s: %d programs of other users are not shown: run this as root, or as those users", env.Argv0, forbidden)
	}
}

// object runs the command that the words name.
func (v *viewer) object(words []string, details bool) error {
	return pick("object", words, []command{
		{"dev", v.devs},
		{"link", func(w []string) error { return v.links(w, details) }},
		{"resource", v.resources},
		{"statistic", v.statistics},
		{"monitor", v.monitor},
	})
}

// pick runs the first command whose name begins with the first word; without words, the first command.
func pick(what string, words []string, commands []command) error {
	if len(words) == 0 {
		return commands[0].run(nil)
	}
	names := make([]string, len(commands))
	for i, c := range commands {
		if isPrefix(words[0], c.name, 1) {
			return c.run(words[1:])
		}
		names[i] = c.name
	}
	return fmt.Errorf("unknown %s %q; there are %s", what, words[0], strings.Join(names, ", "))
}

// isPrefix reports whether a word of at least n characters is a prefix of a name.
func isPrefix(word, name string, n int) bool { return len(word) >= n && strings.HasPrefix(name, word) }
