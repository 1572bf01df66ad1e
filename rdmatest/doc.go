// Package rdmatest is RDMA for tests: a network in memory for any number of devices that loses, duplicates,
// reorders, corrupts and delays packets on request, and reproducibly.
//
// It needs no network, no root and no device, and works on every system that Go supports:
//
//	f := rdmatest.New(rdmatest.Config{Faults: rdmatest.Faults{Loss: 0.01}})
//	defer f.Close()
//	a, err := f.Open("a") // a *verbs.Context like any other
//	b, err := f.Open("b")
//
// # Time
//
// By default a fabric has virtual time, which changes only when the test advances it: Advance moves to the next event
// (a packet arrives, a timer expires), Run does so until a condition holds. Nothing runs concurrently, and nothing is
// random but the first PSN that QP.LocalInfo chooses, so a test of a lost acknowledgement takes microseconds and gives
// the same result every time. The fabric and everything opened on it must be used by one goroutine. Calls that wait,
// such as CompChannel.GetEvent, would wait for ever; use TryGetEvent.
//
// With Config.RealTime the fabric uses real time, devices have their own goroutines, and everything may be
// used as on any other device. Inside testing/synctest that time is synctest's.
//
// # Faults
//
// Config.Faults and SetFaults set probabilities; Config.Seed seeds the random numbers. Faults.Script
// decides about individual packets. Cut and Heal disconnect and reconnect two addresses.
//
// The package owns the devices that it creates and the contexts that Open has opened, until Close. In virtual time it
// has no goroutine. It imports verbs, provider/soft, internal/link, internal/link/fault, internal/link/mem and
// internal/softlink.
package rdmatest
