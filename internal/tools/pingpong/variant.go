// Package pingpong has the ibv_*_pingpong programs: two processes exchange a message back and forth over
// RC, UC, UD, RC with a shared receive queue, or XRC.
//
// Options, the exchange over TCP, the messages and the output are those of the C programs of rdma-core 44,
// so either end may be one. In addition, device and GID are chosen by the peer's address unless options
// name them, and -c also sets the exit status. The package imports verbs, internal/secret and
// internal/tools/{exchange,nearest,tool}.
package pingpong

import (
	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/verbs"
)

// A variant is one of the programs.
type variant struct {
	name   string
	short  string
	typ    verbs.QPType
	srq    bool // many QPs share one receive queue
	bytes  uint // default message size
	fill   byte // initial value of the buffer's bytes
	grh    int  // bytes before the payload in the buffer
	format string
}

const (
	localFormat   = "  local address:  LID 0x%04x, QPN 0x%06x, PSN 0x%06x, GID %s\n"
	localFormatUD = "  local address:  LID 0x%04x, QPN 0x%06x, PSN 0x%06x: GID %s\n"
	remoteFormat  = "  remote address: LID 0x%04x, QPN 0x%06x, PSN 0x%06x, GID %s\n"

	grhLen = 40

	// udQKey is the Q_Key that both ends of ibv_ud_pingpong use.
	udQKey = 0x11111111

	// maxQP is the number of messages that ibv_srq_pingpong exchanges, however many QPs it uses.
	maxQP = 256
)

var variants = []*variant{
	{
		name: "ibv_rc_pingpong", short: "ping-pong over a reliable connection", typ: verbs.QPTypeRC,
		bytes: 4096, fill: 0x7b, format: localFormat,
	},
	{
		name: "ibv_uc_pingpong", short: "ping-pong over an unreliable connection", typ: verbs.QPTypeUC,
		bytes: 4096, fill: 0x7b, format: localFormat,
	},
	{
		name: "ibv_ud_pingpong", short: "ping-pong by unreliable datagrams", typ: verbs.QPTypeUD,
		bytes: 1024, fill: 0x7b, grh: grhLen, format: localFormatUD,
	},
	{
		name: "ibv_srq_pingpong", short: "ping-pong over many reliable connections with a shared receive queue",
		typ:   verbs.QPTypeRC,
		bytes: 4096, srq: true, format: localFormat,
	},
}

// Tools returns the programs.
func Tools() []tool.Tool {
	var list []tool.Tool
	for _, v := range variants {
		list = append(list, tool.Tool{Name: v.name, Short: v.short, Run: v.run})
	}
	return append(list, tool.Tool{Name: xsrqVariant.name, Short: xsrqVariant.short, Run: runXSRQ})
}
