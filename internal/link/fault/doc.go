// Package fault makes a network worse, reproducibly: it loses, repeats, reorders, damages and delays packets.
//
// An Injector decides the fate of one packet after the other; the memory fabric
// (internal/link/mem) asks one. Wrap puts injectors between an engine and any
// link.Link, so that real sockets can be tested under loss too.
//
// All chance comes from a seed. The same packets in the same order meet the same fate, and a change of
// one probability does not change the dice of the others. The package imports internal/link and internal/wire.
package fault
