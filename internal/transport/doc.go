// Package transport is the queue pair: the state machines of RC, UC, UD and XRC as pure code. Time is an argument,
// packets are byte slices, memory is a table of regions. There is no goroutine, no clock, no socket, and no lock but
// those of the queues that posting goroutines share with the QP.
//
//	            PostSend                               PostRecv
//	               |                                      |
//	           SendQueue                              RecvQueue (a QP's own, or an SRQ)
//	               |                                      |
//	requester.go   v        packets                       v   responder.go
//	segment.go  [requester] ------> SEND, WRITE ... --> [responder]  receive.go, write.go,
//	retry.go       ^                                      |          read.go, atomic.go,
//	completer.go   +------- ACK, NAK, READ data <---------+          reply.go
//
// Responder: refuse.go holds the refusals, duplicate.go repeated requests, uc.go, ud.go and xrc.go the other
// transports, tag.go and tagged.go tag matching. Requester: early.go retransmits before the ACK timeout, window.go and
// budget.go bound the bytes in flight, local.go executes the work requests that need no packet, reference.go sends
// payload by reference, short.go sends short requests without Transmit. Both: shortreceive.go handles most short
// packets, gather.go reads and writes the memory of SGEs, modify.go makes the transitions of ibv_modify_qp and state.go
// the others, failure.go describes failures.
//
// Only the holder of a QP's shard may call its On... methods, Transmit and Modify. The package imports
// internal/{wire,psn,mr,link,prefetch} and observe.
package transport
