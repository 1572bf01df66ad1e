// Verbena is the project's command: a demonstration, the benchmarks, and the tools of the C libraries under
// their names.
//
// A link to the binary with the name of a tool runs that tool: after "verbena links ~/bin", ibv_devinfo is
// a command.
package main

import (
	"fmt"
	"os"

	"github.com/verbena-rdma/verbena/internal/link/pcap"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
)

func main() {
	stop, err := logEvents(os.Stderr, os.Getenv(envLog))
	if err != nil {
		fmt.Fprintln(os.Stderr, "verbena:", err)
		os.Exit(1)
	}
	env := &tool.Env{Argv0: "verbena", Stderr: os.Stderr}
	out := tool.NewOutput(os.Stdout, func(err error) {
		fmt.Fprintf(os.Stderr, "%s: cannot write the standard output: %v\n", env.Argv0, err)
	})
	env.Stdout = out
	status := run(os.Args, env)
	if out.Failed() && status == 0 {
		status = 1
	}
	stop()
	pcap.Flush() // devices of rdmacm are open until the process ends
	os.Exit(status)
}
