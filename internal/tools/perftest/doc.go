// Package perftest has the ib_*_bw and ib_*_lat programs: bandwidth and latency of SEND, WRITE, READ and
// atomics.
//
// Options, the exchange between the ends, the traffic and the columns of the results are those of perftest
// 6.06 (Debian 12's perftest 4.5+0.17), so either end may be a C program, with and without rdma_cm (-R). In
// addition, the device and the GID are chosen by the peer's address unless options name them, --json writes
// the results for programs, and --plot draws them.
//
//	options.go  the command line       peer.go   the exchange, over TCP or an RC connection
//	run.go      the order of steps     setup.go  buffers, queues, QPs; cm.go: the same with rdma_cm, xrc.go: with XRC
//	bw.go       bandwidth              lat.go    latency
//	report.go   results as text        plot.go   results as a picture
//	watch.go   the time of messages
//
// It imports verbs, rdmacm, internal/{lookup,secret,spin,winsock}, internal/tools/{chart,exchange,nearest,tool} and
// gonum.org/v1/plot.
package perftest

import (
	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/verbs"
)

type verb int

const (
	send verb = iota
	write
	read
	atomic
)

// waits reports whether responses carry data, so that requests need READ resources.
func (v verb) waits() bool { return v == read || v == atomic }

// A test is one of the programs.
type test struct {
	name string
	verb verb
	lat  bool
}

var tests = []*test{
	{"ib_send_bw", send, false}, {"ib_send_lat", send, true},
	{"ib_write_bw", write, false}, {"ib_write_lat", write, true},
	{"ib_read_bw", read, false}, {"ib_read_lat", read, true},
	{"ib_atomic_bw", atomic, false}, {"ib_atomic_lat", atomic, true},
}

// Tools lists the programs.
func Tools() (list []tool.Tool) {
	for _, t := range tests {
		what := map[bool]string{false: "bandwidth", true: "latency"}[t.lat]
		list = append(list, tool.Tool{Name: t.name, Short: what + " of " + t.verb.title(), Run: t.run})
	}
	return list
}

func (v verb) title() string {
	return [...]string{"SEND", "RDMA WRITE", "RDMA READ", "atomic operations"}[v]
}

// heading returns the name that the C program prints.
func (v verb) heading() string { return [...]string{"Send", "RDMA_Write", "RDMA_Read", "Atomic"}[v] }

// access returns the access flags of a QP and its region.
func (v verb) access() verbs.AccessFlags {
	return verbs.AccessLocalWrite | [...]verbs.AccessFlags{0, verbs.AccessRemoteWrite, verbs.AccessRemoteRead,
		verbs.AccessRemoteAtomic}[v]
}
