package sock

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/notify"
)

// Waiter is a goroutine that waits for a change.
type Waiter struct {
	C    chan struct{} // with room for one token
	on   bool          // guarded by stream.mu
	bell *notify.FD    // what the wait in the kernel of one with ordinary descriptors ends at; else nil
	// asleep says that Wake must ring the bell. The waiter sets it before it looks for a token once more.
	asleep atomic.Bool
	rung   chan struct{} // with room for one token: a goroutine has rung the bell; nil if Wake rings it itself
}

// NewWaiter returns a waiter at a channel.
func NewWaiter() Waiter { return Waiter{C: make(chan struct{}, 1)} }

// NewSleeper returns a waiter that sleeps in the kernel, which ends when the bell is readable. The bell must be open
// until no socket is watched any more. The kernel runs the woken thread at once. If later is set, the goroutine that
// wakes the waiter does first what else it has to do, so that a waiter for many sockets finds more than one event.
func NewSleeper(bell *notify.FD, later bool) *Waiter {
	w := &Waiter{C: make(chan struct{}, 1), bell: bell}
	if later {
		w.rung = make(chan struct{}, 1)
	}
	return w
}

// Wake ends the wait of w, or its next one.
func (w *Waiter) Wake() {
	select {
	case w.C <- struct{}{}:
	default:
	}
	if w.bell == nil || !w.asleep.CompareAndSwap(true, false) {
		return
	}
	if w.rung == nil {
		w.bell.Raise()
		return
	}
	go func() {
		w.bell.Raise()
		w.rung <- struct{}{}
	}()
}

// Sleep calls wait, unless Wake was called since the last Sleep. wait returns when the bell is readable or for a reason
// of its own.
func (w *Waiter) Sleep(wait func()) {
	w.asleep.Store(true)
	select {
	case <-w.C:
	default:
		wait()
	}
	if !w.asleep.Swap(false) {
		if w.rung != nil {
			<-w.rung
		}
		w.bell.Clear()
	}
	select {
	case <-w.C:
	default:
	}
}

// waiters are goroutines that wait for the same change. The lock of the owner guards them.
type waiters []*Waiter

func (l *waiters) add(w *Waiter) { *l = append(*l, w) }

func (l *waiters) remove(w *Waiter) {
	*l = slices.DeleteFunc(*l, func(o *Waiter) bool { return o == w })
}

func (l waiters) Wake() {
	for _, w := range l {
		w.Wake()
	}
}

// sleepers are those waiters of a stream that sleep in the kernel. An event of the stream's CQ wakes them. It may come
// while the stream's lock is held, so they have a lock of their own, behind which nothing else is locked.
type sleepers struct {
	mu sync.Mutex
	// +checklocks:mu
	list waiters
	rung atomic.Bool // an event came since the last call of Stream.OnBell
}

func (s *sleepers) add(w *Waiter) {
	if w.bell == nil {
		return
	}
	s.mu.Lock()
	s.list.add(w)
	s.mu.Unlock()
}

func (s *sleepers) remove(w *Waiter) {
	if w.bell == nil {
		return
	}
	s.mu.Lock()
	s.list.remove(w)
	s.mu.Unlock()
}

func (s *sleepers) wake() {
	s.rung.Store(true)
	s.mu.Lock()
	s.list.Wake()
	s.mu.Unlock()
}
