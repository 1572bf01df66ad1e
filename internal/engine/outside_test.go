package engine

import (
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/transport"
)

// calls counts the calls of an Outside.
type calls struct {
	active, passive, awaits, handOvers int
	busy                               bool // another goroutine runs the QPs
}

func (c *calls) Poll(active bool) {
	if active {
		c.active++
	} else {
		c.passive++
	}
}

func (c *calls) Await(time.Duration) bool { c.awaits++; return !c.busy }
func (c *calls) HandOver()                { c.handOvers++ }

// A poller that finds nothing runs the QPs that no shard runs. It counts as an active one unless an event is requested.
func TestPollersRunOutsideQPs(t *testing.T) {
	cq, _ := testCQ(t, 16)
	var c calls
	cq.Join(&c)
	cq.Join(&c)
	poll(t, cq)
	if c != (calls{active: 1}) {
		t.Errorf("an empty poll: %+v", c)
	}
	cq.Push(&transport.CQE{SQ: transport.NewSendQueue(4, 1, 0)})
	if n := poll(t, cq); n != 1 || c.active != 1 {
		t.Errorf("%d completions, %+v", n, c)
	}
	if err := cq.Arm(false); err != nil {
		t.Fatal(err)
	}
	poll(t, cq)
	if c != (calls{active: 1, passive: 1, handOvers: 1}) {
		t.Errorf("a poll of an armed CQ: %+v", c)
	}
	cq.Leave()
	poll(t, cq)
	cq.Leave()
	poll(t, cq)
	if c.passive != 2 {
		t.Errorf("%d polls before the last QP has left: want 2", c.passive)
	}
}

// A poller that sleeps because cores are scarce waits for the sockets itself. If another goroutine does, it waits for a
// completion.
func TestPollersAwaitOutsideQPs(t *testing.T) {
	e := testEngine(t, 1, Config{})
	cq := e.NewCQ(16, 0, silent{})
	var c calls
	cq.Join(&c)
	defer cq.Leave()
	if !cq.await() || c != (calls{awaits: 1}) {
		t.Errorf("%+v", c)
	}
	c = calls{busy: true}
	if !cq.await() || c != (calls{awaits: 1, handOvers: 1, busy: true}) {
		t.Errorf("while another goroutine runs them: %+v", c)
	}
}
