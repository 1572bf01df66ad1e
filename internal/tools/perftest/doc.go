// Package perftest is the ib_*_bw and ib_*_lat programs: bandwidth and latency of SEND, WRITE, READ and atomics.
//
// Options, the exchange between the ends, what is sent and the columns of the results are those of perftest 6.06 (Debian 12's
// perftest 4.5+0.17), so that either end may be a C program, with and without rdma_cm (-R). Beyond them the device and the GID are
// chosen by the peer's address unless options name them, --json writes results for programs, and --plot draws them.
//
//	options.go  the command line            peer.go   the exchange, over TCP or an RC connection
//	run.go      the order of events         setup.go  buffers, queues, QPs; cm.go: those of rdma_cm
//	bw.go       bandwidth                   lat.go    latency
//	report.go   results as text             plot.go   as a picture
//
// It imports verbs, rdmacm, internal/lookup and internal/tools.
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

// waits tells whether requests of the kind bring data back, and need READ resources.
func (v verb) waits() bool { return v == read || v == atomic }

// A test is what distinguishes one of the programs.
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

// heading is what the original prints.
func (v verb) heading() string { return [...]string{"Send", "RDMA_Write", "RDMA_Read", "Atomic"}[v] }

// access is what a QP and its region grant to the peer.
func (v verb) access() verbs.AccessFlags {
	return verbs.AccessLocalWrite | [...]verbs.AccessFlags{0, verbs.AccessRemoteWrite, verbs.AccessRemoteRead, verbs.AccessRemoteAtomic}[v]
}
