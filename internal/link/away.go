package link

import "slices"

// Memory is that of another process.
type Memory interface {
	// Read copies the len(dst) bytes at an address of the other process to dst. If it returns false, dst has undefined
	// content.
	Read(dst []byte, addr uint64) bool
}

// An Away is payload in the memory of the sender's process. The receiver copies it from there to its destination. It
// belongs to the batch, and to the holder of the shard.
type Away struct {
	Memory Memory
	Addr   uint64 // in the other process
	N      int    // bytes

	failed bool
}

// Read copies the len(dst) bytes at offset at to dst. If the memory cannot be read, the payload is void.
func (a *Away) Read(dst []byte, at int) {
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
