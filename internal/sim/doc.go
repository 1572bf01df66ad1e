// Package sim runs random verbs programs over faulty networks in memory and in virtual time, and checks them against
// a model.
//
// Everything follows from one seed: the devices and their shards, the sizes, the work requests, the faults and every
// step of the schedule. Run(seed) does the same each time, so a failing seed reproduces the failure:
//
//	go run ./internal/tools/soak -runs 1 -seed 1234
//	go test ./internal/sim -run TestSeeds -sim.seed=1234 -v
//
// The network loses, duplicates, reorders, damages and delays packets (network.go). Partitions separate hosts, in one
// direction or both, for a while or until the end; devices are closed with all their objects, and opened again
// (plan.go). Programs end their connections in many ways and make new ones with the same queue pairs or others
// (rc_fault.go, rc_recover.go).
//
// The model states for each run
//
//   - the bytes of each memory, and that the bytes around them never change;
//   - the next completion of each queue, with its status, length, immediate data and key;
//   - that each message of a reliable connection is received once, in order, and that all requests complete;
//   - the permitted errors, given the faults of the network and the queue pairs, and that all requests behind the
//     first failed one are flushed;
//   - that a failed connection has executed the first requests of the send queue, each once, and of the next one at
//     most a part;
//   - that deregistered memory, drained send queues and destroyed queue pairs do not change.
//
// No such run needs as many packets as there are PSNs; wrap_test.go has one that does.
//
// A world (world.go) has the devices and the clock, and pairs of QPs. rc.go checks a reliable pair, over RC or XRC
// (xrc.go), unreliable.go UC and UD pairs. Through shared memory (near_linux.go) it runs in real time and without
// faults. The package imports verbs, rdmatest, provider/soft, internal/softlink, internal/link, internal/link/{mem,shm}
// and golang.org/x/sys.
package sim
