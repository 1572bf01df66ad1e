package sock

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// One goroutine at a time has the lock, and virtual time passes while others wait.
func TestFairLockInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l fairLock
		l.init()
		l.lock()
		if l.tryLock() {
			t.Fatal("two goroutines hold the lock")
		}
		had := 0 // written by the owner of the lock
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				l.lock()
				had++
				time.Sleep(time.Second)
				l.unlock()
			})
		}
		time.Sleep(time.Second)
		begin := time.Now()
		l.unlock()
		all.Wait()
		if took := time.Since(begin); took != 5*time.Second || had != 5 || !l.tryLock() {
			t.Fatalf("%d goroutines held the lock in %v", had, took)
		}
	})
}

// Attempts without waiting never give the lock to two goroutines, and every waiter gets it.
func TestFairLockUnderContention(t *testing.T) {
	for range 20 {
		var l fairLock
		l.init()
		var all sync.WaitGroup
		n, had := 0, make([]int, 6) // n belongs to the owner of the lock
		for i := range had {
			all.Go(func() {
				for range 500 {
					if i%3 != 2 {
						l.lock()
					} else if !l.tryLock() {
						continue
					}
					n++
					had[i]++
					l.unlock()
				}
			})
		}
		all.Wait()
		sum := 0
		for _, k := range had {
			sum += k
		}
		if n != sum || had[0] != 500 || had[1] != 500 || l.starving.Load() || l.waiting.Load() != 0 || !l.tryLock() {
			t.Fatalf("counted %d of %d, %v", n, sum, had)
		}
	}
}

// A goroutine that unlocks and locks again at once does not keep the lock forever.
func TestFairLockHandover(t *testing.T) {
	var l fairLock
	l.init()
	l.lock()
	got := make(chan struct{})
	go func() {
		l.lock()
		close(got)
	}()
	for {
		select {
		case <-got:
			l.unlock()
			return
		default:
		}
		time.Sleep(time.Millisecond) // the waiter is awake by then
		l.unlock()
		if !l.tryLock() {
			<-got
			l.unlock()
			return
		}
	}
}
