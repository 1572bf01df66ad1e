// Package serve is "verbena serve": it lets several users of a host share the devices. It opens their
// sockets, gives up root's rights, and hands out sockets to processes, which do not trust each other; see
// docs/operations.md. It imports verbs, internal/{cm,host,wire}, internal/link/udp and
// internal/tools/tool.
package serve

import (
	"github.com/verbena-rdma/verbena/internal/tools/tool"
)

// Tool returns the program.
func Tool() tool.Tool {
	return tool.Tool{Name: "serve", Short: "let several users share the devices", Run: run}
}
