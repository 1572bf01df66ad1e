// Package shm carries packets between the processes of one host through shared memory, and all others over another
// link, which it wraps.
//
//	            +--> ring set to a process: rings in our memory --> its port reads them
//	port.Place -+
//	port.Send  -+--> the wrapped link (UDP)
//
//	port.Recv  <---- ring sets from other processes: rings in their memory
//	           <---- the wrapped link, from time to time while rings are busy
//
// A ring set is one-way, from a process (one device in it) to another. It has a ring (internal/ring) for each pair of
// ports. The sender dials the receiver over a unix socket. The socket carries descriptors first and wake-ups later.
// Its end is the end of the ring set, so the death of a process is noticed at once.
//
// Trust. Only the process that created a piece of shared memory writes it: the memory is sealed against writable
// mappings and changes of its size before its descriptor is sent. Data from the memory of another process is read
// once, checked, and copied before use. The exception is payload, which is not interpreted; long payload stays in the
// sender's memory, and the kernel copies it if it permits the receiver to trace the sender. An invalid record ends
// its ring set, and nothing else.
//
// Short requests are acknowledged in groups, by their numbers in the ring (counted_linux.go).
//
// Management datagrams about connections go through the rings too (mail_linux.go): the Directory finds their process.
//
// A Duplex (duplex_linux.go) is a stream of bytes between two processes, for iWARP. It has the same rules.
//
// The package imports internal/{fdset,link,mr,peeruser,ring,secret,untrusted,wire} and golang.org/x/sys. It works
// on Linux 5.1 and later; on other systems Wrap returns its argument.
package shm
