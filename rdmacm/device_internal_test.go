package rdmacm

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/cm"
)

// The two lists of the queue are never the same: events that are added while others are handled do not overwrite
// them.
func TestEventQueueKeepsWhatIsHandled(t *testing.T) {
	var q eventQueue
	next, want := 1, 1
	add := func(n int) {
		for range n {
			q.push(cm.Event{Type: cm.EventType(next)})
			next++
		}
	}
	for round := range 50 {
		add(round % 4)
		events := q.take()
		add(round % 3) // meanwhile
		for i := range events {
			if got := int(events[i].Type); got != want {
				t.Fatalf("round %d: event %d came instead of %d", round, got, want)
			}
			want++
		}
		if events != nil {
			q.giveBack(events)
		}
		if round%5 == 0 && q.take() != nil {
			want = next // those are taken and never handled
		}
	}
}
