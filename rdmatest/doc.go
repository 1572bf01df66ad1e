// Package rdmatest is RDMA for tests: a network in memory that takes any number of devices, loses,
// repeats, reorders, damages and delays packets as a test wants, and does the same thing each time.
//
// It needs no network, no root and no device, and works on every system that Go works on:
//
//	f := rdmatest.New(rdmatest.Config{Faults: rdmatest.Faults{Loss: 0.01}})
//	defer f.Close()
//	a, err := f.Open("a") // a *verbs.Context like any other
//	b, err := f.Open("b")
//
// # Time
//
// A fabric lives in virtual time, which stands still until the test moves it on: Advance goes to the next
// moment at which anything happens (a packet arrives, a timer ends), Run does so until a
// condition holds. Nothing runs by itself and nothing is left to chance, so a test of a lost
// acknowledgement takes microseconds and never flakes. One goroutine uses the fabric and everything opened on
// it; calls that wait (CompChannel.GetEvent) would wait for ever, use TryGetEvent.
//
// With Config.RealTime the fabric lives in real time, devices have their own goroutines, and everything may be
// used as on any device. In a bubble of testing/synctest that time is synctest's.
//
// # Faults
//
// Config.Faults and SetFaults give probabilities; Config.Seed is where their dice start. Faults.Script
// decides about single packets, and Cut and Heal take the cable out and put it in again.
//
// The package owns the devices that it makes and the contexts that Open has opened, until Close; in virtual time it has no
// goroutine. It imports verbs, provider/soft, internal/link, internal/link/mem and internal/link/fault.
package rdmatest
