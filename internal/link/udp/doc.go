// Package udp carries packets over UDP sockets: RoCEv2 as it is on the wire, without privileges.
//
// A link has, for each local address, one receive socket per port (shard), bound to the RoCEv2 port 4791, and one
// transmit socket per port, bound to a random source port. For each multicast group it has one more socket, at port
// 0. On Linux one sendmmsg or recvmmsg carries a batch, with runs of equal packets as one GSO run (UDP_SEGMENT,
// UDP_GRO). Other systems have a plain form: one system call for each packet.
//
// The ICRC determines how the sockets are used. It covers the IPv4 identification, which no program can choose or
// read at a UDP socket. A transmit socket that is not connected and never fragments sends 0, and segment k of a GSO
// run k, so Send computes the ICRC with these numbers. Recv tries the same numbers, and asks wire.SolveID for those
// of other senders.
//
// On the loopback interface the kernel need not copy GSO runs of bulk data (Port.Lend): the receiver reads the pages
// of the sender.
//
// The package owns its sockets and nothing else. It imports
// internal/{board,errqueue,fdset,host,link,printable,wire,winsock} and golang.org/x/sys.
//
// In the environment, VERBENA_UDP_GSO=0 and VERBENA_UDP_GRO=0 disable GSO runs, as Config.NoGSO and Config.NoGRO do.
// VERBENA_UDP_LEND=0 disables lent pages, as Config.NoLend does. VERBENA_UDP=plain selects the plain form on Linux
// too.
package udp
