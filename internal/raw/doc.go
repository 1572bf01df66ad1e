// Package raw is the part of a device that deals in Ethernet frames: RAW_PACKET queue pairs, flow steering, work
// queues with receive side scaling, and the offloads.
//
//	frame --Parse--> Headers --Table--> rule --> QP, or its WQ by Toeplitz hash --> offloads --> buffer, completion
//	request --> gather --> segmentation, checksums --> egress rules --> link.Raw
//
// What looks at frames is made of pure functions: Parse, VerifyChecksums, FillChecksums, Segments, Toeplitz and the
// match of a rule. A Device holds the state: its table, queue pairs and work queues. Frames come from a link.Raw, whose
// goroutine (or, on the fabric in memory, the sender's) runs the whole way to the completion; a poster runs the way out.
//
// Locks are taken in this order: a QP's transmit lock, the link's, the device's. No frame is sent with the device locked.
//
// The package imports internal/transport, for the queues and completions, internal/mr and internal/link.
package raw
