// Package rdmashow is "verbena rdma link|resource|statistic show" in the format of iproute2's rdma, and "verbena top".
// They ask the running programs (internal/control): a device in user space has no kernel that knows.
//
//	rdma.go   the command line      host.go     devices and programs
//	filter.go lqpn 17, state RTS    output.go   lines and JSON
//	link.go, resource.go, statistic.go          what is shown
//	top.go    QPs and rates, live
package rdmashow

import (
	"fmt"
	"strings"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
)

// Tools lists the programs.
func Tools() []tool.Tool {
	return []tool.Tool{
		{Name: "rdma", Short: "devices, resources and counters, as iproute2's rdma shows them", Run: run},
		{Name: "top", Short: "QPs and their rates, live", Run: runTop},
	}
}

const usage = `[-j] [-p] [-d] link [show [DEV[/PORT]]]
[-j] [-p] resource [show [DEV]]
[-j] [-p] resource show qp|cm_id [link DEV[/PORT]] [FILTER VALUE]...
[-j] [-p] resource show pd|mr|cq|srq|ctx [dev DEV] [FILTER VALUE]...
[-j] [-p] statistic [show [link DEV[/PORT]]]
[-j] [-p] statistic qp [show [link DEV[/PORT]] [FILTER VALUE]...]`

// viewer runs one command.
type viewer struct {
	host host
	rows []row
}

// command is a word and what it does with those behind it.
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
	details := f.BoolP("details", "d", false, "more about links")
	if status, ok := f.Parse(args); !ok {
		return status
	}
	v := &viewer{host: h}
	words := f.Args()
	if n := len(words); n == 0 || words[n-1] == "help" {
		return f.Help()
	}
	if err := v.object(words, *details); err != nil {
		return env.Failf("%s: %v", env.Argv0, err)
	}
	for _, s := range h.silent() {
		fmt.Fprintf(env.Stderr, "%s: %s: %v\n", env.Argv0, s.Name, s.Err)
	}
	write := writeText
	if *asJSON {
		write = writeJSON
	}
	if err := write(env.Stdout, v.rows, *pretty); err != nil {
		return env.Failf("%s: %v", env.Argv0, err)
	}
	return 0
}

// object runs what the words say.
func (v *viewer) object(words []string, details bool) error {
	return pick("object", words, []command{
		{"link", func(w []string) error { return v.links(w, details) }},
		{"resource", v.resources},
		{"statistic", v.statistics},
	})
}

// pick runs the first command that the first word is or begins; with no word, the first one.
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

// isPrefix tells whether a word is a name or its beginning, of n characters at least.
func isPrefix(word, name string, n int) bool { return len(word) >= n && strings.HasPrefix(name, word) }
