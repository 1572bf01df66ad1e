// Package serve is "verbena serve": it lets several users of a host share the devices. It owns the folders whose permissions decide who
// may, and is otherwise a process like those that attach. It imports verbs, internal/host and what the tools have in common.
package serve

import (
	"github.com/verbena-rdma/verbena/internal/tools/tool"
)

// Tool is the program.
func Tool() tool.Tool {
	return tool.Tool{Name: "serve", Short: "let several users share the devices", Run: run}
}
