// Package engine is the data path of one device. It owns the shards that run the queue pairs, the table of QPs by
// number, the completion queues, the timers, the multicast groups and the counters.
//
//	EndPost  ----ring---> doorbells --+                          +--> CQ ring --> CQ.Poll
//	                                  v                          |
//	link.Port --Recv--> demux --> [ QP.OnPacket | OnTimer | Transmit ] --Send--> link.Port
//	                      |           ^
//	                      +--inbox of another shard
//
// A shard owns the QPs whose QPN modulo the shard count is its index, or those in its QPN slot if the link assigns
// slots. A goroutine that has work for a shard runs it, under a lock that the data path only tries: a poster in EndPost
// (post.go, doorbell.go), a poller in CQ.Poll (cq.go), and the shard's background goroutine while no program polls
// (background.go). They run the step (step.go).
//
// The package imports internal/{transport,link,mr,notify,spin,numbered,prefetch,secret,wire}.
package engine
