// Package doctor is "verbena doctor": it looks at what RDMA over this host's devices needs, and at the way to a peer, says what is wrong, and
// what to type. It changes nothing. It imports verbs, rdmacm, internal/lookup and what the tools have in common.
package doctor

import (
	"context"
	"encoding/json"
	"time"

	"github.com/verbena-rdma/verbena/internal/tools/term"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
)

// Tool is the program.
func Tool() tool.Tool {
	return tool.Tool{Name: "doctor", Short: "find out what keeps RDMA from working, here or to a peer", Run: run}
}

// A level is how bad a finding is.
type level string

const (
	good level = "ok"
	note level = "note"    // works, but might work better, or is not in use
	bad  level = "problem" // does not work
)

// A finding is one thing that was looked at.
type finding struct {
	Level level  `json:"level"`
	What  string `json:"what"`           // what was looked at
	Found string `json:"found"`          // what is so
	Type  string `json:"type,omitempty"` // what to type, or to do
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
	timeout := f.Duration("timeout", 5*time.Second, "how long to wait for the peer")
	if status, ok := f.Parse(args); !ok {
		return status
	}
	if f.NArg() > 1 {
		return f.Misused("one peer at a time")
	}
	if f.NArg() == 1 && f.Arg(0) == "" {
		return f.Misused("the peer is empty; a name or an address is needed")
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
