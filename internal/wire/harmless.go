package wire

import "net/netip"

// Harmless returns the UDP payload of a complete RoCEv2 packet that every receiver drops: an acknowledgement to the QPN
// of multicast packets, with an address that is no group. It serves to find out whether datagrams from src reach dst.
// rdma_rxe drops it without a word; for a QPN that does not exist it writes a line into the kernel's log. A datagram
// that is no RoCEv2 packet must not be sent: rdma_rxe of Linux 6.1 reads an uninitialised pointer if a datagram is
// shorter than a BTH, and the peer's kernel stops.
//
// src and dst are the addresses and UDP ports of the datagram, and both IPv4 or both IPv6. The ICRC of an IPv4 packet
// is that of identification 0.
func Harmless(src, dst netip.AddrPort) []byte { return harmless(Ack, BTHLen+AETHLen+ICRCLen, src, dst) }

// HarmlessOf is Harmless with a packet of size bytes, or a little less: a datagram of UD to the same QPN. It serves to
// find out whether long datagrams arrive too.
func HarmlessOf(size int, src, dst netip.AddrPort) []byte {
	return harmless(UD|SendOnly, max(size&^3, BTHLen+DETHLen+ICRCLen), src, dst)
}

func harmless(op Opcode, size int, src, dst netip.AddrPort) []byte {
	b := make([]byte, size)
	BTH(b).Put(op, 0, DefaultPKey, MulticastQPN, 0, 0)
	NewFlow(src.Addr(), dst.Addr(), src.Port(), dst.Port()).Seal(b, 0)
	return b
}
