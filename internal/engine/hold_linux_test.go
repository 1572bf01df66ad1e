package engine

import (
	"sync"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"
)

// TestHoldWithMutexInBubble has a goroutine wait for a shard so long that it sleeps, while it has a mutex that another
// one waits for. In a bubble of synctest a sleep of package time would never end then.
func TestHoldWithMutexInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shard{}
		s.held.Store(busy)
		var mu sync.Mutex
		locked := make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() {
			mu.Lock()
			close(locked)
			s.hold()
			s.held.Store(free)
			mu.Unlock()
		})
		<-locked
		all.Go(func() {
			mu.Lock()
			defer mu.Unlock()
		})
		for range 100 { // of the machine's time: the first goroutine sleeps for most of it
			_ = unix.Nanosleep(&unix.Timespec{Nsec: 1e6}, nil)
		}
		s.held.Store(free)
		all.Wait()
	})
}
