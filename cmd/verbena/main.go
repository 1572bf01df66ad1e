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
	status := run(os.Args, &tool.Env{Stdout: os.Stdout, Stderr: os.Stderr})
	stop()
	pcap.Flush() // devices of rdmacm are open until the process ends
	os.Exit(status)
}
