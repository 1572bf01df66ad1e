// Package version is "verbena version": the version, commit and toolchain that the go command stored in the binary.
// It imports the standard library and internal/tools/tool.
package version

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
)

// Info describes a binary. Commit and Time are empty if it was built without its repository, as by "go install
// MODULE@VERSION" or with -buildvcs=false.
type Info struct {
	// Version is the module's version; "(devel)" if the build has none.
	Version string `json:"version"`
	// Commit is the commit's hash.
	Commit string `json:"commit,omitempty"`
	// Time is the commit's time (RFC 3339).
	Time string `json:"time,omitempty"`
	// Modified: the tree had changes that the commit lacks.
	Modified bool `json:"modified"`
	// Go is the toolchain, such as go1.26.0.
	Go string `json:"go"`
	// Platform is the system and the processor, such as linux/amd64.
	Platform string `json:"platform"`
}

// Of returns the description of this binary.
func Of() Info {
	b, ok := debug.ReadBuildInfo()
	if !ok {
		b = &debug.BuildInfo{}
	}
	return of(b)
}

func of(b *debug.BuildInfo) Info {
	i := Info{Version: b.Main.Version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if i.Version == "" {
		i.Version = "(devel)"
	}
	for _, s := range b.Settings {
		switch s.Key {
		case "vcs.revision":
			i.Commit = s.Value
		case "vcs.time":
			i.Time = s.Value
		case "vcs.modified":
			i.Modified = s.Value == "true"
		}
	}
	return i
}

// Print writes the description in lines.
func (i Info) Print(w io.Writer) {
	fmt.Fprintf(w, "verbena %s\n", i.Version)
	if i.Commit != "" {
		note := ""
		if i.Modified {
			note = ", with local changes"
		}
		fmt.Fprintf(w, "commit  %s of %s%s\n", i.Commit, i.Time, note)
	}
	fmt.Fprintf(w, "built   with %s for %s\n", i.Go, i.Platform)
}

// Tool returns the program.
func Tool() tool.Tool {
	return tool.Tool{Name: "version", Short: "print the version, the commit and the toolchain of this binary", Run: run}
}

func run(env *tool.Env, args []string) int {
	f := tool.NewFlags(env, "[--json]")
	asJSON := f.Bool("json", false, "print JSON")
	if status, ok := f.Parse(args); !ok {
		return status
	}
	if f.NArg() > 0 {
		return f.Misused(fmt.Sprintf("unexpected arguments %q", f.Args()))
	}
	if !*asJSON {
		Of().Print(env.Stdout)
		return 0
	}
	e := json.NewEncoder(env.Stdout)
	e.SetIndent("", "  ")
	if err := e.Encode(Of()); err != nil {
		return env.Failf("%v", err)
	}
	return 0
}
