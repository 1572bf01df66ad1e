// Package engine is the data path of one device: it owns the shards that run the queue
// pairs, the table that finds a QP by its number, the completion queues, the timers, the
// multicast groups and the counters.
//
//	PostSend ----ring---> doorbells --+                          +--> CQ ring --> CQ.Poll
//	                                  v                          |
//	link.Port --Recv--> demux --> [ QP.OnPacket | OnTimer | Transmit ] --Send--> link.Port
//	                      |           ^
//	                      +--inbox of another shard
//
// A shard owns the QPs whose number leaves its own when divided by the count of shards. Whoever
// has a reason runs it, under a lock that is only ever tried: a poster after PostSend
// (doorbell.go), a poller in CQ.Poll (cq.go), and a goroutine of its own when nobody polls
// (background.go). What they run is the step (step.go).
//
// The package imports internal/transport, internal/link and what lies below those.
package engine
