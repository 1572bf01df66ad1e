// Package spin decides how long a goroutine polls before it yields, sleeps or parks.
//
// Budget serves goroutines that poll for completions: after a number of empty polls they yield their core, and sleep
// where yields are expensive. Linger serves goroutines that wait for packets: it decides how long they keep looking
// before they park.
//
// Clock is the time for both, and for the timers of packets.
//
// The package keeps no global state. It imports the standard library and golang.org/x/sys.
package spin
