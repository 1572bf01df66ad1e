// Package host lets the processes of one host use one RoCEv2 address at the same time, as they can with an adapter.
//
// The receive sockets of an address form a group (SO_REUSEPORT): a sink, which drops everything, one for QP 1, one for
// strays, and one for each QPN slot. A slot is the upper eight bits of a QP number and of a communication ID. A BPF
// program chooses the socket by these bits, so the kernel delivers packets for a QP, and connection management of a
// known connection, to the owner of the slot and to no other process. It also knows the service IDs that processes have
// claimed: requests for others, and other packets for QP 1 that nobody has asked for, are strays.
//
// One process, the leader, reads the sockets of QP 1 and of strays. Every other member has one connection to the
// leader. Over it go claims of slots (the leader hands out their sockets), claims of service IDs, and packets that the
// wrong process received. The leader forwards a connection request to the member that has claimed its service ID.
// Data never passes through the leader.
//
// Processes of one user elect the leader. The leader owns the abstract unix socket of the address, a name that ends
// with its process. The next process to bind the name is the next leader, and the other members repeat their claims.
// Three things outlive any process:
//
//	vault   one end of a socket pair, open in all members; the sockets are in its queue, so no index in the group changes
//	locks   record locks: the kernel knows the owner of each slot and service ID, whichever process leads
//	wills   memory with the last will of each connection: the datagram that the leader sends when the process dies
//
// Where verbena serve runs, it is the only leader, and it does not trust its members. It keeps all sockets itself,
// gives a slot to processes of one user only for as long as it runs, limits the resources of each member and user,
// accepts no forwarded packets from members, and sends only last wills that end a connection of the member itself.
//
// The package imports internal/{board,environ,fdset,peeruser,untrusted,wire}, internal/wire/cmmsg, the standard library
// and golang.org/x/sys.
package host
