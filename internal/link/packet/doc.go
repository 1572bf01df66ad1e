// Package packet carries Ethernet frames through a packet socket, on Linux: frames of a network interface, with the
// capability CAP_NET_RAW. Elsewhere Open answers EOPNOTSUPP.
//
// The interface is set to receive frames for all addresses while a link is open, since flow rules may ask for any. The kernel
// takes the outermost VLAN tag out of a frame and tells it apart; it is put back in. Frames of this host may come with
// checksums that are not filled in, because no wire was to come: they count as verified. Frames that the kernel has put
// together (GRO) come as one.
//
// The package imports internal/link and golang.org/x/sys/unix.
package packet
