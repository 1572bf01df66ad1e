// Package ucma speaks to the connection manager of the Linux kernel, /dev/infiniband/rdma_cm, whose interface is
// linux/include/uapi/rdma/rdma_user_cm.h, version 4. It manages the connections of adapters and of the kernel's
// software devices, for package rdmacm; librdmacm uses the same file.
//
// A command is one write of a header and a structure. The kernel writes the answer to memory whose address the
// structure has. Events are read by a command too, which package os's poller waits for: no thread blocks. Multi-byte
// fields have the byte order of the machine, unless the kernel takes them from a packet or a socket address.
//
// The package imports package verbs, for the attributes of QPs, and the standard library.
package ucma
