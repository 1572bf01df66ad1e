package host

import (
	"fmt"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire"
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

// TestHeldRequestsOfAnotherService checks that the owner of a service ID gets the requests that were held for it, and
// none for another ID, which wait further.
func TestHeldRequestsOfAnotherService(t *testing.T) {
	_, g := testLeader(t)
	l := g.leader
	got := make(chan []byte, 8)
	owner := &session{send: func(b []byte) bool { got <- b; return true }}
	l.mu.Lock()
	until := l.now().Add(heldTime)
	for _, service := range []uint64{1, 2, 1} {
		l.held = append(l.held, heldMail{service, forSlot(int(service), 64), until})
	}
	l.releaseHeld(1, owner)
	if len(l.held) != 1 || l.held[0].service != 2 {
		t.Errorf("%+v are held, want the request for the other ID", l.held)
	}
	l.mu.Unlock()
	for range 2 {
		if m, ok := parseMail(<-got); !ok || SlotOf(wire.BTH(m.Packet).DestQPN()) != 1 {
			t.Errorf("%+v came", m)
		}
	}
}
