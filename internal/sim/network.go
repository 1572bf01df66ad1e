package sim

import (
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/rdmatest"
)

// conditions are the faults of the network.
type conditions struct {
	faults   rdmatest.Faults
	lossy    bool // an answer may be missing, or so late that the request is retransmitted
	reorders bool // messages may arrive twice or in another order
	slow     bool // round trips take milliseconds

	cut    [most][most]bool // packets from one node to another are lost
	parted [most][most]bool // they were lost at some time
	gone   bool             // there is a permanent partition: connections across it must end with errors
}

// drawConditions draws a network. Loss and damage together stay below 3.5 %, so that eight failures in a row, which
// rightly end a connection, are too rare to occur.
func (w *world) drawConditions() {
	r, s := w.rand, &w.net
	some := func(most float64) float64 {
		if r.IntN(3) == 0 {
			return 0
		}
		return r.Float64() * most
	}
	f := &s.faults
	*f = rdmatest.Faults{
		Loss: some(0.025), Duplicate: some(0.05), Reorder: some(0.05), Corrupt: some(0.01),
		Delay: time.Duration(r.IntN(20)) * time.Microsecond, Jitter: time.Duration(r.IntN(5)) * time.Microsecond,
	}
	switch r.IntN(12) {
	case 0:
		s.slow = true
		f.Delay, f.Jitter = time.Duration(r.IntN(2000))*time.Microsecond, time.Duration(r.IntN(500))*time.Microsecond
	case 1:
		f.Loss, f.Duplicate, f.Reorder, f.Corrupt, f.Jitter = 0, 0, 0, 0, 0
	}
	if r.IntN(4) == 0 {
		f.ReorderDelay = time.Duration(1+r.IntN(3000)) * time.Microsecond // longer than some ACK time-outs
	}
	s.reorders = f.Duplicate > 0 || f.Reorder > 0 || f.Jitter > 0
	s.lossy = f.Loss > 0 || f.Corrupt > 0 || f.Reorder > 0 || f.Jitter > 0
	f.Script = w.partition
}

// mostPackets is a thousand times more than a run has.
const mostPackets = 2_000_000

// partition drops packets between separated nodes.
func (w *world) partition(p rdmatest.Packet) (rdmatest.Verdict, bool) {
	if p.Nth > mostPackets {
		panic("the traffic does not end")
	}
	if w.net.cut[indexOf(p.Src)][indexOf(p.Dst)] {
		w.tally.Cutoff++
		return rdmatest.Verdict{Drop: true}, true
	}
	return rdmatest.Verdict{}, false
}

// part separates two nodes, in one direction or both, until heal.
func (w *world) part() {
	a := w.rand.IntN(len(w.nodes))
	b := (a + 1 + w.rand.IntN(len(w.nodes)-1)) % len(w.nodes)
	w.cutOff(a, b)
	if w.rand.IntN(3) > 0 {
		w.cutOff(b, a)
	}
	w.tally.Partitions++
}

func (w *world) cutOff(a, b int) {
	w.note("partition", a, b)
	w.net.cut[a][b] = true
	w.net.parted[a][b], w.net.parted[b][a] = true, true
}

// heal ends all partitions except a permanent one.
func (w *world) heal() {
	if !w.net.gone {
		w.net.cut = [most][most]bool{}
	}
}

// partForGood separates two nodes until the end of the run.
func (w *world) partForGood() {
	w.net.gone = true
	w.tally.Broken++
	a := w.rand.IntN(len(w.nodes))
	b := (a + 1 + w.rand.IntN(len(w.nodes)-1)) % len(w.nodes)
	w.cutOff(a, b)
	w.cutOff(b, a)
}

func (s *conditions) String() string {
	f := &s.faults
	return fmt.Sprintf("loss %.3f, duplicate %.3f, reorder %.3f by %v, corrupt %.3f, delay %v, jitter %v",
		f.Loss, f.Duplicate, f.Reorder, f.ReorderDelay, f.Corrupt, f.Delay, f.Jitter)
}

// clear returns the faults of a network without faults, except a permanent partition. The delay stays: otherwise
// later packets would be reordered with those in flight.
func (s *conditions) clear() rdmatest.Faults {
	return rdmatest.Faults{Script: s.faults.Script, Delay: s.faults.Delay}
}
