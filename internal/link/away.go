package link

import (
	"slices"
	"unsafe"
)

// Memory is that of another process.
type Memory interface {
	// Read copies the len(dst) bytes at an address of the other process to dst. If it returns false, dst has undefined
	// content.
	Read(dst []byte, addr uint64) bool
	// ReadRun reads the payload of first, and of those that follow it by Next, to their To. It returns how many it has
	// read as a whole, from the first one on: fewer than there are if one cannot be read, or if there are more than it
	// reads at once.
	ReadRun(first *Away) int
}

// An Away is payload in the memory of the sender's process. The receiver copies it from there to its destination. It
// belongs to the batch, and to the holder of the shard.
type Away struct {
	Memory Memory
	Addr   uint64 // in the other process
	N      int    // bytes

	// Batch is the packets of the batch from the one with this payload on. It is empty if the engine did not say.
	Batch []RxPacket
	// To is the destination of the whole payload, and Next what is read together with it; see ReadRun.
	To   []byte
	Next *Away

	arrived bool // the payload is in To
	failed  bool
}

// ReadRun reads payloads at once that are then copied in turn: the payload, and those that follow it by Next, to their
// To. What cannot be read is read again by Read.
func (a *Away) ReadRun() {
	for n := a.Memory.ReadRun(a); n > 0; n-- {
		a.arrived = true
		a = a.Next
	}
}

// InRun reports whether the payload was part of a run that was read.
func (a *Away) InRun() bool { return a.To != nil }

// Read copies the len(dst) bytes at offset at to dst. If the memory cannot be read, the payload is void.
func (a *Away) Read(dst []byte, at int) {
	if a.arrived && at == 0 && len(dst) == len(a.To) && unsafe.SliceData(dst) == unsafe.SliceData(a.To) {
		return
	}
	if !a.failed && !a.Memory.Read(dst, a.Addr+uint64(at)) {
		a.failed = true
	}
}

// Failed reports whether a Read has failed, so that its copy is void.
func (a *Away) Failed() bool { return a.failed }

// Append appends the whole payload.
func (a *Away) Append(to []byte) []byte {
	at := len(to)
	to = slices.Grow(to, a.N)[:at+a.N]
	a.Read(to[at:], 0)
	return to
}
