// Package sim runs random verbs programs over a faulty network in memory and in virtual time, and
// checks them against what the specification promises: the bytes in memory, the order
// and content of completions, and that everything ends once the faults do.
//
// Everything follows from one seed: the topology, the sizes, the work requests, the faults and every
// step of the schedule. Run(seed) does the same thing each time, so a failing seed is the report:
//
//	go test ./internal/sim -run TestSeeds -sim.seed=1234 -v
//
// A world (world.go) holds the devices and the clock. Pairs of QPs work in it: rc.go knows what a
// reliable pair must do, over RC or XRC (xrc.go), unreliable.go what UC and UD pairs may do. The package uses only the
// public verbs and internal/link/mem; it is the first user of both.
package sim
