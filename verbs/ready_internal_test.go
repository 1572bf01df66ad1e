package verbs

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/notify"
)

// TestEventsCountGoroutines: an event counts the goroutine that it makes ready, once while its token waits, and none
// where nobody has ever waited.
func TestEventsCountGoroutines(t *testing.T) {
	var q eventQueue[*CQ]
	count := func(what string, want uint32, do func()) {
		t.Helper()
		before := notify.Goroutines()
		if do(); notify.Goroutines()-before != want {
			t.Errorf("%s: %d goroutines, want %d", what, notify.Goroutines()-before, want)
		}
	}
	count("nobody waits", 0, func() { q.push(&CQ{}) })
	ready, _ := q.waiting()
	<-ready
	count("a goroutine waits", 1, func() { q.push(&CQ{}) })
	count("its token waits", 0, func() { q.push(&CQ{}) })
	w := newCQWaiters()
	count("Wait", 1, w.wake)
	count("its token waits", 0, w.wake)
}
