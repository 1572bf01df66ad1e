// Package link defines how packets travel: the Link of a device and the Port of a shard, batches of packets in both
// directions, and the Path of a packet.
//
// A packet here is the bytes from the BTH to the pad bytes. The link owns the invariant CRC, which covers the IP
// and UDP headers: Send seals each packet, Recv drops and counts packets with a wrong one. The links are in
// packages below this one (udp, mem, shm); decorators (fault) wrap any of them. The package imports
// internal/{board,wire} and the standard library.
package link

import (
	"net/netip"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// A Link carries the packets of one device. Each link package has its own Open, which takes the addresses; Close
// gives them back. All methods are safe for concurrent use.
type Link interface {
	// Ports returns the ports, one for each shard, in the order of the shards. A packet for QPN q arrives at port q
	// % len(Ports()), or at the port with q in its range if Capabilities has QPNs. This is best effort: an engine
	// must accept a packet at any port.
	Ports() []Port

	// SetAddrs replaces the local addresses. Addresses that remain keep their sockets.
	SetAddrs(addrs []netip.Addr) error

	// Capabilities returns the optional interfaces and properties that the link has.
	Capabilities() Capabilities

	// Join and Leave change the membership of a multicast group on the device's interface. They count: a group is
	// left after as many calls of Leave as of Join.
	Join(group netip.Addr) error
	Leave(group netip.Addr) error

	Close() error
}

// A Port is one shard's end of a link. Send and Recv are called by the holder of the shard, Wait by one goroutine
// at a time that does not hold the shard, Wake by any goroutine.
type Port interface {
	// Send transmits every packet of b in order and empties b. A packet that the network or the kernel does not
	// take within a bounded time is lost and counted.
	Send(b *TxBatch)

	// Recv replaces the content of b by arrived packets and acknowledgements, and returns the number of both, 0 if there
	// are none. It never blocks. The previous content of b becomes invalid.
	Recv(b *RxBatch) int

	// Wait parks the caller until a packet has arrived, Wake was called, or d has passed (d < 0: without limit). A
	// Wake while nobody waits makes the next Wait return at once.
	Wait(d time.Duration)

	Wake()

	// Capabilities returns the optional interfaces that the port has.
	Capabilities() PortCapabilities

	// Counters returns the current counters.
	Counters() Counters
}

// Counters are the counters of a port. Each only grows.
type Counters struct {
	TxPackets, TxBytes uint64 // bytes from BTH to ICRC
	RxPackets, RxBytes uint64
	TxDropped          uint64 // packets that the kernel did not take
	TxTooLong          uint64 // those of TxDropped that exceed the MTU of the interface or the route
	RxICRCErrors       uint64 // invariant CRC wrong
	RxMalformed        uint64 // too short, or undefined opcode
	RxScreened         uint64 // management packets dropped by the screen: see Screener
	RxDropped          uint64 // received packets that a queue of the link had no room for
	MailDropped        uint64 // packets of other processes at the address that their receivers had no room for
	ShmTxPackets       uint64 // those of TxPackets through shared memory
	ShmRxPackets       uint64 // those of RxPackets through shared memory
	ShmRefs            uint64 // those of ShmTxPackets by reference: the receiver reads the payload in place
	ShmRevoked         uint64 // packets by reference whose sender had taken the memory back
	ShmForeign         uint64 // packets whose sender named a source address that is not one of this host
	ShmBroken          uint64 // shared memory connections that ended because the peer broke the protocol
}

// A Path is the destination of packets and the content of their IP header. It is immutable once in use, but for
// Refused.
type Path struct {
	Src, Dst  netip.Addr // both IPv4 or both IPv6; never 4-in-6
	TClass    uint8      // IPv4 TOS or IPv6 traffic class
	HopLimit  uint8      // IPv4 TTL or IPv6 hop limit; 0 means 64
	InOrder   bool       // no retransmission (UC): hold packets back rather than reorder them across routes
	AnyOrder  bool       // datagrams (UD): send a few over another route rather than hold them back
	FlowLabel uint32     // 20 bits
	PKey      uint16     // of management datagrams for the peer; 0: the default. QPs have keys of their own
	Source    uint16     // preferred UDP source port, see SourcePort; 0: any
	Private   bool       // one QP uses the path: ports set Refused
	Rate      uint64     // of the packets, bits per second; 0: no limit. Links ignore it
	Route     any        // set by Neighbours.Prepare for the link's own use
	Refused   Refusal    // of a private path. The holder of the QP's shard owns it
}

// A Refusal is the last packet of a path that this host refused to send. The zero Refusal is none.
type Refusal struct {
	errno, length uint32
}

// RefusalOf returns the refusal of a packet of n bytes, with IP header.
func RefusalOf(errno syscall.Errno, n int) Refusal { return Refusal{uint32(errno), uint32(n)} }

// Errno returns the error, 0 if no packet was refused.
func (r Refusal) Errno() syscall.Errno { return syscall.Errno(r.errno) }

// Len returns the length of the packet in bytes, with IP header.
func (r Refusal) Len() int { return int(r.length) }

// Refuse records that this host refused to send a packet of n bytes, BTH to ICRC.
func (p *Path) Refuse(errno syscall.Errno, n int) {
	if p.Private {
		p.Refused = RefusalOf(errno, HeadersLen(p.Dst)+n)
	}
}

// HeadersLen returns the length of the IP and UDP headers of packets to an address, in bytes.
func HeadersLen(dst netip.Addr) int {
	const ipv4, ipv6, udp = 20, 40, 8
	if dst.Is4() {
		return ipv4 + udp
	}
	return ipv6 + udp
}

// Equal reports whether packets of two paths look the same to the network.
func (p *Path) Equal(q *Path) bool {
	return p == q ||
		p.Src == q.Src && p.Dst == q.Dst && p.TClass == q.TClass && p.HopLimit == q.HopLimit && p.FlowLabel == q.FlowLabel &&
			p.Source == q.Source
}

// SourcePort returns the UDP source port that the Linux kernel derives from a flow label, so that the network
// spreads connections over its links (rdma_flow_label_to_udp_sport). A connection without a flow label gets one
// derived from its two QP numbers (rdma_calc_flow_label); if one of them is 0, the result is 0.
func SourcePort(flowLabel, localQPN, remoteQPN uint32) uint16 {
	if flowLabel &= 0xFFFFF; flowLabel == 0 {
		v := uint64(localQPN) * uint64(remoteQPN)
		if v == 0 {
			return 0
		}
		v ^= v >> 20
		v ^= v >> 40
		flowLabel = uint32(v) & 0xFFFFF
	}
	return uint16(0xC000 | flowLabel&0x3FFF ^ flowLabel>>14)
}

// RxPacket is an arrived packet. Data and Body belong to the batch: they are valid until the next Recv with that
// batch.
type RxPacket struct {
	Data []byte // BTH to pad; wire.Parse has accepted it, and its ICRC is right
	// Body is the payload if Data holds only the headers, with a pad count of 0; otherwise nil. The sender may
	// change its bytes at any time: a reader that needs a consistent payload copies it first.
	Body []byte
	// Away is the payload if it lies in the memory of the sender's process, with a pad count of 0, and Data holds only
	// the headers; otherwise nil.
	Away     *Away
	Src, Dst netip.Addr
	TClass   uint8
	HopLimit uint8
	// Train reports that the packet is a run of consecutive packets of one message, as one. Its payload may be
	// longer than the path MTU, and it has as many PSNs as packets. The opcode covers the whole run: FIRST and LAST
	// become ONLY.
	Train bool
	// Counter acknowledges the packet, a counted request, without an ACK packet; nil: it is no such request. A copy of
	// the packet has nil.
	Counter Counter
	Epoch   Epoch // of a payload by reference: a copy of it is valid if Epoch is not over after copying
}

// Payload returns the data of the packet without pad bytes. It is empty if the payload is Away.
func (p *RxPacket) Payload() []byte {
	if p.Body != nil {
		return p.Body
	}
	return wire.Packet(p.Data).Payload()
}

// Len returns the packet's length in bytes, BTH to pad.
func (p *RxPacket) Len() int {
	if p.Away != nil {
		return len(p.Data) + p.Away.N
	}
	return len(p.Data) + (len(p.Body)+3)&^3
}

// Append appends the whole packet, BTH to pad, in one piece. If a payload Away cannot be read, the piece has an invalid
// P_Key, so that its receiver drops it.
func (p *RxPacket) Append(to []byte) []byte {
	at := len(to)
	to = append(to, p.Data...)
	if p.Away != nil {
		to = p.Away.Append(to)
		if p.Away.Failed() {
			wire.BTH(to[at:]).SetPKey(0)
		}
		return to
	}
	if pad := -len(p.Body) & 3; p.Body != nil {
		to = append(to, p.Body...)
		to = append(to, 0, 0, 0)[:len(to)+pad]
		to[at+1] |= byte(pad << 4)
	}
	return to
}

// An Ack names a request that its receiver acknowledges by counting it; see Direct.PlaceCounted. Only the sender of the
// request interprets it. The link keeps From until the receiver has acknowledged or passed over the request.
type Ack struct {
	From any // the QP that has sent the request
	PSN  uint32
	Life uint32 // of the QP's connection; no two connections of the process have the same, none has 0
}

// A Counter acknowledges a counted request.
type Counter interface {
	// Count acknowledges the request, and all before it, to QP qpn at the end of path. The holder of the port's shard
	// calls it before the next Recv, and publishes the acknowledgement (Direct.Publish). It returns false if there is
	// no room: only an ACK packet can acknowledge the request then.
	Count(path *Path, qpn uint32) bool
}

// RxBatch is the result of Recv. Buffers belongs to the link.
type RxBatch struct {
	Packets []RxPacket
	Acks    []Ack // of counted requests, oldest first
	Buffers any
	Now     int64 // the caller's time, for links that poll some sources only now and then

	// All makes Recv look at every source, also at those that a link polls only now and then.
	All bool

	// Screened is true if Recv has dropped packets by the screen: see Screener.
	Screened bool
}

// TxPacket is one packet to send: Buf[Off:Off+Len] of its batch, whose last wire.ICRCLen bytes are for the ICRC.
type TxPacket struct {
	Path *Path
	Off  int
	Len  int

	sum    uint32 // CRC register over the last summed bytes before the ICRC; see TxBatch.Summed
	summed int
}

// TxBatch is a run of packets to send, contiguous in one buffer, so that a link can hand adjacent packets of equal
// length and path to the kernel as one GSO run.
type TxBatch struct {
	Packets []TxPacket
	Buf     []byte
	// Direct, if not nil, is tried first for the place of each packet.
	Direct Direct
	// ByReference, if not nil, sends messages by reference. It is set only together with Direct.
	ByReference ByReference
	// Tap, if not nil, observes every packet.
	Tap Tap
	// EndWithTrain closes the batch when the next packet no longer fits the current GSO run, or when a longer
	// packet follows a run of at least goodTrain bytes, so that batches soon begin where messages do.
	EndWithTrain bool
	// AckLast permits that a QP's acknowledgement follows its request if both form one GSO run; see PortCapabilities.
	AckLast bool
	// Keep promises, for a batch in memory of a Lender, that the memory stays unchanged until its packets are
	// acknowledged. Send sets Kept if it relies on that.
	Keep, Kept bool

	used   int
	runAt  int  // offset of the last run of packets of equal length
	runOf  int  // length of its packets
	direct int  // number of packets in places of Direct
	shown  bool // Tap has seen a packet there for which Sent was not called yet
}

// A Tap observes the packets of a shard, for a capture. The holder of the shard calls it.
type Tap interface {
	// From sets the QP of the packets placed from now on, and the payload length of the packets in its trains.
	From(qpn uint32, mtu int)
	// Placed reports the place of a packet without its ICRC, whose content is not written yet. train is its
	// RxPacket.Train.
	Placed(path *Path, b []byte, train bool)
	// Request reports the work request of the packet placed last, and why its first again packets (several if it is
	// a train) are retransmitted.
	Request(wrid uint64, again uint32, why string)
	// Sent reports that the content of all placed packets is complete. They are being sent, or their receiver may
	// take them.
	Sent()
	// Received reports a packet after its delivery to QP qpn. what is the list of its effects, separated by "; ",
	// and empty for a packet without special effects; mtu is the payload length of the packets in a train.
	Received(p *RxPacket, qpn uint32, mtu int, what string)
}

const (
	// MaxTrain is the maximum length of a GSO run in bytes: the payload of a UDP datagram.
	MaxTrain = 65535 - 20 - 8

	// goodTrain is the length in bytes of a run of equal packets after which a batch may end.
	goodTrain = MaxTrain / 4
)

// NewTxBatch makes a batch of at most n packets and size bytes.
func NewTxBatch(n, size int) *TxBatch {
	return &TxBatch{Packets: make([]TxPacket, 0, n), Buf: make([]byte, size)}
}

// Alloc appends a packet of n bytes, BTH to pad, for QP qpn at the end of path, and returns its bytes, whose
// content is undefined. It returns nil if the batch is full; the caller tries again in its next turn.
func (b *TxBatch) Alloc(path *Path, qpn uint32, n int) []byte {
	if b.Direct != nil {
		if b.Count() >= cap(b.Packets) {
			return nil
		}
		if place, mine := b.place(path, qpn, n, false); mine {
			return place
		}
	}
	if len(b.Packets) == cap(b.Packets) || !b.fits(n+wire.ICRCLen) {
		return nil
	}
	off := b.used
	b.Packets = append(b.Packets, TxPacket{Path: path, Off: off, Len: n + wire.ICRCLen})
	if b.used += n + wire.ICRCLen; n+wire.ICRCLen != b.runOf {
		b.runAt, b.runOf = off, n+wire.ICRCLen
	}
	place := b.Buf[off : off+n : off+n]
	if b.Tap != nil {
		b.Tap.Placed(path, place, false)
	}
	return place
}

// Room reports whether Buf has room for a packet of up to n bytes, BTH to ICRC, and for another one like the last.
func (b *TxBatch) Room(n int) bool { return b.used+n <= len(b.Buf) && b.fits(b.runOf) }

// fits reports whether the next packet, of n bytes, BTH to ICRC, belongs to this batch.
func (b *TxBatch) fits(n int) bool {
	switch {
	case b.used+n > len(b.Buf):
		return false
	case !b.EndWithTrain || n < b.runOf:
		return true
	case n == b.runOf:
		return b.used-b.runAt+n <= MaxTrain
	}
	return b.runAt > 0 || b.used < goodTrain
}

// Train returns the maximum payload of one packet in bytes if it is not limited by the path MTU, otherwise 0; see
// Direct.
func (b *TxBatch) Train(path *Path, qpn uint32) int {
	if b.Direct == nil {
		return 0
	}
	return b.Direct.Train(path, qpn)
}

// Reads reports whether packets to QP qpn at the end of path may refer to payload in share s; see ByReference.
func (b *TxBatch) Reads(path *Path, qpn uint32, s *Share) bool {
	if b.Tap != nil {
		return false // a capture contains each packet with its payload
	}
	return b.ByReference != nil && b.ByReference.Reads(path, qpn, s)
}

// AllocRef is AllocTrain for the headers of a packet by reference; see ByReference.
func (b *TxBatch) AllocRef(path *Path, qpn uint32, head int, s *Share, off int64, n int) []byte {
	if b.ByReference == nil || b.Count() >= cap(b.Packets) {
		return nil
	}
	place := b.ByReference.PlaceRef(path, qpn, head, s, off, n)
	if place != nil {
		b.direct++
	}
	return place
}

// Bytes returns packet i with the room for its ICRC.
func (b *TxBatch) Bytes(i int) []byte {
	p := b.Packets[i]
	return b.Buf[p.Off : p.Off+p.Len]
}

// Summed sets the CRC register over the last n bytes (see wire.CopySum) of the packet that Alloc has just returned,
// so that Seal need not read them. Packets in places of Direct have no ICRC; see Sums.
func (b *TxBatch) Summed(sum uint32, n int) {
	p := &b.Packets[len(b.Packets)-1]
	p.sum, p.summed = sum, n
}

// Sums reports whether Summed applies to place, which Alloc has just returned.
func (b *TxBatch) Sums(place []byte) bool {
	n := len(b.Packets)
	return n > 0 && &b.Buf[b.Packets[n-1].Off] == &place[0]
}

// Seal writes the ICRC of packet i behind it, for an IPv4 identification. f is the flow of its path.
func (b *TxBatch) Seal(i int, f wire.Flow, id uint16) {
	p := &b.Packets[i]
	f.SealSum(b.Buf[p.Off:p.Off+p.Len], id, p.sum, p.summed)
}

// AllocTrain is Alloc for a train; see RxPacket.Train.
func (b *TxBatch) AllocTrain(path *Path, qpn uint32, n int) []byte {
	if b.Direct == nil || b.Count() >= cap(b.Packets) {
		return nil
	}
	place, _ := b.place(path, qpn, n, true)
	return place
}

// Placed counts a packet for which the caller has got a place from Direct. There must be no Tap.
func (b *TxBatch) Placed() { b.direct++ }

// place gets a place from Direct. The receiver may then take the earlier packets, which the tap must have seen
// before.
func (b *TxBatch) place(path *Path, qpn uint32, n int, train bool) (place []byte, mine bool) {
	if b.shown {
		b.shown = false
		b.Tap.Sent()
	}
	place, mine = b.Direct.Place(path, qpn, n, train)
	if place == nil {
		return nil, mine
	}
	b.direct++
	if b.Tap != nil {
		b.Tap.Placed(path, place, train)
		b.shown = true
	}
	return place, mine
}

// Reset empties the batch.
func (b *TxBatch) Reset() {
	clear(b.Packets) // release the paths
	b.Packets = b.Packets[:0]
	b.used, b.runAt, b.runOf, b.direct, b.shown = 0, 0, 0, 0, false
}

// Count returns the number of packets since the last Reset, including those in places of Direct.
func (b *TxBatch) Count() int { return len(b.Packets) + b.direct }

// Left returns the number of packets that may still be appended.
func (b *TxBatch) Left() int { return cap(b.Packets) - b.Count() }

// Empty reports whether the batch holds no packet.
func (b *TxBatch) Empty() bool { return b.Count() == 0 }
