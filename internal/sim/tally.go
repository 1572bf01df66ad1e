package sim

import (
	"fmt"
	"io"

	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// A Tally counts the events of runs, which shows that the faults and the recoveries happened.
type Tally struct {
	rdmatest.Stats
	Runs           uint64
	Cutoff         uint64 // packets lost by partitions
	Partitions     uint64 // temporary, in one direction or both
	Broken         uint64 // runs with a permanent partition
	Posted         uint64 // send requests
	Completions    uint64
	Errors         uint64 // completions with another status than success
	Statuses       [32]uint64
	ThroughWindows uint64 // requests through memory windows
	Invalidated    uint64 // SENDs that invalidated a window
	Faults         [faultKinds]uint64
	Recovered      uint64 // pairs that were checked after a failure
	Reconnected    uint64 // of those, the ones that were reconnected with new PSNs
	Drained        uint64 // send queues that were drained (SQD) and resumed
	Resized        uint64 // completion queues
	Notified       uint64 // completion events
	Tails          uint64 // unreliable messages whose delivery is certain
}

// Add adds the tally of another run.
func (t *Tally) Add(o *Tally) {
	t.Runs += o.Runs
	t.Sent += o.Sent
	t.Delivered += o.Delivered
	t.Lost += o.Lost
	t.Repeated += o.Repeated
	t.Corrupted += o.Corrupted
	t.Unknown += o.Unknown
	t.Overflow += o.Overflow
	t.Cutoff += o.Cutoff
	t.Partitions += o.Partitions
	t.Broken += o.Broken
	t.Posted += o.Posted
	t.Completions += o.Completions
	t.Errors += o.Errors
	t.ThroughWindows += o.ThroughWindows
	t.Invalidated += o.Invalidated
	t.Recovered += o.Recovered
	t.Reconnected += o.Reconnected
	t.Drained += o.Drained
	t.Resized += o.Resized
	t.Notified += o.Notified
	t.Tails += o.Tails
	for i, n := range o.Statuses {
		t.Statuses[i] += n
	}
	for i, n := range o.Faults {
		t.Faults[i] += n
	}
}

// Print writes the sums, a line for each group.
func (t *Tally) Print(w io.Writer) {
	fmt.Fprintf(w, "packets: %d sent, %d lost, %d repeated, %d corrupted, %d lost by partitions, %d to a closed device\n",
		t.Sent, t.Lost-t.Cutoff, t.Repeated, t.Corrupted, t.Cutoff, t.Unknown)
	fmt.Fprintf(w, "faults: %d partitions, %d runs with a permanent partition", t.Partitions, t.Broken)
	for k, n := range t.Faults[noFault+1:] {
		fmt.Fprintf(w, ", %d %v", n, noFault+1+faultKind(k))
	}
	fmt.Fprintf(w, "\nprograms: %d sends posted, %d through windows, ", t.Posted, t.ThroughWindows)
	fmt.Fprintf(w, "%d invalidations, %d queues drained, %d CQs resized, %d completion events\n",
		t.Invalidated, t.Drained, t.Resized, t.Notified)
	fmt.Fprintf(w, "after failures: %d pairs checked, %d of them reconnected; %d unreliable messages that had to arrive\n",
		t.Recovered, t.Reconnected, t.Tails)
	fmt.Fprintf(w, "completions: %d", t.Completions)
	for s, n := range t.Statuses {
		if n > 0 {
			fmt.Fprintf(w, ", %d %v", n, verbs.WCStatus(s).Name())
		}
	}
	fmt.Fprintln(w)
}
