// Package fault injects faults into a network reproducibly: it loses, duplicates, reorders, damages and delays
// packets.
//
// An Injector decides about one packet after the other. The memory fabric (internal/link/mem) uses one. Wrap puts
// injectors around any link.Link, so that real sockets can be tested under loss too.
//
// All random numbers come from a seed. The same packets in the same order meet the same faults, and changing one
// probability does not change the outcome of the others. The package imports internal/link and internal/wire.
package fault
