package rsocket

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// One has the turn at a time, and time passes for a bubble while others wait.
func TestTurnsInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turn turn
		turn.init()
		turn.take()
		if turn.tryTake() {
			t.Fatal("two have it")
		}
		had := 0 // whoever has the turn writes here
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				turn.take()
				had++
				time.Sleep(time.Second)
				turn.give()
			})
		}
		time.Sleep(time.Second)
		begin := time.Now()
		turn.give()
		all.Wait()
		if took := time.Since(begin); took != 5*time.Second || had != 5 || !turn.tryTake() {
			t.Fatalf("%d had it in %v", had, took)
		}
	})
}

// Those who come and go without waiting do not let two in, and no waiter is forgotten.
func TestTurnsUnderContention(t *testing.T) {
	for range 20 {
		var turn turn
		turn.init()
		var all sync.WaitGroup
		n, had := 0, make([]int, 6) // n belongs to whoever has the turn
		for i := range had {
			all.Go(func() {
				for range 500 {
					if i%3 != 2 {
						turn.take()
					} else if !turn.tryTake() {
						continue
					}
					n++
					had[i]++
					turn.give()
				}
			})
		}
		all.Wait()
		sum := 0
		for _, k := range had {
			sum += k
		}
		if n != sum || had[0] != 500 || had[1] != 500 || turn.hungry.Load() || turn.waiting.Load() != 0 || !turn.tryTake() {
			t.Fatalf("counted %d of %d, %v", n, sum, had)
		}
	}
}

// Whoever gives the turn up and takes it again at once does not keep it for ever.
func TestTurnsAreHanded(t *testing.T) {
	var turn turn
	turn.init()
	turn.take()
	got := make(chan struct{})
	go func() {
		turn.take()
		close(got)
	}()
	for {
		select {
		case <-got:
			turn.give()
			return
		default:
		}
		time.Sleep(time.Millisecond) // the other one is awake by then
		turn.give()
		if !turn.tryTake() {
			<-got
			turn.give()
			return
		}
	}
}
