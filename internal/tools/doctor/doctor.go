// Package doctor is "verbena doctor". It checks what RDMA needs on this host and on the route to a peer,
// and prints each problem with a remedy. It changes nothing. It imports verbs, rdmacm,
// internal/{driver,host,lookup,wire}, internal/tools/{nearest,portrate,term,tool} and golang.org/x/sys.
package doctor

import (
	"context"
	"encoding/json"
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/term"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
)

// Tool returns the program.
func Tool() tool.Tool {
	return tool.Tool{Name: "doctor", Short: "find out what keeps RDMA from working, here or to a peer", Run: run}
}

// A level is the severity of a finding.
type level string

const (
	good level = "ok"
	note level = "note"    // works, but is slow or unused
	bad  level = "problem" // does not work
)

// A finding is the result of one check.
type finding struct {
	Level level  `json:"level"`
	What  string `json:"what"`           // the object of the check
	Found string `json:"found"`          // the result
	Type  string `json:"type,omitempty"` // the remedy: a command or an action
}

// report collects findings.
type report struct{ all []finding }

func (r *report) add(l level, what, found, typ string) {
	r.all = append(r.all, finding{l, what, found, typ})
}

func (r *report) problems() (n int) {
	for _, f := range r.all {
		if f.Level == bad {
			n++
		}
	}
	return n
}

func run(env *tool.Env, args []string) int {
	f := tool.NewFlags(env, "[options] [PEER]")
	asJSON := f.Bool("json", false, "print JSON")
	timeout := f.Duration("timeout", 5*time.Second, "time-out for the peer")
	if status, ok := f.Parse(args); !ok {
		return status
	}
	if f.NArg() > 1 {
		return f.Misused("more than one peer")
	}
	if f.NArg() == 1 && f.Arg(0) == "" {
		return f.Misused("the peer is empty: must be a name or an address")
	}
	if *timeout <= 0 {
		return f.Misused("the timeout must be positive")
	}
	var r report
	r.host()
	if f.NArg() == 1 {
		ctx, cancel := context.WithTimeout(context.Background(), *timeout)
		defer cancel()
		r.peer(ctx, f.Arg(0))
	}
	if *asJSON {
		e := json.NewEncoder(env.Stdout)
		e.SetIndent("", "  ")
		if err := e.Encode(r.all); err != nil {
			return env.Failf("%v", err)
		}
	} else {
		r.print(term.NewPrinter(env.Stdout))
	}
	if r.problems() > 0 {
		return 1
	}
	return 0
}

func (r *report) print(p *term.Printer) {
	for _, f := range r.all {
		mark := map[level]string{good: p.Green("ok     "), note: p.Dim("note   "), bad: p.Red("PROBLEM")}[f.Level]
		p.Printf("%s  %s: %s\n", mark, f.What, f.Found)
		if f.Type != "" {
			p.Printf("         -> %s\n", f.Type)
		}
	}
	switch n := r.problems(); n {
	case 0:
		p.Printf("\nNo problem found.\n")
	case 1:
		p.Printf("\n1 problem found.\n")
	default:
		p.Printf("\n%d problems found.\n", n)
	}
}
