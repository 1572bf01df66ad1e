// Package shm carries packets between the processes of one host through shared memory, and everything else over
// another link, which it wraps.
//
//	            +--> lane to a process: rings in our memory  ----> its port reads them
//	port.Place -+
//	port.Send  -+--> the wrapped link (UDP)
//
//	port.Recv  <---- lanes from other processes: rings in their memory
//	           <---- the wrapped link, now and then while lanes are busy
//
// A lane goes one way, from a process (one device in it) to another. Its sender has dialed the receiver over a unix socket,
// which carries descriptors at the beginning, wake-ups later, and whose end is the end of the lane: a process that dies is noticed
// at once. A lane has a ring (internal/ring) for each pair of ports.
//
// Trust. Every piece of shared memory is written by the process that made it and by no other: it is sealed against being
// mapped for writing and against changes of its size before its descriptor is passed on. What is read from the other's
// memory is read once, checked, and copied before it is used, but for payload, which nobody
// interprets. Nonsense ends the lane that it came through, and nothing else.
//
// The package imports internal/link, internal/ring and internal/wire. It works on Linux 5.1 and later; elsewhere Wrap
// returns the link that it is given.
package shm
