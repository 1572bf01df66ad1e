package rdmacm

import (
	"slices"
	"testing"
)

// A call forgets the errors of resolving that a synchronous ID has left in its channel: no other events, and none of
// another ID. An asynchronous ID keeps them for the program.
func TestForgottenErrors(t *testing.T) {
	for _, sync := range []bool{true, false} {
		ch := newChannel(nil)
		id, other := &ID{ps: PSTCP}, &ID{ps: PSTCP}
		var want []*Event
		for _, owner := range []*ID{id, other} {
			for event := EventAddrResolved; event <= EventUser; event++ {
				ev := &Event{Type: event, owner: owner}
				ch.push(ev)
				if !sync || owner == other || event != EventAddrError && event != EventRouteError {
					want = append(want, ev)
				}
			}
		}
		id.mu.Lock()
		id.reporting = reporting{ch: ch, sync: sync}
		id.forgetErrors()
		id.mu.Unlock()
		if !slices.Equal(ch.queue, want) {
			t.Errorf("synchronous %v: %d events are left, want %d", sync, len(ch.queue), len(want))
		}
	}
}
