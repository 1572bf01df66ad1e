package shm

import (
	"bytes"
	"crypto/rand"
	"net"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/peeruser"
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
	cred, err := peeruser.Of(l.conn)
	if err != nil || cred.Pid <= 0 || !readsAllowed() || l.sender.Load() != nil {
		return sendFrame(l.conn, frame{kind: frameShared})
	}
	m := &senderMemory{pid: int(cred.Pid), proofAt: at, failed: func() { refuseMemory(l.conn) }}
	copy(m.proof[:], l.heads.bytes[proofAt:])
	if new(transfer).read(m) < 0 {
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

// runMost limits the payloads of one call.
const runMost = 8

// A transfer is the arguments of a call: the proof, and payloads. They are no variables of a function because those
// would be allocated.
type transfer struct {
	local  [1 + runMost]unix.Iovec
	remote [1 + runMost]unix.RemoteIovec
	proof  [proofLen]byte
	used   int
}

// begin makes the transfer empty.
func (t *transfer) begin() { t.used = 0 }

// add adds memory of the sender, to be copied to dst. It reports whether there is room for it, and such an address.
func (t *transfer) add(dst []byte, addr uint64) bool {
	if t.used == runMost || uint64(uintptr(addr)) != addr {
		return false
	}
	t.used++
	l, r := &t.local[t.used], &t.remote[t.used]
	l.Base, r.Base, r.Len = unsafe.SliceData(dst), uintptr(addr), len(dst)
	l.SetLen(len(dst))
	return true
}

// read copies what was added, from the first to the last, and returns how many bytes of it were read from the sender.
// It returns -1 if the process is not the sender, or cannot be read.
func (t *transfer) read(m *senderMemory) int {
	t.local[0].Base, t.remote[0].Base, t.remote[0].Len = &t.proof[0], uintptr(m.proofAt), proofLen
	t.local[0].SetLen(proofLen)
	clear(t.proof[:])
	n, err := unix.ProcessVMReadv(m.pid, t.local[:1+t.used], t.remote[:1+t.used], 0)
	for i := range t.used {
		t.local[1+i].Base = nil
	}
	if err != nil || n < proofLen || uint64(uintptr(m.proofAt)) != m.proofAt || !bytes.Equal(t.proof[:], m.proof[:]) {
		return -1
	}
	return n - proofLen
}

// An away is a payload of a batch.
type away struct {
	link.Away
	from *senderMemory
	with *transfer // of the batch
}

// Read reads memory of the sender; see link.Memory. After a failure, which may be that of the destination, payload of
// this sender is no longer read: it sends again what was lost, and does not refer to its memory.
func (a *away) Read(dst []byte, addr uint64) bool {
	a.with.begin()
	if a.from.readable.Load() && a.with.add(dst, addr) && a.with.read(a.from) == len(dst) {
		return true
	}
	if a.from.readable.Swap(false) {
		a.from.failed()
	}
	return false
}

// ReadRun reads several payloads by one call; see link.Memory. A failure has no effect here: the payload that cannot be
// read is read again.
func (a *away) ReadRun(first *link.Away) (whole int) {
	if !a.from.readable.Load() {
		return 0
	}
	a.with.begin()
	for p := first; p != nil; p = p.Next {
		if m, ok := p.Memory.(*away); !ok || m.from != a.from || !a.with.add(p.To, p.Addr) {
			break
		}
	}
	left := a.with.read(a.from)
	for p := first; whole < a.with.used && left >= len(p.To); p = p.Next {
		left -= len(p.To)
		whole++
	}
	return whole
}

// aways are the payloads of a batch.
type aways struct {
	all  [recvMax]away
	used int
	call transfer
}

// reset forgets the payloads, and the memory that they were copied to.
func (s *aways) reset() {
	for i := range s.all[:s.used] {
		s.all[i].Away = link.Away{}
	}
	s.used = 0
}

func (s *aways) next(from *senderMemory, addr uint64, n int) *link.Away {
	a := &s.all[s.used]
	s.used++
	a.from, a.with = from, &s.call
	a.Away = link.Away{Memory: a, Addr: addr, N: n}
	return &a.Away
}

// carries reports whether headers are those of a SEND, a WRITE or a READ response of RC or XRC.
func carries(head []byte) bool {
	op := wire.BTH(head).Opcode()
	if class := op &^ 0x1F; class != wire.RC && class != wire.XRC {
		return false
	}
	f := op.Info().Flags
	return f&(wire.IsSend|wire.IsWrite) != 0 || f&(wire.Response|wire.HasData) == wire.Response|wire.HasData
}
