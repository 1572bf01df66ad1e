package host

import (
	"fmt"
	"testing"
)

// TestMailIsBounded checks the limits of the mail of one member and of all, and that a full queue does not keep mail
// from the other members.
func TestMailIsBounded(t *testing.T) {
	o := &sorter{ready: make(chan struct{}, 1)}
	greedy, other := &session{}, &session{}
	for i := range memberMail + 3 {
		o.put(greedy, []byte{byte(i)})
	}
	o.put(other, []byte("other"))
	if n := o.dropped.Load(); n != 3 || len(o.ready) != 1 {
		t.Errorf("%d dropped, want 3; %d tokens", n, len(o.ready))
	}
	var order []string
	for s, f := o.next(); s != nil; s, f = o.next() {
		if s == other {
			order = append(order, string(f))
		} else {
			order = append(order, fmt.Sprint(f[0]))
		}
	}
	if len(order) != memberMail+1 || order[0] != "0" || order[1] != "other" || order[2] != "1" {
		t.Errorf("%d frames, first %v", len(order), order[:3])
	}
	if o.bytes != 0 || greedy.inTurns || other.inTurns {
		t.Errorf("%d bytes, in turns: %v and %v", o.bytes, greedy.inTurns, other.inTurns)
	}

	half := make([]byte, allMail/2)
	o.put(greedy, half)
	o.put(other, half)
	o.put(&session{}, []byte{1})
	if n := o.dropped.Load(); n != 4 || o.bytes != allMail {
		t.Errorf("%d dropped, want 4; %d bytes", n, o.bytes)
	}
	if s, _ := o.next(); s != greedy {
		t.Error("the members are not served in turn")
	}
}
