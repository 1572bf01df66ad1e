package shm

import (
	"fmt"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/ring"
)

// A ring set from a link with n ports to one with m ports has three pieces of memory. Each word has its own cache
// line.
//
//	rings    of the sender    word 0: the epoch of references; words 1 to m: a bit for each port of the sender that has
//	                          used its ring to that port of the receiver; from ringsAt on, rings of the agreed size, the
//	                          ring from port i to port j at index i*m+j
//	heads    of the receiver  the head of each ring; in the first line also, at proofAt, random bytes by which the
//	                          receiver recognises the memory of the sender's process: see away_linux.go
//	status   of the receiver  one for all ring sets: a word for each port, incremented when the port goes to sleep and
//	                          when it wakes up, so that it is odd while the port sleeps
const (
	line    = ring.Line
	page    = 4096
	ringsAt = 2 * page

	proofAt  = 16
	proofLen = 16

	maxPorts = 64 // bits of a word
	// Ring sets of many ports have smaller rings: untouched rings use no memory, but address space.
	defaultRing = 512 << 10
	minRing     = 64 << 10
	maxRing     = 4 << 20
	maxRings    = 1024

	// maxForeign limits the memory of other processes that is mapped in this one: 4 TiB, or 256 MiB on processors of 32
	// bits, which have 4 GiB of address space.
	maxForeign = 1 << (28 + 14*(^uint(0)>>63))
)

// A shape is the layout that both ends of a ring set agree on.
type shape struct {
	n, m int // ports of sender and receiver
	ring int // bytes
}

func (s shape) check() error {
	switch {
	case s.n < 1, s.n > maxPorts, s.m < 1, s.m > maxPorts, s.n*s.m > maxRings,
		s.ring < minRing, s.ring > maxRing, s.ring&(s.ring-1) != 0:
		return fmt.Errorf("link/shm: rings of %d bytes from %d to %d ports: must be a power of two of 64 KiB to 4 MiB, "+
			"at most %d rings of 1 to %d ports: %w", s.ring, s.n, s.m, maxRings, maxPorts, syscall.EPROTO)
	case s.n*s.m > maxForeign/s.ring: // their size might exceed an int
		return fmt.Errorf("link/shm: %d rings of %d bytes: must be at most %d bytes in all: %w", s.n*s.m, s.ring,
			maxForeign, syscall.ENOMEM)
	}
	return nil
}

func (s shape) ringsSize() int { return ringsAt + s.n*s.m*s.ring }
func (s shape) headsSize() int { return roundUp(s.n * s.m * line) }
func (s shape) statusSize() int {
	return roundUp(s.m * line)
}

func (s shape) ringAt(i, j int) int { return ringsAt + (i*s.m+j)*s.ring }
func (s shape) headAt(i, j int) int { return (i*s.m + j) * line }

// A portTable finds the port of a link for a QP number. If the link has a range of numbers for each port, the upper 8
// bits determine the port, otherwise the remainder of a division by the number of ports.
type portTable struct {
	ports    uint32
	numbered bool
	of       [256]uint8
}

// set assigns a range to a port. It returns false if the range is invalid.
func (t *portTable) set(port int, first, last uint32) bool {
	if port >= int(t.ports) || first > last || last > 0xFFFFFF {
		return false
	}
	t.numbered = true
	for b := first >> 16; b <= last>>16; b++ {
		t.of[b] = uint8(port)
	}
	return true
}

func (t *portTable) find(qpn uint32) int {
	if t.numbered {
		return int(t.of[qpn>>16&0xFF])
	}
	return int(qpn % t.ports)
}

func activeAt(j int) int { return (1 + j) * line }
func sleepAt(j int) int  { return j * line }

func roundUp(n int) int { return (n + page - 1) &^ (page - 1) }

// Kinds of records.
const (
	kindPacket ring.Kind = 1 // BTH to pad; aux: the flow
	kindFlow   ring.Kind = 2 // aux: its number; the data is the new flow
	kindTrain  ring.Kind = 3 // as kindPacket, for link.RxPacket.Train
	kindRef    ring.Kind = 4 // a reference to the payload, and the headers
	kindPair   ring.Kind = 5 // two packets of a flow in one line; aux: the flow, and the length of the first packet << 8
	kindAway   ring.Kind = 6 // as kindRef, to the memory of the sender's process instead of a share

	kindCounted     ring.Kind = 7 // as kindPacket, for a counted request; see counted_linux.go
	kindCountedPair ring.Kind = 8 // as kindPair, for two counted requests
	kindCounts      ring.Kind = 9 // which counted requests of the other way are acknowledged
)

// maxTrain limits the payload of a kindTrain record, in bytes: long enough to make the cost of each record small, and
// short enough that the receiver copies one while the sender writes the next.
const maxTrain = 32 << 10

// smallPacket is the length up to which packets are copied as a whole before they are checked, in bytes.
const smallPacket = 512
