package shm

import (
	"fmt"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/ring"
)

// A lane from a link with n ports to one with m ports has three pieces of memory. Words lie in cache lines of their own.
//
//	rings    the sender's   word 0: the epoch of references; words 1 to m: a bit for each of the sender's ports that has
//	                        used its ring to that port of the receiver; from ringsAt on, rings of the agreed size, that from port i
//	                        to port j being number i*m+j
//	heads    the receiver's the head of each ring
//	status   the receiver's one for all lanes: a word for each port, which counts how often it fell asleep and woke
//	                        up, so that it is odd while the port sleeps
const (
	line    = ring.Line
	page    = 4096
	ringsAt = 2 * page

	maxPorts = 64 // bits of a word
	// A lane of many ports has smaller rings: untouched ones take no memory, but address space.
	defaultRing = 512 << 10
	minRing     = 64 << 10
	maxRing     = 4 << 20
	maxRings    = 1024
)

// shape is what both ends of a lane agree on.
type shape struct {
	n, m int // ports of sender and receiver
	ring int // bytes
}

func (s shape) check() error {
	switch {
	case s.n < 1, s.n > maxPorts, s.m < 1, s.m > maxPorts, s.n*s.m > maxRings,
		s.ring < minRing, s.ring > maxRing, s.ring&(s.ring-1) != 0:
		return fmt.Errorf("link/shm: a lane of %d to %d ports with rings of %d bytes is not possible: %w", s.n, s.m, s.ring, syscall.EPROTO)
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

// portTable finds the port of a link that a QP number belongs to. A link that is Numbered has a range of numbers for each port, of
// which the upper 8 bits tell the port; others divide by the number of ports.
type portTable struct {
	ports    uint32
	numbered bool
	of       [256]uint8
}

// set gives a port its range, and tells whether that is possible.
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
	kindFlow   ring.Kind = 2 // aux: which one; the data is what it is from now on
	kindTrain  ring.Kind = 3 // as kindPacket, for link.RxPacket.Train
	kindRef    ring.Kind = 4 // a reference to the payload, and the headers
)

// maxTrain is the most payload of a train: long enough to make what each costs small, and short enough that the receiver
// copies one while the sender makes the next.
const maxTrain = 32 << 10

// A packet of up to so many bytes is copied as a whole before anybody looks at it.
const smallPacket = 512
