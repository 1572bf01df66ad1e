// Verbena is the project's command: a demonstration, the benchmarks, and the tools that
// people know from the C libraries, under their names.
//
// A link to it that bears a tool's name runs that tool: after "verbena links ~/bin",
// ibv_devinfo is a command.
package main

import (
	"os"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
)

func main() {
	os.Exit(run(os.Args, &tool.Env{Stdout: os.Stdout, Stderr: os.Stderr}))
}
