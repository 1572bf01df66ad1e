// Package mem is a network in memory: a Fabric and its links. It has what tests and simulations need: every fault
// of internal/link/fault, partitions, a bandwidth, multicast groups, and virtual time.
//
// Packets are copied, sealed with the ICRC that they would have over IP and UDP, and verified on arrival, so a
// flipped bit is detected as on a wire.
//
// With Config.Now the caller controls the time: a delayed packet can be received once Now has reached its time,
// NextDelivery returns that time, and Tick announces that the time has changed. One goroutine is enough then, and
// everything is deterministic. Without Config.Now the fabric uses real time, or that of a testing/synctest bubble:
// waiting uses only channels and timers.
//
// The package imports internal/link, internal/link/fault and internal/wire.
package mem
