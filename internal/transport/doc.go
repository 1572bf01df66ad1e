// Package transport is the queue pair: the state machines of RC, UC, UD and XRC
// as pure code. Time is an argument, packets come in and go out as bytes, memory is a
// table of regions; there is no goroutine, no clock, no socket and no lock but those of
// the queues that the application's side shares.
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
// The responder's refusals are in refuse.go, repeated requests in duplicate.go, its UC, UD and XRC forms in uc.go, ud.go and xrc.go.
// Beside them: gather.go reads and scatters what a work request's SGEs name, window.go bounds the
// bytes in flight, modify.go makes the transitions that ibv_modify_qp asks for and state.go the others,
// failure.go tells why something failed, local.go executes the work requests that need no packet.
//
// Whoever holds a QP's shard may call its On... methods, Transmit and Modify; nobody else
// may. The package imports internal/{wire,psn,mr,link}.
package transport
