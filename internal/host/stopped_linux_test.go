package host

import (
	"sync/atomic"
	"testing"
	"time"
)

// watchedStore counts the calls of use after the end of its leader.
type watchedStore struct {
	store
	l     *leader
	after atomic.Int32
}

func (s *watchedStore) use(first int, f func(fds []int)) error {
	if s.l.closed { // mu is held
		s.after.Add(1)
	}
	return s.store.use(first, f)
}

// TestStoppedLeaderLeavesTheSockets checks that a leader that stops does not change the sockets when its members leave
// for the next leader, which uses the same vault then: the offset of a peek belongs to both.
func TestStoppedLeaderLeavesTheSockets(t *testing.T) {
	key, leader := testLeader(t)
	member := testMember(t, key)
	member.claim(t, -1)
	if err := member.ClaimService(7471); err != nil {
		t.Fatal(err)
	}
	l := leader.leader
	s := &watchedStore{store: l.store, l: l}
	l.mu.Lock()
	l.store = s
	l.mu.Unlock()
	l.stop()
	l.mu.Lock()
	l.store = s.store // Close takes the vault
	l.mu.Unlock()
	if n := s.after.Load(); n > 0 {
		t.Errorf("%d uses of the sockets after the end", n)
	}
}

// TestDeathWithTheLeader checks that the next leader sends the last wills of a process that has died while the leader
// stopped, which does not send them any more.
func TestDeathWithTheLeader(t *testing.T) {
	key, leader := testLeader(t)
	next, dead := testMember(t, key), testMember(t, key)
	dead.claim(t, 7)
	dead.NewPlace(peerAddr, 0, 0, 0).Set([]byte("the last will"))
	dead.mu.Lock()
	dead.closed = true // it does not look for another leader
	dead.mu.Unlock()
	dead.unlock()
	leader.Close()
	select {
	case left := <-next.sent:
		if len(left) != 1 || string(left[0].MAD) != "the last will" {
			t.Errorf("sent: %v", left)
		}
	case <-time.After(10 * time.Second):
		t.Error("no last will was sent")
	}
}

// TestStoppedLeaderSendsWhatItHasCollected checks that a leader that reads the sockets of QP 1 sends last wills that it
// has collected just before its end: nobody else has them any more.
func TestStoppedLeaderSendsWhatItHasCollected(t *testing.T) {
	const rounds = 100
	var sent atomic.Int32
	for range rounds {
		l := newLeader(Key{}, &Config{Send: func([]Will) { sent.Add(1) }}, &openStore{}, nil, nil)
		close(l.reading)
		l.mu.Lock()
		l.send([]Will{{}})
		l.mu.Unlock()
		l.stop()
	}
	if n := sent.Load(); n != rounds {
		t.Errorf("the last wills were sent %d times of %d", n, rounds)
	}
}
