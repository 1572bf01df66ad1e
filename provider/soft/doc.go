// Package soft is the software RDMA device. It implements RoCEv2 over ordinary UDP sockets, so it needs no hardware,
// kernel module or root. Its peers may be Linux soft-RoCE or RoCE adapters. Import it for its side effect:
//
//	import _ "github.com/verbena-rdma/verbena/provider/soft"
//
// # Devices
//
// There is one device for each network interface that is up and has an address, called vrb_<interface>; those of
// loopback interfaces come last. VERBENA_DEVICES in the environment names them instead, as a comma-separated list of
//
//	INTERFACE             the device of that interface (eth0; vrb_eth0 means the same)
//	NAME=ADDR[+ADDR...]   a device with these local addresses (a=127.0.0.1, b=127.0.0.2+fd00::2)
//	NAME=PORT/PORT...     a device with several ports, up to 16, each ADDR[+ADDR...] (two=192.0.2.1/198.51.100.1)
//
// The addresses of a device may belong to several interfaces. A QP's path can then migrate between them, and the
// device's port is up while one of them is. If they are those of several ports, each port has its own state, GIDs and
// P_Keys, a QP belongs to one of them, and its path or its alternate path may change to another port. Connections of
// rdmacm and multicast groups of real interfaces use port 1.
//
// For a wrong entry verbs.Devices returns an error with EINVAL. A program can also make a device with New.
//
// A device takes UDP port 4791 at its addresses when the first QP is made, and releases it when its last context is
// closed. All contexts of a device in one process share its sockets, and on Linux so do the processes of one user
// (package internal/host). EADDRINUSE says that another program has the port, EACCES that another user's processes
// have it.
//
// # Processes of one host
//
// On Linux, devices of processes of one user on one host exchange packets through shared memory, whatever their
// addresses. In the environment, VERBENA_SHM=0 keeps all packets on UDP, and VERBENA_SHM_DIRECT=0 keeps other
// processes from reading memory that messages are sent from.
//
// # Partitions
//
// The P_Key table of a port has the entry 0xFFFF, unless VERBENA_PKEYS or Config.PKeys defines it. VERBENA_PKEYS is a
// comma-separated list of [DEVICE[/PORT]=]KEY[+KEY...], as in VERBENA_PKEYS=vrb_eth0=0xffff+0x8001+0x0002.
// SetPKeys changes a table at run time.
//
// # GIDs
//
// The GID table follows the interface's addresses, with events (verbs.EventGIDChange, EventPortActive, EventPortErr).
// Index 0 is the default GID, fe80 with the EUI-64 of the MAC address, as on every RoCE device; it is of use only if
// the interface has that address. Then come the IPv4 addresses, as ::ffff:a.b.c.d, and the IPv6 addresses. An entry
// keeps its index as long as its address exists.
//
// The node GUID is that EUI-64. An interface without a MAC address (loopback), and a device that VERBENA_DEVICES or
// New defines, gets a GUID derived from the names of host and device and its addresses: the same every time, and
// marked as locally administered.
//
// # Faults
//
// VERBENA_FAULT injects faults into the packets that a device sends. Its value is a comma-separated list:
//
//	loss=P, duplicate=P, reorder=P, corrupt=P   probabilities
//	delay=T, jitter=T                           times
//	seed=N                                      the seed of the random numbers: the same seed gives the same faults
//
// VERBENA_FAULT=loss=0.01,delay=2ms,seed=7 delays each packet by 2 ms and loses one of a hundred. All packets go over
// UDP then. Package rdmatest has the same faults for tests, in virtual time.
//
// # Captures
//
// With VERBENA_PCAP=FILE in the environment every device of the process writes the packets that it sends and receives
// over any link to that file. The format is pcapng, which Wireshark reads (package internal/link/pcap). %p in the
// name is replaced by the process ID. If another process writes to the file, the process ID is put before the
// name's extension. VERBENA_PCAP_SNAPLEN=BYTES limits the bytes written of each packet. Without VERBENA_PCAP there is
// no cost.
//
// # Concurrency
//
// The work of a device is done in the calls of the program, PostSend and Poll among them, and by one goroutine for
// each shard while no call does it. A device has as many shards as GOMAXPROCS, at most 16, and at most 4 over UDP.
//
// The package imports verbs, observe, internal/driver, internal/gsi, internal/engine, internal/raw, the links and other
// packages below those, and internal/iwtcp on Linux.
package soft
