package sock

import "sync/atomic"

// fairLock is the right to read or to write. Its waiters may wait for as long as the peer takes. They wait at
// channels instead of in a mutex: in a bubble of testing/synctest virtual time stands still while a goroutine
// waits in a mutex, and the owner would never unlock.
//
// A free lock goes to the goroutine that asks first, even if another one was woken for it: a handover for each
// message would cost a wake-up for each message. After maxLosses lost attempts a waiter asks for a handover, which
// nobody can take from it.
type fairLock struct {
	taken    atomic.Bool
	waiting  atomic.Int32
	starving atomic.Bool   // a waiter asks for a handover
	free     chan struct{} // a token: the lock may be free
	handed   chan struct{} // a token: the lock belongs to the starving waiter
}

// maxLosses is the number of attempts after which a waiter asks for a handover.
const maxLosses = 4

func (l *fairLock) init() { l.free, l.handed = make(chan struct{}, 1), make(chan struct{}, 1) }

// tryLock locks l if it is free, and reports whether it was.
func (l *fairLock) tryLock() bool { return l.taken.CompareAndSwap(false, true) }

// lockMode locks l as the mode of waiting says: without waiting EAGAIN if it is not free.
func (l *fairLock) lockMode(nonblock bool) error {
	if !nonblock {
		l.lock()
	} else if !l.tryLock() {
		return errWouldBlock
	}
	return nil
}

// lock waits for l and locks it.
func (l *fairLock) lock() {
	if l.tryLock() {
		return
	}
	l.waiting.Add(1)
	defer l.waiting.Add(-1)
	// A waiter counts itself before it looks at taken, and unlock clears taken before it looks at waiting: one of
	// the two sees the other.
	for range maxLosses {
		if l.tryLock() {
			return
		}
		<-l.free
	}
	starving := false
	for !l.tryLock() {
		starving = starving || l.starving.CompareAndSwap(false, true)
		if !starving {
			<-l.free
			continue
		}
		select {
		case <-l.free: // unlock ran before it could see starving
		case <-l.handed:
			l.starving.Store(false)
			return
		}
	}
	if starving {
		l.starving.Store(false)
	}
}

// unlock unlocks l, or hands it over to the starving waiter.
func (l *fairLock) unlock() {
	if l.starving.Load() {
		l.handed <- struct{}{}
		return
	}
	l.taken.Store(false)
	if l.waiting.Load() > 0 {
		select {
		case l.free <- struct{}{}:
		default: // there is a token
		}
	}
}
