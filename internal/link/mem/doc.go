// Package mem is a network in memory: a Fabric, and links that are open at it. It carries what
// tests and simulations need: every fault of internal/link/fault, partitions, a bandwidth, multicast
// groups, and virtual time.
//
// Packets are copied, sealed with the ICRC that they would have over IP and UDP, and verified
// when they arrive, so a flipped bit is found as on a wire.
//
// With Config.Now the fabric lives in the caller's time: a delayed packet can be received once Now has
// passed its time, NextDelivery tells which time that is, and Tick says that time has moved. One goroutine
// is enough then, and everything is deterministic. Without it the fabric lives in real time, or in that
// of a testing/synctest bubble: waiting uses only channels and timers.
//
// The package imports internal/link, internal/link/fault and internal/wire.
package mem
