package sock

import (
	"errors"
	"slices"
	"sync"
	"syscall"
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

// An unlock that nobody waits for leaves no token: the next waiter would lose an attempt by it.
func TestUnlockWithoutWaiters(t *testing.T) {
	var l fairLock
	l.init()
	l.lock()
	if l.unlock(); len(l.free) != 0 || len(l.handed) != 0 || l.waiting.Load() != 0 {
		t.Errorf("%d tokens, %d handovers, %d waiters", len(l.free), len(l.handed), l.waiting.Load())
	}
}

// A waiter that has lost too often asks for a handover. Nobody else gets that, and the next waiter can ask for its own.
// The one that finds the lock free before the handover takes its request back.
func TestStarvingWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l fairLock
		l.init()
		l.lock()
		var order []int
		starve := func(i int) {
			go func() {
				l.lock()
				order = append(order, i)
			}()
			synctest.Wait()
			for range maxLosses {
				l.free <- struct{}{}
				synctest.Wait()
			}
		}
		starve(1)
		if !l.starving.Load() || len(order) != 0 {
			t.Fatalf("the first waiter starves %v, %v have the lock", l.starving.Load(), order)
		}
		l.taken.Store(false) // unlock did not see yet that it starves
		l.free <- struct{}{}
		if synctest.Wait(); l.starving.Load() || len(order) != 1 {
			t.Fatalf("starving %v, %v have the lock", l.starving.Load(), order)
		}
		starve(2)
		starve(3)
		for range 50 { // both try again, in turn
			l.free <- struct{}{}
			synctest.Wait()
		}
		if len(order) != 1 || l.waiting.Load() != 2 {
			t.Fatalf("%v have the lock, %d wait", order, l.waiting.Load())
		}
		if l.unlock(); l.tryLock() {
			t.Fatal("another goroutine takes the lock that is handed over")
		}
		if synctest.Wait(); l.starving.Load() || !slices.Equal(order, []int{1, 2}) || !l.taken.Load() {
			t.Fatalf("starving %v, %v have the lock after the handover", l.starving.Load(), order)
		}
		l.unlock()
		if synctest.Wait(); !slices.Equal(order, []int{1, 2, 3}) {
			t.Fatalf("%v have the lock", order)
		}
		l.unlock()
		if l.waiting.Load() != 0 || len(l.free) != 0 || len(l.handed) != 0 || !l.tryLock() {
			t.Errorf("%d waiters, %d tokens, %d handovers", l.waiting.Load(), len(l.free), len(l.handed))
		}
	})
}

// A call waits for the lock unless it must not wait.
func TestFairLockOfBothModes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l fairLock
		l.init()
		ok(t, l.lockMode(true))
		if err := l.lockMode(true); !errors.Is(err, syscall.EAGAIN) {
			t.Errorf("without waiting: %v", err)
		}
		waits := true
		go func() {
			ok(t, l.lockMode(false))
			waits = false
		}()
		if synctest.Wait(); !waits {
			t.Error("two goroutines have the lock")
		}
		l.unlock()
		if synctest.Wait(); waits || l.tryLock() {
			t.Errorf("it still waits: %v", waits)
		}
	})
}

// A waiter that gets the lock leaves the request of another one for a handover, and takes its own back. The handover is
// for the one that has asked.
func TestRequestForAHandover(t *testing.T) {
	won := map[int]bool{}
	for c := range 4 {
		lost, handover := c%2, c/2 == 1 // attempts of one of the two waiters, so that the other one is next
		synctest.Test(t, func(t *testing.T) {
			var l fairLock
			l.init()
			l.lock()
			winner := make(chan int, 2)
			token := func() {
				l.free <- struct{}{}
				synctest.Wait()
			}
			for i := range 2 { // the first one asks for a handover
				go func() {
					l.lock()
					winner <- i
				}()
				synctest.Wait()
				for range 3 * maxLosses {
					token()
				}
			}
			for range lost {
				token()
			}
			if handover {
				l.unlock()
			} else {
				l.taken.Store(false) // unlock did not see yet that one of them starves
				token()
			}
			first := <-winner
			if handover && first != 0 {
				t.Error("the waiter has the lock that has not asked for it")
			}
			if l.starving.Load() != (first == 1) {
				t.Errorf("waiter %d has the lock; the other one asks for it: %v", first, l.starving.Load())
			}
			won[first] = true
			l.unlock()
			<-winner
			l.unlock()
		})
	}
	if len(won) != 2 {
		t.Errorf("of the waiters %v have had the lock first, want each of them", won)
	}
}
