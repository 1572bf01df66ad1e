package rsocket

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// One has the turn at a time, in the order of asking; time passes for a bubble while others wait.
func TestTurnsAreInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turn turn
		turn.init()
		turn.take()
		if turn.tryTake() {
			t.Fatal("two have it")
		}
		var order []int // whoever has the turn writes here
		var all sync.WaitGroup
		for i := range 5 {
			all.Go(func() {
				turn.take()
				defer turn.give()
				order = append(order, i)
				time.Sleep(time.Second)
			})
			synctest.Wait()
		}
		turn.give()
		all.Wait()
		for i, who := range order {
			if who != i {
				t.Fatalf("the order was %v", order)
			}
		}
		if len(order) != 5 || !turn.tryTake() {
			t.Fatalf("after %d nobody gets it", len(order))
		}
	})
}

// Those who come and go without waiting do not let two in.
func TestTurnsUnderContention(t *testing.T) {
	var turn turn
	turn.init()
	var all sync.WaitGroup
	n, had := 0, make([]int, 4) // n belongs to whoever has the turn
	for i := range had {
		all.Go(func() {
			for range 2000 {
				if i%2 == 0 {
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
	if want := had[0] + had[1] + had[2] + had[3]; n != want || had[0] != 2000 {
		t.Errorf("counted %d of %d, %v", n, want, had)
	}
}
