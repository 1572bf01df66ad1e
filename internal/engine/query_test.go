package engine

import "testing"

// A request posted while another goroutine holds the shard is only published. Query has sent it when it returns, even
// if yet another goroutine waits for the shard: that one would send it, but later.
func TestQuerySendsWhatWasPublished(t *testing.T) {
	r, _ := manualRally(t)
	s := r.qa.shard
	sent := func() uint64 { return s.port.Counters().TxPackets }
	before := sent()
	s.hold()
	s.waiters.Add(1)
	r.post(r.qa)
	if n := sent() - before; n != 0 {
		t.Fatalf("%d packets sent by a goroutine that does not hold the shard", n)
	}
	s.held.Store(free) // the holder has looked for published work already
	r.qa.Query()
	if n := sent() - before; n != 1 {
		t.Errorf("%d packets sent when Query returns, want 1", n)
	}
	s.waiters.Add(-1)
}
