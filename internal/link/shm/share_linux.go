package shm

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/fdset"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// Packets by reference. The sender passes the descriptor of a share to the receiver once, sealed against writing, and
// refers to the share when the receiver has answered that it can read it. A word of the rings memory is the epoch:
// references of an earlier epoch are void.

const (
	// epochAt is the offset of the epoch in the rings memory.
	epochAt = 0
	// refLen is the length of a reference: share, offset, length, epoch.
	refLen = 24
	// maxShares limits the shares of a ring set that the receiver maps.
	maxShares = 256
)

// States of a share at a sender.
const (
	shareAsked uint32 = iota
	shareReady
	shareRefused
)

// A sharing is the state of a share at the sender.
type sharing struct {
	id    uint64
	state atomic.Uint32

	telling sync.Mutex // held while the receiver is told of the share, or of its end
	// +checklocks:telling
	told bool
}

// reads reports whether the receiver can read a share. The first call for a share sends it.
func (l *txRings) reads(s *link.Share) bool {
	if s.Plain() {
		return l.away.Load() && s.AddReader(l)
	}
	known := *l.shares.Load()
	for _, k := range known {
		if k.id == s.ID {
			return k.state.Load() == shareReady
		}
	}
	if len(known) >= maxShares {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	known = *l.shares.Load()
	for _, k := range known {
		if k.id == s.ID {
			return false
		}
	}
	fd, err := fdset.Dup(int(s.File.Fd())) // the owner may close the file meanwhile
	if err != nil {
		return false
	}
	fdset.Add(fd)
	k := &sharing{id: s.ID}
	next := append(known[:len(known):len(known)], k)
	l.shares.Store(&next)
	if !s.OnClose(l, func() { l.unshare(k) }) { // nothing removes it later
		unix.Close(fd)
		l.shares.Store(&known)
		return false
	}
	go l.tell(k, os.NewFile(uintptr(fd), "share"), uint32(s.Size/page))
	return false
}

// tell sends a share to the receiver. Like tellEnd it waits for room in the socket.
func (l *txRings) tell(k *sharing, file *os.File, pages uint32) {
	defer file.Close()
	k.telling.Lock()
	defer k.telling.Unlock()
	if k.state.Load() == shareRefused { // it has ended
		return
	}
	if sendFrame(l.conn, frame{kind: frameShare, size: pages, word: k.id}, file) != nil {
		k.state.Store(shareRefused)
		return
	}
	k.told = true
}

// shared handles the answer of the receiver.
func (l *txRings) shared(id uint64, ok bool) {
	if id == 0 {
		l.away.Store(ok)
		return
	}
	for _, k := range *l.shares.Load() {
		if k.id == id {
			if !ok {
				k.state.CompareAndSwap(shareAsked, shareRefused)
			} else {
				k.state.CompareAndSwap(shareAsked, shareReady)
			}
		}
	}
}

// unshare ends a share: no reference to it is valid afterwards.
func (l *txRings) unshare(k *sharing) {
	k.state.Store(shareRefused)
	l.Revoke()
	go l.tellEnd(k)
}

// tellEnd tells the receiver that it can unmap a share. Until then the share counts as one of maxShares, as it does at
// the receiver.
func (l *txRings) tellEnd(k *sharing) {
	k.telling.Lock()
	if k.told {
		_ = sendFrame(l.conn, frame{kind: frameUnshare, word: k.id})
	}
	k.telling.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	next := slices.DeleteFunc(slices.Clone(*l.shares.Load()), func(o *sharing) bool { return o == k })
	l.shares.Store(&next)
}

// Revoke makes all references void that the receiver has not completed. The memory may be changed afterwards.
func (l *txRings) Revoke() { l.rings.word(epochAt).Add(1) }

// Ended reports whether the ring set has ended; see link.Reader.
func (l *txRings) Ended() bool { return l.end.Load() != ringsOpen }

// putRef writes a reference.
func (l *txRings) putRef(b []byte, id uint64, off int64, n int) {
	binary.LittleEndian.PutUint64(b, id)
	binary.LittleEndian.PutUint64(b[8:], uint64(off))
	binary.LittleEndian.PutUint32(b[16:], uint32(n))
	binary.LittleEndian.PutUint32(b[20:], uint32(l.rings.word(epochAt).Load()))
}

// PlaceRef returns the place for the headers of a packet by reference; see link.ByReference.
func (p *port) PlaceRef(path *link.Path, qpn uint32, head int, s *link.Share, off int64, n int) []byte {
	kind := kindRef
	if s.Plain() {
		kind = kindAway
	}
	b, _ := p.place(path, qpn, refLen+head, kind, n)
	if b == nil {
		return nil
	}
	if l := p.routeOf(path, qpn).rings.Load(); l != nil {
		l.putRef(b, s.ID, off, n)
	}
	return b[refLen:]
}

// Reads reports whether the receiver can read a share; see link.ByReference.
func (p *port) Reads(path *link.Path, qpn uint32, s *link.Share) bool {
	l := p.routeOf(path, qpn).rings.Load()
	return l != nil && l.end.Load() == ringsOpen && l.reads(s)
}

// Revoke makes references void; see link.ByReference.
func (p *port) Revoke(path *link.Path) {
	if r, ok := path.Route.(*route); ok {
		if l := r.rings.Load(); l != nil {
			l.Revoke()
		}
	}
}

// open maps a share of the sender.
func (l *rxRings) open(id uint64, fd int, pages uint32) error {
	known := *l.shares.Load()
	if len(known) >= maxShares || known[id] != nil {
		return fmt.Errorf("link/shm: too many shares: %w", syscall.ENOSPC)
	}
	if uint64(pages) > maxForeign/page {
		return fmt.Errorf("link/shm: a share of %d pages: must be 1 to %d: %w", pages, maxForeign/page, syscall.EPROTO)
	}
	m, err := attach(fd, int(pages)*page)
	if err != nil {
		return err
	}
	next := map[uint64]*memory{id: m}
	for i, o := range known {
		next[i] = o
	}
	l.shares.Store(&next)
	return nil
}

// close removes a share. Its memory is unmapped when no batch refers to it.
func (l *rxRings) close(id uint64) {
	next := map[uint64]*memory{}
	for i, o := range *l.shares.Load() {
		if i != id {
			next[i] = o
		}
	}
	l.shares.Store(&next)
}

// answer sends whether the share can be read.
func (l *rxRings) answer(id uint64, err error) error {
	f := frame{kind: frameShared, word: id}
	if err == nil {
		f.port = 1
	}
	return sendFrame(l.conn, f)
}

// takeRef checks a packet by reference and appends it to the batch.
func (p *port) takeRef(b *link.RxBatch, m *buffers, l *rxRings, f *flow, kind ring.Kind, shared []byte) error {
	if len(shared) < refLen+wire.BTHLen || len(shared) > refLen+wire.MaxHeaderLen {
		return errInvalidRecord
	}
	var ref [refLen]byte
	copy(ref[:], shared)
	head := m.small[len(b.Packets)][: len(shared)-refLen : len(shared)-refLen]
	copy(head, shared[refLen:])
	n, was := binary.LittleEndian.Uint32(ref[16:]), binary.LittleEndian.Uint32(ref[20:])
	r := reference{id: binary.LittleEndian.Uint64(ref[:]), off: binary.LittleEndian.Uint64(ref[8:]), n: uint64(n)}
	packet := link.RxPacket{
		Data: head, Src: f.src, Dst: f.dst, TClass: f.tclass, HopLimit: f.hopLimit, Train: true,
		Epoch: link.NewEpoch(l.rings.word(epochAt), was),
	}
	if n < link.MinRef || n > link.MaxRef {
		return errInvalidRecord
	}
	headers, pad, err := wire.ParseHead(head, len(head)+int(n), link.MaxRef)
	if err != nil || headers != len(head) || pad != 0 || kind == kindAway && !carries(head) {
		p.counters.RxMalformed++
		return nil
	}
	found, err := l.find(&packet, m, r, kind) // last: it takes one of recvMax places
	if err != nil || !found {
		p.counters.ShmRevoked++
		return err
	}
	p.counters.RxPackets++
	p.counters.RxBytes += uint64(len(head)) + uint64(n)
	p.counters.ShmRxPackets++
	b.Packets = append(b.Packets, packet)
	return nil
}

// A reference names n bytes at off of share id, or at address off of the sender's memory.
type reference struct{ id, off, n uint64 }

// find sets the payload of a packet. It returns false if the reference is void.
func (l *rxRings) find(packet *link.RxPacket, m *buffers, r reference, kind ring.Kind) (bool, error) {
	if kind == kindAway {
		from := l.sender.Load()
		if from == nil {
			return false, errInvalidRecord
		}
		if packet.Epoch.Over() || !from.readable.Load() {
			return false, nil
		}
		packet.Away = m.away.next(from, r.off, int(r.n))
		return true, nil
	}
	mem := (*l.shares.Load())[r.id]
	if packet.Epoch.Over() || mem == nil {
		return false, nil
	}
	if r.off > uint64(len(mem.bytes)) || r.n > uint64(len(mem.bytes))-r.off {
		return false, errInvalidRecord
	}
	m.shares = append(m.shares, mem)
	packet.Body = mem.bytes[r.off : r.off+r.n : r.off+r.n]
	return true, nil
}

// directAllowed reports whether the environment allows packets by reference.
func directAllowed() bool { return os.Getenv(directEnv) != "0" }

// readsAllowed is directAllowed for memory that is read with system calls: only where that is fast, unless the
// environment asks for it.
func readsAllowed() bool {
	switch os.Getenv(directEnv) {
	case "0":
		return false
	case "1":
		return true
	}
	return readsFast()
}

const directEnv = "VERBENA_SHM_DIRECT"
