package fdset

import (
	"sync/atomic"
	"time"
)

// A Gate keeps descriptors that are not in the list yet from a child that is forked meanwhile. A library in C reads and
// writes it too, so it has no pointers and does not move.
type Gate struct {
	forking atomic.Int32 // not 0: the library reads the list and forks
	opening atomic.Int32 // calls of Opening without one of Opened
}

var gate Gate

// TheGate returns the gate of the process, for the library that forks.
func TheGate() *Gate { return &gate }

// Opening is called before descriptors are made that Own, Add or AddConn puts into the list, and Opened afterwards: for
// sockets that other processes miss as long as a child of this one has them. It waits while the process forks. Nothing
// that blocks may come between the two, nor Opening again.
func Opening() {
	for {
		gate.opening.Add(1)
		if gate.forking.Load() == 0 {
			return
		}
		gate.opening.Add(-1)
		time.Sleep(100 * time.Microsecond) // a fork takes about that long
	}
}

// Opened ends Opening.
func Opened() { gate.opening.Add(-1) }
