package host

import "github.com/verbena-rdma/verbena/internal/wire"

// SlotBits is the number of upper bits of a QP number, and of a communication ID, that hold the slot.
const (
	SlotBits = 8
	Slots    = 1 << SlotBits

	slotShift = 24 - SlotBits
)

// Indices of the sockets of a group, which are the values that the BPF program returns. The socket of slot n has
// index FirstSlot + n.
const (
	Sink      = 0 // drops everything; the kernel also chooses it for packets too short for the program
	GSI       = 1 // QP 1: requests for service IDs that a process has claimed
	Strays    = 2 // other packets for QP 1 that no communication ID leads to a slot
	FirstSlot = 3

	sockets = FirstSlot + Slots
)

// SlotOf returns the slot of a QP number.
func SlotOf(qpn uint32) int { return int(qpn >> slotShift & (Slots - 1)) }

// SocketOf returns the index of the socket that receives packets for a QP number. Packets for QP 1 can also arrive at
// the socket of strays, and at that of the slot in their communication ID.
func SocketOf(qpn uint32) int {
	if qpn == wire.GSIQPN || qpn == wire.MulticastQPN {
		return GSI
	}
	return FirstSlot + SlotOf(qpn)
}

// SlotOfID returns the slot of a communication ID.
func SlotOfID(id uint32) int { return int(id >> (32 - SlotBits)) }

// QPNs returns the first and the last QP number of a slot.
func QPNs(slot int) (first, last uint32) {
	first = uint32(slot) << slotShift
	return first, first + 1<<slotShift - 1
}

// CommIDs returns the upper bits of the communication IDs of a slot, and their number.
func CommIDs(slot int) (prefix uint32, bits int) { return uint32(slot) << (32 - SlotBits), SlotBits }
