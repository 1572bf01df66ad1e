package host

import (
	"testing"
	"time"
)

// TestRequestsOfTheFormerOwner checks to whom the leader forwards a request for a service ID that a member has just
// released.
func TestRequestsOfTheFormerOwner(t *testing.T) {
	now := time.Unix(1000, 0)
	l := newLeader(Key{}, &Config{}, &openStore{}, nil, nil)
	l.now = func() time.Time { return now }
	mail := make(chan []byte, maxFormer)
	member := func() *session {
		s := &session{send: func(f []byte) bool { mail <- f; return true }}
		if errno := l.table.add(s); errno != 0 {
			t.Fatal(errno)
		}
		return s
	}
	ask := func(s *session, k kind, id uint64) {
		t.Helper()
		if reply, _ := l.handle(s, frame{kind: k, id: id, slot: -1}); reply.errno != 0 {
			t.Fatalf("%c: %v", k, reply.errno)
		}
	}
	owner := func(id uint64) *session {
		if !l.forward(forService(id)) {
			return nil
		}
		s, _ := l.sorter.next()
		return s
	}
	a, b := member(), member()
	ask(b, kindUnlisten, 1) // which b has not claimed
	if owner(1) != nil {
		t.Error("a request was forwarded to a member that has never listened")
	}
	ask(a, kindListen, 1)
	ask(a, kindUnlisten, 1)
	if owner(1) != a || owner(2) != nil {
		t.Error("a request was not forwarded to the former owner, or another one was")
	}
	ask(b, kindListen, 1)
	if owner(1) != b {
		t.Error("a request was not forwarded to the new owner")
	}
	ask(b, kindUnlisten, 1)
	now = now.Add(formerTime - 1)
	if owner(1) != b {
		t.Error("a request was not forwarded to the last owner")
	}
	if now = now.Add(1); owner(1) != nil {
		t.Error("a request was forwarded to an owner of long ago")
	}
	ask(a, kindListen, 1)
	ask(a, kindUnlisten, 1)
	if l.leave(a); owner(1) != nil {
		t.Error("a request was forwarded to a member that has left")
	}
	for id := uint64(1); id <= maxFormer+1; id++ {
		ask(b, kindListen, id)
		ask(b, kindUnlisten, id)
	}
	if n := len(l.former); n != maxFormer || owner(1) != nil || owner(maxFormer+1) != b {
		t.Errorf("%d former owners: want %d, the newest", n, maxFormer)
	}
}
