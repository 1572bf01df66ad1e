package rdmatest

import (
	"net/netip"
	"time"

	"github.com/verbena-rdma/verbena/internal/link/fault"
)

// Faults are the faults of a network; the zero value is a perfect one. Probabilities are from 0 to 1.
type Faults struct {
	Loss      float64 // probability that a packet is lost
	Duplicate float64 // that it is delivered twice
	Reorder   float64 // that it is held back for up to ReorderDelay, so that later packets arrive first
	Corrupt   float64 // that one to three of its bits are flipped
	Mark      float64 // that it is marked as by a congested switch, if its traffic class says that it is ECN capable

	Delay        time.Duration // of every packet
	Jitter       time.Duration // longest additional random delay of every packet; alone it reorders
	ReorderDelay time.Duration // longest delay of a reordered packet; 0 means 100 µs

	// Script, if not nil, is called first for each packet: the test decides about single packets. If decided is true, the
	// verdict applies, otherwise the probabilities above. It must not keep or change p.Data.
	Script func(p Packet) (v Verdict, decided bool)
}

// Packet is the argument of Faults.Script.
type Packet struct {
	Src, Dst netip.Addr
	Data     []byte // from the BTH to the padding
	Nth      uint64 // the packet's number in this fabric, from 0
}

// Opcode returns the opcode, the first byte of the BTH.
func (p Packet) Opcode() uint8 { return p.Data[0] }

// Verdict is the decision about one packet. The zero value delivers it unchanged.
type Verdict struct {
	Drop  bool
	Extra int           // additional copies, undamaged
	Flip  int           // number of bits to flip, at random positions
	Delay time.Duration // time that the packet is held back
	Mark  bool          // mark it as Faults.Mark does
}

// Stats counts what a fabric did to packets, copies included.
type Stats struct {
	Sent      uint64 // packets given to the fabric
	Delivered uint64
	Lost      uint64 // lost by a fault
	Repeated  uint64 // copies made by a fault
	Corrupted uint64
	Cut       uint64 // lost by Fabric.Cut
	Unknown   uint64 // no device has the destination address
	Overflow  uint64 // lost because the receiver's queue was full
}

// internal converts f to the type of the fabric.
func (f Faults) internal() fault.Faults {
	in := fault.Faults{
		Loss: f.Loss, Duplicate: f.Duplicate, Reorder: f.Reorder, Corrupt: f.Corrupt,
		Mark: f.Mark, Delay: f.Delay, Jitter: f.Jitter, ReorderDelay: f.ReorderDelay,
	}
	if script := f.Script; script != nil {
		in.Script = func(p fault.Packet) (fault.Verdict, bool) {
			v, decided := script(Packet(p))
			return fault.Verdict(v), decided
		}
	}
	return in
}
