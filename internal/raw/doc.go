// Package raw is the Ethernet part of a device: RAW_PACKET queue pairs, flow steering, work queues with receive
// side scaling, and the offloads.
//
//	frame --Parse--> Headers --Table--> rule --> QP, or its WQ by Toeplitz hash --> offloads --> buffer, completion
//	request --> gather --> segmentation, checksums --> egress rules --> link.Raw
//
// Parsing and matching are pure functions: Parse, VerifyChecksums, FillChecksums, Segments, Toeplitz and the match
// of a rule. A Device holds the state: its table, queue pairs and work queues. Frames come from a link.Raw, whose
// goroutine (on the fabric in memory, the sender's) runs everything up to the completion; the goroutine that posts
// a request sends it.
//
// Lock order: a QP's transmit lock, the link's, the device's. No frame is sent with the device's mu held.
//
// The package imports internal/transport, for the queues and completions, internal/mr, internal/link, internal/secret
// and internal/wire.
package raw
