// Package iwarp is an RC queue pair over a TCP stream: the state machines of MPA, DDP and RDMAP as pure code. Bytes of
// the stream, closings and time-outs are arguments; bytes to send are results. There is no goroutine, no clock, no
// socket, and no lock but those of the queues that posting goroutines share with the QP.
//
//	setup.go     Setup: the exchange of start-up frames, up to the Params of a connection
//	qp.go        QP: its states, and its end: Terminate, and completions of what is left
//	buffers.go   the buffers of long FPDUs
//	receive.go   the stream received, split into FPDUs at any byte
//	segment.go   one segment received: its checks, and where its payload goes
//	request.go   READs and atomics of the peer, and the responses to the QP's own
//	send.go      work requests, in order, and their completions
//	transmit.go  messages as FPDUs: the bytes that the stream takes next
//	counters.go  the counters
//
// The queues, completions and states are those of internal/transport, so that the same completion queues and shared
// receive queues serve both kinds of device. Only one goroutine at a time may call a QP's methods. The package imports
// internal/{wire/iwarp,mr,transport}.
package iwarp
