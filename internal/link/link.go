// Package link says how packets travel: the Link of a device and the Port of a shard,
// batches of packets in both directions, and the Path that a packet takes.
//
// A packet here is everything from the BTH to the pad bytes. The invariant CRC is the
// link's business, since it covers the IP and UDP headers: Send seals each packet, Recv
// drops and counts what does not verify. Links live in packages below this one (udp, mem,
// shm); decorators wrap any of them. The package imports the standard library and internal/wire.
package link

import (
	"net/netip"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// Neighbours is a Link that knows the other processes of this host, and notices their end.
type Neighbours interface {
	// Prepare says that packets of a connection to QP qpn will go along path, so that the link can look for its process, and
	// gives path its Route. It does not block. near tells whether that process seems to be one of this host: then the
	// link has no receive buffer that could overflow.
	Prepare(path *Path, qpn uint32) (near bool)
	// OnLost has f called, by any goroutine, when a process has ended. Lost then tells which paths led to it. Everything
	// that it sent before can be received by then.
	OnLost(f func())
	Lost(path *Path) Loss
}

// Loss is how a process at the end of a path was lost.
type Loss uint8

// The ways to lose a process.
const (
	NotLost  Loss = iota
	PeerLeft      // it has closed its device
	PeerDied      // it died, or it has sent nonsense
)

// Numbered is a Link that other processes share, so that the QP numbers of each port are in a range of its own.
type Numbered interface {
	// QPNs is the range of a port; ok is false if the link is not shared after all.
	QPNs(port int) (first, last uint32, ok bool)
}

// Shared is a Link that may be shared: packets for QP 1 must find the process that they are meant for.
type Shared interface {
	// CommIDs is what communication IDs begin with so that answers come to this link: so many bits, 0 if any will do.
	CommIDs() (prefix uint32, bits int)
	// ClaimService makes requests for a service ID at a local address (all, if it is not valid) come to this link. EADDRINUSE if another
	// one has claimed it. release gives it back.
	ClaimService(id uint64, at netip.Addr) (release func(), err error)
}

// Heirs is a Link that others share, who speak for a process that dies.
type Heirs interface {
	// Bequeath makes room for a datagram for QP 1 that the survivors send along path when this process dies. nil if nobody would.
	Bequeath(path *Path) Bequest
}

// Bequest is what is sent when this process dies, nothing at first. It is safe for concurrent use.
type Bequest interface {
	// Set replaces the datagram, of which the first 96 bytes may be other than zero.
	Set(mad []byte)
	// Drop is the end of it.
	Drop()
}

// As finds a link of type T among l and the links that it wraps.
func As[T any](l Link) (T, bool) {
	for l != nil {
		if t, ok := l.(T); ok {
			return t, true
		}
		w, ok := l.(interface{ Unwrap() Link })
		if !ok {
			break
		}
		l = w.Unwrap()
	}
	var none T
	return none, false
}

// A Link carries the packets of one device. Opening one (each link package has its own
// Open) takes its addresses; Close gives them back.
type Link interface {
	// Ports lists the ports, one for each shard, in the shards' order. A packet for QPN q
	// arrives at port q % len(Ports()), or at the one with q in its range if the link is Numbered, as far as the link
	// can manage it; an engine must still accept it at any other.
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
	TxTooLong          uint64 // of TxDropped those that are longer than the MTU of the interface or the route
	RxICRCErrors       uint64 // invariant CRC wrong
	RxMalformed        uint64 // too short, or no such opcode
	ShmTxPackets       uint64 // of TxPackets those that went through shared memory
	ShmRxPackets       uint64 // of RxPackets those that came through it
	ShmRefs            uint64 // of ShmTxPackets those without their payload, which the receiver read where it lay
	ShmRevoked         uint64 // packets by reference that came when their sender had taken the memory back
	ShmBroken          uint64 // connections through shared memory ended because the peer wrote nonsense
}

// A Path says where packets go and what their IP header holds. It is immutable once in use.
type Path struct {
	Src, Dst  netip.Addr // both IPv4 or both IPv6; never 4-in-6
	TClass    uint8      // IPv4 TOS or IPv6 traffic class
	HopLimit  uint8      // IPv4 TTL or IPv6 hop limit; 0 means 64
	FlowLabel uint32     // 20 bits
	Source    uint16     // the UDP source port that it had better have, see SourcePort; 0: any
	Route     any        // what Neighbours.Prepare leaves here
	Refused   *Refusal   // where ports note what this host would not send; nil if nobody wants to know
	InOrder   bool       // nobody sends again what was overtaken, so packets had better wait than go two ways
}

// A Refusal is the last packet of a path that this host would not send. It belongs to the holder of the QP's shard, as Send does.
type Refusal struct {
	Errno syscall.Errno // 0: there was none
	Len   int           // bytes of the packet, IP header first
}

// Refuse notes that this host would not send a packet of n bytes, BTH to ICRC.
func (p *Path) Refuse(errno syscall.Errno, n int) {
	if p.Refused == nil {
		return
	}
	*p.Refused = Refusal{errno, HeadersLen(p.Dst) + n}
}

// HeadersLen is the length of the IP and UDP headers of packets to an address.
func HeadersLen(dst netip.Addr) int {
	const ipv4, ipv6, udp = 20, 40, 8
	if dst.Is4() {
		return ipv4 + udp
	}
	return ipv6 + udp
}

// Equal tells whether packets of two paths look the same to the network.
func (p *Path) Equal(q *Path) bool {
	return p == q || p.Src == q.Src && p.Dst == q.Dst && p.TClass == q.TClass && p.HopLimit == q.HopLimit && p.FlowLabel == q.FlowLabel && p.Source == q.Source
}

// SourcePort is the UDP source port that the Linux kernel gives to packets of a flow label, so that the network spreads connections over
// its links (rdma_flow_label_to_udp_sport). A connection without a flow label gets one of its two QP numbers
// (rdma_calc_flow_label); without those the answer is 0.
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

// RxPacket is one packet that has arrived. Data and Body belong to the batch: they are valid until
// the next Recv with that batch.
type RxPacket struct {
	Data []byte // BTH to pad; wire.Parse has accepted it, and its ICRC was right
	// Body is the payload if Data is only the headers, with the pad count 0; else nil. Its bytes may change while they are
	// read: whoever looks at more than their number copies them first.
	Body     []byte
	Src, Dst netip.Addr
	TClass   uint8
	HopLimit uint8
	// Train says that the packet stands for several of its message, with consecutive PSNs: its payload may be longer than
	// the path MTU, and has as many PSNs as it would have packets. Its opcode is that of the place in the message which all of them
	// together have.
	Train bool
	Epoch Epoch // of a Body by reference: whoever has copied it must ask whether it is over
}

// Payload is the data of the packet without pad bytes.
func (p *RxPacket) Payload() []byte {
	if p.Body != nil {
		return p.Body
	}
	return wire.Packet(p.Data).Payload()
}

// Len is the packet's length, BTH to pad.
func (p *RxPacket) Len() int { return len(p.Data) + (len(p.Body)+3)&^3 }

// Append appends the whole packet, BTH to pad, in one piece.
func (p *RxPacket) Append(to []byte) []byte {
	at := len(to)
	to = append(to, p.Data...)
	if pad := -len(p.Body) & 3; p.Body != nil {
		to = append(to, p.Body...)
		to = append(to, 0, 0, 0)[:len(to)+pad]
		to[at+1] |= byte(pad << 4)
	}
	return to
}

// RxBatch is what Recv fills. A link hangs its own buffers on it, in Buffers.
type RxBatch struct {
	Packets []RxPacket
	Buffers any
	Now     int64 // the caller's time, for links that do not look for packets at each Recv everywhere
}

// TxPacket is one packet to send: Buf[Off:Off+Len] of its batch, the last wire.ICRCLen bytes of it left for the ICRC.
type TxPacket struct {
	Path *Path
	Off  int
	Len  int

	sum    uint32 // of the last summed bytes before the ICRC; see TxBatch.Summed
	summed int
}

// TxBatch is a run of packets to send, laid one behind the other in one buffer, so that a
// link can hand neighbours of equal length and path to the kernel in one piece.
type TxBatch struct {
	Packets []TxPacket
	Buf     []byte
	// Direct, if not nil, is asked first for the place of each packet.
	Direct Direct
	// Tap, if not nil, sees every packet.
	Tap Tap
	// EndWithTrain has the batch be full when one more packet of the same length could not go in one piece with those before it, which would be
	// left over each time, or when a longer one comes behind a good train, so that batches soon begin where messages do.
	EndWithTrain bool
	// Keep says, for a batch in memory of a Lender, that it stays as it is until its packets have been acknowledged. Send sets Kept if it counts on that.
	Keep, Kept bool

	used   int
	runAt  int  // where the last run of packets of equal length begins
	runOf  int  // their length
	direct int  // packets in places of Direct
	shown  bool // Tap knows of one there that is not Sent
}

// Direct is a Port that gives packets their place itself, where their receiver will read them.
type Direct interface {
	// Place gives the place for a packet of n bytes, BTH to pad, that goes along path to QP qpn. It is filled in before the next
	// Place or Send. mine is false if the packet must go into the batch. A nil place means that there
	// is no room: the sender tries again later. train says what RxPacket.Train does; such a packet is mine in any case.
	Place(path *Path, qpn uint32, n int, train bool) (b []byte, mine bool)
	// Train is the most payload that one packet along path to QP qpn may carry, whatever the path MTU; 0 if that holds. See RxPacket.Train.
	Train(path *Path, qpn uint32) int
}

// A Lender is a Port that can send packets of batches in its own memory without copying them. What is written there while they are on their way
// spoils them: the ICRC tells.
type Lender interface {
	// Lend gives memory for n batches of size bytes. It belongs to the port, until that is closed. nil: packets are copied wherever they are.
	Lend(n, size int) []byte
}

// Lend is that of p, nil if it is no Lender.
func Lend(p Port, n, size int) []byte {
	if l, ok := p.(Lender); ok {
		return l.Lend(n, size)
	}
	return nil
}

// A Tap watches the packets of a shard, for a capture. Its calls are made by the holder of the shard.
type Tap interface {
	// From says which QP the packets placed from now on are of, and how long those are that a train stands for.
	From(qpn uint32, mtu int)
	// Placed says where a packet without its ICRC, which is not filled in yet, was placed. train is RxPacket.Train of it.
	Placed(path *Path, b []byte, train bool)
	// Request says which work request the packet placed last is of, and why its first again packets, several if it is a train, are sent again.
	Request(wrid uint64, again uint32, why string)
	// Sent says that everything placed is filled in, and goes out now, or may be taken by its receiver from now on.
	Sent()
	// Received shows a packet after it was delivered to QP qpn. what tells what became of it, each thing behind "; ", and is empty if it was taken
	// as it came; mtu tells how long the packets are that a train stands for.
	Received(p *RxPacket, qpn uint32, mtu int, what string)
}

const (
	// MaxTrain is the most bytes of packets that a link may hand to the kernel in one piece: what fits into a UDP datagram.
	MaxTrain = 65535 - 20 - 8

	// goodTrain are the bytes of packets of equal length behind which a batch may end.
	goodTrain = MaxTrain / 4
)

// NewTxBatch makes a batch for at most n packets and size bytes.
func NewTxBatch(n, size int) *TxBatch {
	return &TxBatch{Packets: make([]TxPacket, 0, n), Buf: make([]byte, size)}
}

// Alloc appends a packet of n bytes, BTH to pad, for QP qpn at the end of path, and returns the bytes to fill in, whose
// content is undefined. It returns nil when the batch is full; the caller tries again in its next turn.
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

// Room tells whether Buf has room for a packet of up to n bytes, BTH to ICRC, and for another one like the last.
func (b *TxBatch) Room(n int) bool { return b.used+n <= len(b.Buf) && b.fits(b.runOf) }

// fits tells whether the packet of n bytes, BTH to ICRC, that comes next belongs into this batch.
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

// Train is the most payload of one packet beyond the path MTU; 0 if there is no going beyond. See Direct.
func (b *TxBatch) Train(path *Path, qpn uint32) int {
	if b.Direct == nil {
		return 0
	}
	return b.Direct.Train(path, qpn)
}

// Reads tells whether packets to QP qpn at the end of path may leave their payload in a share; see Referrer.
func (b *TxBatch) Reads(path *Path, qpn uint32, s *Share) bool {
	if b.Tap != nil {
		return false // a capture shall show each packet with its payload
	}
	r, ok := b.Direct.(Referrer)
	return ok && r.Reads(path, qpn, s)
}

// AllocRef is AllocTrain for the headers of a packet that leaves its payload in a share; see Referrer.
func (b *TxBatch) AllocRef(path *Path, qpn uint32, head int, s *Share, off int64, n int) []byte {
	r, ok := b.Direct.(Referrer)
	if !ok || b.Count() >= cap(b.Packets) {
		return nil
	}
	place := r.PlaceRef(path, qpn, head, s, off, n)
	if place != nil {
		b.direct++
	}
	return place
}

// Bytes is packet i with the room for its ICRC.
func (b *TxBatch) Bytes(i int) []byte {
	p := b.Packets[i]
	return b.Buf[p.Off : p.Off+p.Len]
}

// Summed tells the sum of the last n bytes, see wire.CopySum, of the packet that Alloc has just given a place: Seal need not look at them.
// It is of no use for a packet in a place of Direct, which has no ICRC; Sums tells.
func (b *TxBatch) Summed(sum uint32, n int) {
	p := &b.Packets[len(b.Packets)-1]
	p.sum, p.summed = sum, n
}

// Sums tells whether Summed can be told of place, which Alloc has just given.
func (b *TxBatch) Sums(place []byte) bool {
	n := len(b.Packets)
	return n > 0 && &b.Buf[b.Packets[n-1].Off] == &place[0]
}

// Seal writes the ICRC of packet i, to be sent with an IPv4 identification, behind it. f is the flow of its path.
func (b *TxBatch) Seal(i int, f wire.Flow, id uint16) {
	p := &b.Packets[i]
	f.SealSum(b.Buf[p.Off:p.Off+p.Len], id, p.sum, p.summed)
}

// AllocTrain is Alloc for a packet that RxPacket.Train will be said of.
func (b *TxBatch) AllocTrain(path *Path, qpn uint32, n int) []byte {
	if b.Direct == nil || b.Count() >= cap(b.Packets) {
		return nil
	}
	place, _ := b.place(path, qpn, n, true)
	return place
}

// place asks Direct for a place. From then on the receiver may take the packets before that one, which the tap must have seen before.
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
	clear(b.Packets) // drop the paths
	b.Packets = b.Packets[:0]
	b.used, b.runAt, b.runOf, b.direct, b.shown = 0, 0, 0, 0, false
}

// Count is how many packets were appended since the last Reset, those in places of Direct too.
func (b *TxBatch) Count() int { return len(b.Packets) + b.direct }

// Empty tells whether the batch holds no packet.
func (b *TxBatch) Empty() bool { return b.Count() == 0 }
