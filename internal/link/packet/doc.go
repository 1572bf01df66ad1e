// Package packet carries Ethernet frames through a packet socket, on Linux: all frames of a network interface, with
// the capability CAP_NET_RAW. On other systems Open returns EOPNOTSUPP.
//
// While a link is open its interface receives frames for all addresses, since flow rules may match any. The kernel
// removes the outermost VLAN tag of a frame and passes it separately; the link inserts it again. Frames of this
// host may have unfilled checksums, because they never reach a wire: they count as verified. Frames that the kernel
// has merged (GRO) arrive as one.
//
// The package imports internal/link, internal/fdset and golang.org/x/sys/unix.
package packet
