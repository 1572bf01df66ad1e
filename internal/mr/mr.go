// Package mr is registered memory: regions, their keys, bounds and rights, and the
// copies into and out of them. It owns the table that turns an lkey or rkey into bytes,
// and it is the only place of Verbena that touches a user's memory.
//
// The copies are the device's DMA: they carry no race annotations (see dma_race.go), and a
// peer that reads memory while its owner writes it sees some mixture, as on real hardware.
package mr

import (
	"errors"
	"sync"
	"sync/atomic"
)

// Access rights of a region; values of enum ibv_access_flags.
type Access uint32

// The access rights.
const (
	LocalWrite   Access = 1 << 0
	RemoteWrite  Access = 1 << 1
	RemoteRead   Access = 1 << 2
	RemoteAtomic Access = 1 << 3
	MWBind       Access = 1 << 4
	ZeroBased    Access = 1 << 5
)

// Reasons why a key, an address range or a right does not fit.
var (
	ErrKey    = errors.New("no region has this key")
	ErrPD     = errors.New("the region belongs to another protection domain")
	ErrBounds = errors.New("outside the region")
	ErrAccess = errors.New("the region does not permit this access")
)

// A Region is memory that work requests and peers may name. It is immutable once in a table;
// rereg replaces it under the same key index.
type Region struct {
	LKey, RKey uint32
	PD         uint32 // the owning protection domain's handle
	Access     Access
	Base       uint64 // the address of Buf[0] as work requests and peers give it
	Buf        []byte
}

// Slice is the part of the region at address addr, n bytes; nil, ErrBounds when it does not lie in the region.
func (r *Region) Slice(addr, n uint64) ([]byte, error) {
	off := addr - r.Base // wraps around to something huge below Base
	if off > uint64(len(r.Buf)) || n > uint64(len(r.Buf))-off {
		return nil, ErrBounds
	}
	return r.Buf[off : off+n : off+n], nil
}

const slotBits = 8 // the low byte of a key is the tag, so that a freed key is not soon valid again

// Table maps keys to regions. Lookups take no lock; changes take the table's.
type Table struct {
	mu    sync.Mutex
	pages atomic.Pointer[[]*page]
	free  []uint32
	tags  map[uint32]uint8 // the last tag of a slot that was freed
	next  uint32
	max   uint32
	used  int
}

const pageSize = 256

type page [pageSize]atomic.Pointer[Region]

// NewTable makes a table of at most max regions (at most 2^24-1).
func NewTable(max int) *Table {
	t := &Table{max: uint32(max), tags: make(map[uint32]uint8), next: 1}
	t.pages.Store(&[]*page{})
	return t
}

// ErrFull says that the table holds as many regions as it may.
var ErrFull = errors.New("the device has no free memory key")

// Add gives r a key of its own, LKey and RKey both, and makes it known.
func (t *Table) Add(r *Region) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var slot uint32
	switch {
	// Freed slots are reused oldest first and only once some have gathered: a stale key then names nothing for long.
	case len(t.free) > 64 || len(t.free) > 0 && t.next > t.max:
		slot = t.free[0]
		t.free = t.free[1:]
	case t.next <= t.max:
		slot = t.next
		t.next++
	default:
		return ErrFull
	}
	pages := *t.pages.Load()
	if int(slot/pageSize) >= len(pages) {
		pages = append(append([]*page(nil), pages...), new(page))
		t.pages.Store(&pages)
	}
	t.tags[slot]++
	r.LKey = slot<<slotBits | uint32(t.tags[slot])
	r.RKey = r.LKey
	pages[slot/pageSize][slot%pageSize].Store(r)
	t.used++
	return nil
}

// Replace puts r, which must carry old's keys, in old's place.
func (t *Table) Replace(old, r *Region) {
	t.mu.Lock()
	defer t.mu.Unlock()
	slot := old.LKey >> slotBits
	(*t.pages.Load())[slot/pageSize][slot%pageSize].Store(r)
}

// Remove forgets r. Whoever holds a shard may still be using it: see engine.Engine.Quiesce.
func (t *Table) Remove(r *Region) {
	t.mu.Lock()
	defer t.mu.Unlock()
	slot := r.LKey >> slotBits
	(*t.pages.Load())[slot/pageSize][slot%pageSize].Store(nil)
	t.free = append(t.free, slot)
	t.used--
}

// Len counts the regions.
func (t *Table) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.used
}

// Get finds the region of a key, nil if there is none.
func (t *Table) Get(key uint32) *Region {
	pages, slot := *t.pages.Load(), key>>slotBits
	if int(slot/pageSize) >= len(pages) {
		return nil
	}
	r := pages[slot/pageSize][slot%pageSize].Load()
	if r == nil || r.LKey != key {
		return nil
	}
	return r
}

// Check finds n bytes at addr in the region of key for a user in domain pd that needs
// the given rights. A length of 0 is checked no further than the key (local users) or not at all by callers (remote).
func (t *Table) Check(key uint32, addr, n uint64, pd uint32, need Access) (*Region, []byte, error) {
	r := t.Get(key)
	switch {
	case r == nil:
		return nil, nil, ErrKey
	case r.PD != pd:
		return nil, nil, ErrPD
	case r.Access&need != need:
		return nil, nil, ErrAccess
	}
	b, err := r.Slice(addr, n)
	if err != nil {
		return nil, nil, err
	}
	return r, b, nil
}
