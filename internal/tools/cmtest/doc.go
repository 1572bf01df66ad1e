// Package cmtest has librdmacm's test programs: ucmatose (reliable connections), udaddy (datagrams), mckey
// (multicast), rdma_client and rdma_server (synchronous endpoints), rdma_xclient and rdma_xserver (the same
// over RC or XRC) and cmtime (the duration of each step of connection set-up). Either end may be the C
// program.
//
// cmtime has the mode of rdma-core 44, server and client (cmtime.go), and that of version 60 to 64, servers and clients
// that a controller keeps in step (mesh*.go, oob.go).
//
// In ucmatose, udaddy and mckey a number of nodes connect, each with a PD, CQs, a QP and a buffer, and then
// send a number of messages in each direction. Their common parts are in test.go and node.go.
//
// The package imports rdmacm, verbs and internal/tools/tool.
package cmtest

import "github.com/verbena-rdma/verbena/internal/tools/tool"

// Tools lists the programs.
func Tools() []tool.Tool {
	return []tool.Tool{
		{Name: "ucmatose", Short: "make reliable connections and exchange messages", Run: runCmatose},
		{Name: "udaddy", Short: "find datagram services and exchange messages", Run: runUdaddy},
		{Name: "mckey", Short: "join a multicast group and send or receive messages", Run: runMckey},
		{Name: "rdma_client", Short: "connect to rdma_server and exchange a message", Run: runClient},
		{Name: "rdma_server", Short: "wait for rdma_client and exchange a message", Run: runServer},
		{Name: "rdma_xclient", Short: "connect to rdma_xserver and send it a message, over RC or XRC", Run: runXClient},
		{Name: "rdma_xserver", Short: "wait for rdma_xclient and receive a message, over RC or XRC", Run: runXServer},
		{Name: "cmtime", Short: "time the steps of making and ending connections", Run: runCMTime},
	}
}
