// Package link says how packets travel: the Link of a device and the Port of a shard,
// batches of packets in both directions, and the Path that a packet takes.
//
// A packet here is everything from the BTH to the pad bytes. The invariant CRC is the
// link's business, since it covers the IP and UDP headers: Send seals each packet, Recv
// drops and counts what does not verify. Links live in packages below this one (udp, mem,
// later shm); decorators wrap any of them. The package imports the standard library and internal/wire.
package link

import (
	"net/netip"
	"time"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// A Link carries the packets of one device. Opening one (each link package has its own
// Open) takes its addresses; Close gives them back.
type Link interface {
	// Ports lists the ports, one for each shard, in the shards' order. A packet for QPN q
	// arrives at port q % len(Ports()) as far as the link can manage it; an engine must still
	// accept it at any other.
	Ports() []Port

	// SetAddrs replaces the local addresses. Those already in use keep their sockets.
	SetAddrs(addrs []netip.Addr) error

	// MTU is the largest packet in bytes, from the BTH to the ICRC, that the link carries whole.
	MTU() int

	// Join and Leave change the membership of a multicast group on the device's interface. They count:
	// a group is left when Leave was called as often as Join.
	Join(group netip.Addr) error
	Leave(group netip.Addr) error

	Close() error
}

// A Port is one shard's end of a link. Send and Recv are called by one goroutine at a
// time, the one that holds the shard; Wait by one goroutine at a time, not holding it;
// Wake by anybody.
type Port interface {
	// Send transmits every packet of b in order and empties b. What the network or the
	// kernel does not take within a bounded time is lost, as on any network, and counted.
	Send(b *TxBatch)

	// Recv fills b with packets that have arrived and returns how many; 0 if there are none. It never blocks.
	// What b held before is invalid afterwards.
	Recv(b *RxBatch) int

	// Wait parks the caller until a packet is there, Wake was called, or d has passed (d < 0: without limit).
	// A Wake with nobody waiting makes the next Wait return at once.
	Wait(d time.Duration)

	Wake()

	// Counters reads what the port has counted so far.
	Counters() Counters
}

// Counters of a port. Each only grows.
type Counters struct {
	TxPackets, TxBytes uint64 // bytes from BTH to ICRC
	RxPackets, RxBytes uint64
	TxDropped          uint64 // the kernel would not take them
	RxICRCErrors       uint64 // invariant CRC wrong
	RxMalformed        uint64 // too short, or no such opcode
}

// A Path says where packets go and what their IP header holds. It is immutable once in use.
type Path struct {
	Src, Dst  netip.Addr // both IPv4 or both IPv6; never 4-in-6
	TClass    uint8      // IPv4 TOS or IPv6 traffic class
	HopLimit  uint8      // IPv4 TTL or IPv6 hop limit; 0 means 64
	FlowLabel uint32     // 20 bits
}

// RxPacket is one packet that has arrived. Data belongs to the batch: it is valid until
// the next Recv with that batch.
type RxPacket struct {
	Data     []byte // BTH to pad; wire.Parse has accepted it, and its ICRC was right
	Src, Dst netip.Addr
	TClass   uint8
	HopLimit uint8
}

// RxBatch is what Recv fills. A link hangs its own buffers on it, in Buffers.
type RxBatch struct {
	Packets []RxPacket
	Buffers any
}

// TxPacket is one packet to send: Buf[Off:Off+Len] of its batch, the last wire.ICRCLen bytes of it left for the ICRC.
type TxPacket struct {
	Path *Path
	Off  int
	Len  int
}

// TxBatch is a run of packets to send, laid one behind the other in one buffer, so that a
// link can hand neighbours of equal length and path to the kernel in one piece.
type TxBatch struct {
	Packets []TxPacket
	Buf     []byte
	used    int
}

// NewTxBatch makes a batch for at most n packets and size bytes.
func NewTxBatch(n, size int) *TxBatch {
	return &TxBatch{Packets: make([]TxPacket, 0, n), Buf: make([]byte, size)}
}

// Alloc appends a packet of n bytes, BTH to pad, and returns the bytes to fill in, whose
// content is undefined. It returns nil when the batch is full; the caller tries again in its next turn.
func (b *TxBatch) Alloc(path *Path, n int) []byte {
	if len(b.Packets) == cap(b.Packets) || b.used+n+wire.ICRCLen > len(b.Buf) {
		return nil
	}
	off := b.used
	b.Packets = append(b.Packets, TxPacket{Path: path, Off: off, Len: n + wire.ICRCLen})
	b.used += n + wire.ICRCLen
	return b.Buf[off : off+n : off+n]
}

// Bytes is packet i with the room for its ICRC.
func (b *TxBatch) Bytes(i int) []byte {
	p := b.Packets[i]
	return b.Buf[p.Off : p.Off+p.Len]
}

// Reset empties the batch.
func (b *TxBatch) Reset() {
	clear(b.Packets) // drop the paths
	b.Packets = b.Packets[:0]
	b.used = 0
}

// Empty tells whether the batch holds no packet.
func (b *TxBatch) Empty() bool { return len(b.Packets) == 0 }
