package shm

import (
	"bytes"
	"crypto/rand"
	"net"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// Packets whose payload stays in the sender's memory. The receiver copies it with process_vm_readv, for which the
// kernel requires the right to trace the sender (ptrace). The sender offers its memory once; the receiver tries to read
// it and answers whether it can.
//
// A process ID may belong to another process by the time of a read. So each read also reads the proof, random bytes of
// the receiver that the sender has mapped: a process that has not is another one. The kernel reads both from the same
// address space.

// A senderMemory is the memory of the sender's process.
type senderMemory struct {
	pid      int
	proofAt  uint64 // in the sender's memory
	proof    [proofLen]byte
	readable atomic.Bool
	failed   func() // called after the first failure
}

// newProof writes a proof into heads.
func newProof(heads *memory) error {
	_, err := rand.Read(heads.bytes[proofAt : proofAt+proofLen])
	return err
}

// offer is the frame by which the sender offers its memory.
func (l *txRings) offer() frame {
	return frame{kind: frameMemory, word: uint64(uintptr(unsafe.Pointer(&l.heads.bytes[proofAt])))}
}

// openMemory handles the offer of a sender to read its memory, and answers it.
func (l *rxRings) openMemory(at uint64) error {
	cred, err := peerOf(l.conn)
	if err != nil || cred.Pid <= 0 || !directAllowed() || l.sender.Load() != nil {
		return sendFrame(l.conn, frame{kind: frameShared})
	}
	m := &senderMemory{pid: int(cred.Pid), proofAt: at, failed: func() { refuseMemory(l.conn) }}
	copy(m.proof[:], l.heads.bytes[proofAt:])
	if !new(transfer).read(m, nil, 0) {
		return sendFrame(l.conn, frame{kind: frameShared})
	}
	m.readable.Store(true)
	l.sender.Store(m)
	return sendFrame(l.conn, frame{kind: frameShared, port: 1})
}

// refuseMemory tells the sender to copy from now on. It does not block.
func refuseMemory(c *net.UnixConn) {
	if raw, err := c.SyscallConn(); err == nil {
		b := frame{kind: frameShared}.bytes()
		_ = raw.Control(func(fd uintptr) { writeNow(fd, b[:]) })
	}
}

// A transfer is the arguments of a read. They are no variables of a function because those would be allocated.
type transfer struct {
	local  [2]unix.Iovec
	remote [2]unix.RemoteIovec
	proof  [proofLen]byte
}

// read copies memory of the sender to dst. It reports whether all of it was read, from the sender.
func (t *transfer) read(m *senderMemory, dst []byte, addr uint64) bool {
	t.local[0].Base, t.remote[0].Base = unsafe.SliceData(dst), uintptr(addr)
	t.local[0].SetLen(len(dst))
	t.remote[0].Len = len(dst)
	t.local[1].Base, t.remote[1].Base = &t.proof[0], uintptr(m.proofAt)
	t.local[1].SetLen(proofLen)
	t.remote[1].Len = proofLen
	clear(t.proof[:])
	n, err := unix.ProcessVMReadv(m.pid, t.local[:], t.remote[:], 0)
	t.local[0].Base = nil
	return err == nil && n == len(dst)+proofLen && uint64(uintptr(addr)) == addr &&
		bytes.Equal(t.proof[:], m.proof[:])
}

// An away is a payload of a batch.
type away struct {
	link.Away
	transfer
	from *senderMemory
}

// Read reads memory of the sender; see link.Memory. After a failure, which may be that of the destination, payload of
// this sender is no longer read: it sends again what was lost, and does not refer to its memory.
func (a *away) Read(dst []byte, addr uint64) bool {
	if a.from.readable.Load() && a.read(a.from, dst, addr) {
		return true
	}
	if a.from.readable.Swap(false) {
		a.from.failed()
	}
	return false
}

// aways are the payloads of a batch.
type aways struct {
	all  [recvMax]away
	used int
}

func (s *aways) next(from *senderMemory, addr uint64, n int) *link.Away {
	a := &s.all[s.used]
	s.used++
	a.from = from
	a.Away = link.Away{Memory: a, Addr: addr, N: n}
	return &a.Away
}

// isMessage reports whether headers are those of a SEND or WRITE of RC or XRC.
func isMessage(head []byte) bool {
	op := wire.BTH(head).Opcode()
	if class := op &^ 0x1F; class != wire.RC && class != wire.XRC {
		return false
	}
	return op.Info().Flags&(wire.IsSend|wire.IsWrite) != 0
}
