// Package udp carries packets over UDP sockets: RoCEv2 as it is on the wire, without
// privileges.
//
// A link has, for each local address, one receive socket per port (shard), bound to the
// RoCEv2 port 4791, and one transmit socket per port, bound to a random source port; for
// each multicast group one more socket, at port 0. On Linux a batch crosses into the kernel
// with one sendmmsg or recvmmsg, runs of equal packets as one datagram train (UDP_SEGMENT, UDP_GRO).
// Other systems have a plain form of it, one system call for each packet.
//
// The ICRC decides how the sockets are used. It covers the IPv4 identification, which
// nobody can choose or read at a UDP socket. A transmit socket that is not connected
// and never fragments always sends 0, and segment k of a train k, so these are what Send
// computes with. Recv tries the same numbers and asks wire.SolveID about those of other senders.
//
// On the loopback interface the kernel need not copy trains of bulk data (Port.Lend): the receiver reads them where they lie.
//
// The package owns its sockets and nothing else. It imports internal/link and internal/wire.
//
// In the environment, VERBENA_UDP_GSO=0 and VERBENA_UDP_GRO=0 switch the trains off, as Config.NoGSO and
// Config.NoGRO do, VERBENA_UDP_LEND=0 has everything copied, as Config.NoLend does, and VERBENA_UDP=plain takes the plain form on Linux too.
package udp
