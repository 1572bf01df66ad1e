package link

import (
	"net/netip"

	"github.com/verbena-rdma/verbena/internal/board"
)

// Capabilities is the optional part of a Link. A field with its zero value is a capability that the link does not
// have. The set does not change while the link is open. A decorator returns the set of the link below it, with its
// own fields replaced.
type Capabilities struct {
	// RecvBuffer is the size in bytes of each receive socket's buffer in the kernel; 0: packets are not lost in one.
	RecvBuffer int
	// QPNs has the range of QP numbers of each port, if the link delivers by range; see Link.Ports.
	QPNs []QPNRange
	// Neighbours finds peers that are processes of this host.
	Neighbours Neighbours
	// Shared routes packets for QP 1 among the processes that share the link's addresses.
	Shared Shared
	// Screener drops unwanted management packets early.
	Screener Screener
	// LastWills makes other processes of this host send a datagram when this process dies.
	LastWills LastWills
}

// PortCapabilities is the optional part of a Port, with the rules of Capabilities.
type PortCapabilities struct {
	// Direct places packets where the receiver reads them.
	Direct Direct
	// ByReference sends packets whose payload the receiver reads where it lies. A port that has it also has Direct.
	ByReference ByReference
	// Lender sends batches that lie in its own memory without copying them.
	Lender Lender
	// AckLast states that receivers deliver an acknowledgement that follows a request in the same GSO run before that
	// request. A GSO run's last packet is its shortest one. The order matters if the request ends the connection: its
	// receiver would not take the acknowledgement any more.
	AckLast bool
}

// QPNRange is the first and the last QP number of a port.
type QPNRange struct{ First, Last uint32 }

// Neighbours finds peers that are processes of this host, and reports their exit. Its methods are safe for
// concurrent use.
type Neighbours interface {
	// Prepare looks for the process that owns QP qpn at the end of path, and sets path.Route. It does not block.
	// near reports whether that process seems to be one of this host: its packets then cannot overflow a receive
	// buffer.
	Prepare(path *Path, qpn uint32) (near bool)
	// OnLost sets the function that is called, by any goroutine, after a process has exited. By then everything that the
	// process sent can be received. Lost reports which paths led to it.
	OnLost(f func())
	Lost(path *Path) Loss
}

// Loss is how the process at the end of a path was lost.
type Loss uint8

// The kinds of Loss.
const (
	NotLost  Loss = iota
	PeerLeft      // the process closed its device
	PeerDied      // the process died, or broke the protocol
)

// Shared routes packets for QP 1 among processes that share addresses. Its methods are safe for concurrent use.
type Shared interface {
	// CommIDs returns the upper bits that the communication IDs of this process need so that answers reach it; bits is 0
	// if any ID does.
	CommIDs() (prefix uint32, bits int)
	// ClaimService makes this process the receiver of requests for a service ID at a local address, or at all addresses if
	// at is not valid. It returns EADDRINUSE if another process has claimed the service ID. release ends the claim.
	ClaimService(id uint64, at netip.Addr) (release func(), err error)
}

// Screener drops unwanted management packets before it checks their ICRC.
type Screener interface {
	// SetScreen sets the screen; nil: there is none. Its methods may still be called shortly afterwards.
	SetScreen(s Screen)
}

// A Screen decides which management packets are dropped.
type Screen interface {
	// Drop reports whether a datagram for QP 1, a whole MAD, is dropped. It is called at any time, by several goroutines
	// at once, also for damaged datagrams. It must not block.
	Drop(mad []byte) bool
	// Show makes the screen keep boards up to date, in place of those before. Other processes that read QP 1 for this one
	// drop requests by them.
	Show(boards []*board.Board)
}

// LastWills makes other processes of this host send a datagram when this process dies.
type LastWills interface {
	// NewLastWill reserves a slot for a datagram to QP 1 along path. It returns nil if no other process could send it.
	NewLastWill(path *Path) LastWill
}

// LastWill is a datagram that another process sends if this process dies. It is empty at first, and then nothing is
// sent. It is safe for concurrent use.
type LastWill interface {
	// Set replaces the datagram, a MAD. Only its first 96 bytes may be other than zero.
	Set(mad []byte)
	// Drop releases the slot: nothing is sent from then on.
	Drop()
}

// Direct gives packets a place where their receiver will read them. It is used by the holder of the port's shard.
type Direct interface {
	// Place returns the place for a packet of n bytes, BTH to pad, along path to QP qpn, which the caller fills in
	// before the next Place, Publish or Send. If mine is false, the packet goes into the batch instead. If mine is true
	// and b is nil, there is no room and the sender tries again later. A packet with train set (see RxPacket.Train)
	// never goes into the batch.
	Place(path *Path, qpn uint32, n int, train bool) (b []byte, mine bool)
	// PlaceCounted is Place for a request, which its receiver may acknowledge by RxPacket.Counter, without an ACK packet.
	// Then a is in a later RxBatch.Acks of this port, which may be seen before packets that the receiver has sent earlier.
	// So no earlier request of the QP waits for an answer with data.
	PlaceCounted(path *Path, qpn uint32, n int, a Ack) (b []byte, mine bool)
	// Train returns the largest payload of one packet along path to QP qpn, in bytes, whatever the path MTU; 0 if the path
	// MTU applies. See RxPacket.Train.
	Train(path *Path, qpn uint32) int
	// Publish is Send of an empty batch: the receivers may take what was placed.
	Publish()
}

// ByReference sends packets without their payload, which the receiver reads from a Share. It is used by the holder
// of the port's shard.
type ByReference interface {
	// Reads reports whether the process of QP qpn at the end of path can read share s. False may become true soon after.
	Reads(path *Path, qpn uint32, s *Share) bool
	// PlaceRef returns the place for the headers, head bytes, of a packet whose payload is the n bytes at off of a
	// share for which Reads was true; nil if there is no room.
	PlaceRef(path *Path, qpn uint32, head int, s *Share, off int64, n int) []byte
	// Revoke invalidates the packets by reference along a path that the receiver has not finished with, including those of
	// other QPs: they are lost. Once it returns, their memory may be changed.
	Revoke(path *Path)
}

// Lender sends packets of batches in its own memory without copying them. The receiver reads what the memory holds when
// it reads its socket, however late: so bytes for another receiver must not be stored there, and changing the memory
// earlier spoils the packet, which the ICRC reveals.
type Lender interface {
	// Lend returns memory of size bytes for batches, other memory at each call, or nil if the port copies all packets.
	// The memory belongs to the port, until that is closed.
	Lend(size int) []byte
	// Renew replaces the pages of memory that Lend returned. Packets on their way keep the old pages, and the new ones
	// are zero. large allows pages larger than a packet; one unread packet keeps a whole page. The memory must not be
	// used any more if Renew returns false.
	Renew(mem []byte, large bool) bool
}
