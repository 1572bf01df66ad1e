package host

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/board"
	"github.com/verbena-rdma/verbena/internal/fdset"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// A Will is the last will of a connection: the management datagram that is sent to QP 1 of its peer when its process
// dies.
type Will struct {
	To       netip.Addr
	TClass   uint8
	HopLimit uint8
	PKey     uint16 // 0: the default
	MAD      []byte // at most MaxWill bytes; the rest of the datagram is zero
}

// Last wills are in memory that outlives its process: one piece for all processes of a user, with a region for each
// QPN slot, or, if several users share the address, one piece with one region for each process. A header has a word
// for each region, the number of places that may be in use. The regions follow. The owner of a region writes both. A
// place is valid while its first word is not zero. That word is stored last:
//
//	0   1 + length of the datagram, traffic class and hop limit, a byte each from the lowest one; P_Key, 2 bytes
//	8   the address of the peer, 16 bytes
//	32  the datagram
//
// Between header and regions is a board for each region: see package board.
const (
	places     = 1 << 14 // connections of a region with a last will; more connections have none
	placeLen   = 128
	placeMAD   = 32
	regionLen  = places * placeLen
	willHeader = 1 << 16 // a multiple of any page size, as regionLen is

	// MaxWill is the length of the longest datagram, in bytes.
	MaxWill = placeLen - placeMAD
)

type wills struct {
	fd     int // not owned
	num    int // regions
	header []byte

	mu      sync.Mutex // guards the following
	regions map[int]*region
	cleared bool
}

// A region is a region that this process owns.
type region struct {
	wills *wills
	count *atomic.Uint64
	mem   []byte
	free  []int
	next  int
}

// boardLen is the room of a board, a multiple of any page size.
const boardLen = 1 << 16

func willsLen(regions int) int64 { return willHeader + int64(regions)*(boardLen+regionLen) }

// createWills creates the memory and returns its descriptor.
func createWills(regions int) (fd int, err error) {
	if fd, err = unix.MemfdCreate("verbena-wills", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING); err != nil {
		return -1, fmt.Errorf("link/udp: memory for last wills: memfd_create: %w", err)
	}
	fd = fdset.Own(fd)
	if err = unix.Ftruncate(fd, willsLen(regions)); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("link/udp: memory for last wills: %w", err)
	}
	return fd, nil
}

// openWills maps memory that this process or another one created. Its size must be sealed, because an access behind
// the end raises SIGBUS. The kernel allocates a missing page at its first access, which raises SIGBUS only under
// strict overcommit (vm.overcommit_memory=2) at the commit limit of the system.
func openWills(fd, regions int) (*wills, error) {
	const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
	got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	var st unix.Stat_t
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	if err == nil && (got&seals != seals || st.Size != willsLen(regions) || st.Blksize > willHeader) {
		err = unix.EPROTO // a large block size means huge pages, whose pool can be empty
	}
	if err != nil {
		return nil, fmt.Errorf("link/udp: memory for last wills: %w", err)
	}
	w := &wills{fd: fd, num: regions, regions: map[int]*region{}}
	if w.header, err = unix.Mmap(fd, 0, willHeader, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return nil, fmt.Errorf("link/udp: memory for last wills: %w", err)
	}
	return w, nil
}

func word(b []byte, off int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&b[off : off+8 : off+8][0]))
}

// count returns the number of places of a region that may be in use.
func (w *wills) count(n int) *atomic.Uint64 { return word(w.header, 8*n) }

func (w *wills) mapRegion(n int) ([]byte, error) {
	at := willHeader + int64(w.num)*boardLen + int64(n)*regionLen
	return unix.Mmap(w.fd, at, regionLen, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// board maps the board of a region. The garbage collector unmaps it. It is nil if there is none.
func (w *wills) board(n int) *board.Board {
	if w == nil || n >= w.num {
		return nil
	}
	at := willHeader + int64(n)*boardLen
	mem, err := unix.Mmap(w.fd, at, boardLen, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil
	}
	b := board.New(mem)
	runtime.AddCleanup(b, func(mem []byte) { _ = unix.Munmap(mem) }, mem)
	return b
}

// collect removes and returns the last wills, at most most, of a region that has no owner any more.
func (w *wills) collect(n, most int) (all []Will) {
	count := int(min(w.count(n).Load(), places))
	if count == 0 {
		return nil
	}
	defer w.count(n).Store(0)
	mem, err := w.mapRegion(n)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Munmap(mem) }()
	for i := 0; i < count && len(all) < most; i++ {
		if b, ok := readPlace(mem[i*placeLen:][:placeLen]); ok {
			all = append(all, b)
		}
	}
	return all
}

func readPlace(s []byte) (b Will, ok bool) {
	w := word(s, 0).Load()
	n := int(w&0xff) - 1
	if n < 0 || n > MaxWill {
		return b, false
	}
	b = Will{TClass: uint8(w >> 8), HopLimit: uint8(w >> 16), PKey: uint16(w >> 24),
		MAD: append([]byte(nil), s[placeMAD:placeMAD+n]...)}
	b.To = netip.AddrFrom16([16]byte(s[8:24])).Unmap()
	return b, true
}

func writePlace(s []byte, b *Will) {
	word(s, 0).Store(0)
	to := b.To.As16()
	copy(s[8:], to[:])
	n := copy(s[placeMAD:], b.MAD)
	word(s, 0).Store(uint64(1+n) | uint64(b.TClass)<<8 | uint64(b.HopLimit)<<16 | uint64(b.PKey)<<24)
}

// endsConnectionOf reports whether a last will is valid: a DREQ, a DREP or a REJ of a connection of one of these QPN
// slots.
func (b *Will) endsConnectionOf(slots []int) bool {
	if len(b.MAD) < MADPeerID || b.MAD[0] != wire.MADBaseVersion || b.MAD[MADClass] != ClassCM {
		return false
	}
	if a := binary.BigEndian.Uint16(b.MAD[MADAttr:]); a != attrDREQ && a != attrDREP && a != attrREJ {
		return false
	}
	for _, n := range slots {
		if int(b.MAD[MADLocalID]>>(8-SlotBits)) == n {
			return true
		}
	}
	return false
}

// own returns region n, which this process owns, nil if there is none. mu is held.
func (w *wills) own(n int) *region {
	r := w.regions[n]
	if r != nil || w.cleared || n >= w.num {
		return r
	}
	mem, err := w.mapRegion(n)
	if err != nil {
		return nil
	}
	r = &region{wills: w, count: w.count(n), mem: mem}
	r.count.Store(0)
	w.regions[n] = r
	return r
}

// clear removes the last wills of this process. Its places cannot be used afterwards.
func (w *wills) clear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cleared = true
	for _, r := range w.regions {
		r.count.Store(0)
		_ = unix.Munmap(r.mem)
	}
	clear(w.regions)
}

// close unmaps the memory.
func (w *wills) close() {
	w.clear()
	if w.header != nil {
		_ = unix.Munmap(w.header)
		w.header = nil
	}
}

// A Place holds the last will of one connection. It is safe for concurrent use.
type Place struct {
	region *region
	n      int
	to     Will // without a datagram
}

// newPlace reserves an empty place in a region, nil if none is free.
func (w *wills) newPlace(n int, to Will) *Place {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.own(n)
	if r == nil || w.cleared {
		return nil
	}
	p := &Place{region: r, n: r.next, to: to}
	switch k := len(r.free); {
	case k > 0:
		p.n, r.free = r.free[k-1], r.free[:k-1]
	case r.next == places:
		return nil
	default:
		r.next++
		word(p.bytes(), 0).Store(0) // an earlier owner of the region has left its last will
	}
	return p
}

func (p *Place) bytes() []byte { return p.region.mem[p.n*placeLen:][:placeLen] }

// Set replaces the datagram that is sent when this process dies. It copies the first MaxWill bytes; the rest of the
// datagram is zero.
func (p *Place) Set(mad []byte) {
	w := p.region.wills
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cleared {
		return
	}
	b := p.to
	b.MAD = mad[:min(len(mad), MaxWill)]
	writePlace(p.bytes(), &b)
	if n := uint64(p.n + 1); n > p.region.count.Load() {
		p.region.count.Store(n)
	}
}

// Drop frees the place: nothing is sent.
func (p *Place) Drop() {
	w := p.region.wills
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cleared {
		return
	}
	word(p.bytes(), 0).Store(0)
	p.region.free = append(p.region.free, p.n)
}
