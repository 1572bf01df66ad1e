// Package rstools has librdmacm's programs for rsockets, with their options and output: rstream, riostream,
// rcopy and udpong. Either end may be the C program. It imports rsocket, rsocket/socket, verbs,
// internal/{lookup,printable} and internal/tools/tool.
package rstools

import "github.com/verbena-rdma/verbena/internal/tools/tool"

// Tools returns the programs.
func Tools() []tool.Tool {
	return []tool.Tool{
		{Name: "rstream", Short: "streaming over rsockets: latency and throughput by size", Run: runStream},
		{Name: "riostream", Short: "rstream with direct writes to the peer's memory (riowrite)", Run: runIOStream},
		{Name: "rcopy", Short: "copy a file to another host over rsockets", Run: runCopy},
		{Name: "udpong", Short: "datagrams over rsockets: echo and throughput by size", Run: runUDPong},
	}
}
