// Package kmad has QP 1 of adapters and of the kernel's software devices, which belongs to the Linux kernel: it sends
// and receives management datagrams through /dev/infiniband/umadN, for package umad. The interface is
// linux/include/uapi/rdma/ib_user_mad.h, version 5; libibumad uses the same file.
//
// There is a file for each port of a device. A datagram is one write or read of a header and 256 bytes. An agent is
// registered by an ioctl; the kernel passes a request to the agent that is registered for its class, version and
// method, and an answer to the agent that has sent the request. Reads wait in package os's poller: no thread blocks.
// Fields have the byte order of the machine, unless package umad's own datagrams or addresses of packets are meant.
//
// The package imports the standard library and golang.org/x/sys.
package kmad
