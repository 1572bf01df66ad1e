package fdset

import "sync/atomic"

var floor atomic.Int32

// SetFloor makes Raise leave the descriptors below n to the program: programs that use select, or a table for few
// descriptors, take no higher ones. 0, the initial value, leaves none.
func SetFloor(n int) { floor.Store(int32(n)) }

// Floor returns the number of SetFloor.
func Floor() int { return int(floor.Load()) }
