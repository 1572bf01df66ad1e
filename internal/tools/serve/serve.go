// Package serve is "verbena serve": it lets several users of a host share the devices. It opens their
// sockets, gives up root's rights, and hands out sockets to processes, which do not trust each other; see
// docs/operations.md. It imports verbs, internal/{cm,host,wire}, internal/link/udp and
// internal/tools/tool.
package serve

import (
	"fmt"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
)

// Tool returns the program.
func Tool() tool.Tool {
	return tool.Tool{Name: "serve", Short: "let several users share the devices", Run: run}
}

type options struct {
	devices           []string
	group, mode, user string
}

func run(env *tool.Env, args []string) int {
	var o options
	f := tool.NewFlags(env, "[options]")
	f.StringSliceVarP(&o.devices, "ib-dev", "d", nil, "share these devices (default: all)")
	f.StringVarP(&o.group, "group", "g", "", "let this group of users attach (default: your group)")
	f.StringVarP(&o.mode, "mode", "m", "0770", "users that may attach, as permissions of a folder: owner, group, others")
	f.StringVarP(&o.user, "user", "u", "",
		"become this user when all sockets are open (default for root: verbena if it exists, else nobody)")
	if status, ok := f.Parse(args); !ok {
		return status
	}
	if f.NArg() > 0 {
		return f.Misused(fmt.Sprintf("unexpected arguments %q", f.Args()))
	}
	return o.serve(env, f)
}
