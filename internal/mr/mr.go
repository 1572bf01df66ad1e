// Package mr is registered memory: regions and the windows into them, their keys, bounds and rights, and
// the copies into and out of them. It owns the table that turns an lkey or rkey into bytes,
// and it is the only place of Verbena that touches a user's memory.
//
// The copies are the device's DMA: they carry no race annotations (see dma_race.go), and a
// peer that reads memory while its owner writes it sees some mixture, as on real hardware.
package mr

import (
	"errors"
	"iter"
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
	FlushGlobal  Access = 1 << 8
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
	Share      any  // what the layers above know of the memory's file (*link.Share); nil if it has none
	Null       bool // no memory: reads give 0, what is written is lost, any address will do; it has no RKey

	windows int     // bound to it; under the table's lock
	window  *Window // what stands for a window in the table: it has no keys or memory of its own
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
	free  [2][]uint32      // slots of regions, slots of windows
	tags  map[uint32]uint8 // the last tag of a slot that was freed
	next  uint32
	max   uint32
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

// Add gives r a key of its own, LKey and RKey both, and makes it known. A null region gets no RKey.
func (t *Table) Add(r *Region) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err := t.insert(r)
	return err
}

// insert puts r in a free slot and returns its key.
func (t *Table) insert(r *Region) (uint32, error) {
	slot, err := t.takeSlot(kindOf(r))
	if err != nil {
		return 0, err
	}
	pages := *t.pages.Load()
	if int(slot/pageSize) >= len(pages) {
		pages = append(append([]*page(nil), pages...), new(page))
		t.pages.Store(&pages)
	}
	t.tags[slot]++
	key := slot<<slotBits | uint32(t.tags[slot])
	if r.window == nil {
		r.LKey = key
		if !r.Null {
			r.RKey = key
		}
	}
	pages[slot/pageSize][slot%pageSize].Store(r)
	return key, nil
}

// The kinds of slots. Programs choose the low bytes of a window's keys, so the stale key of a region shall not name a
// window, nor the other way round, as long as there are other slots.
const (
	regionSlot = iota
	windowSlot
)

func kindOf(r *Region) int {
	if r.window != nil {
		return windowSlot
	}
	return regionSlot
}

// takeSlot finds a free slot. Freed ones are reused oldest first and only once some have gathered: a stale key then
// names nothing for long.
func (t *Table) takeSlot(kind int) (slot uint32, err error) {
	if len(t.free[kind]) <= 64 && t.next <= t.max {
		t.next++
		return t.next - 1, nil
	}
	if len(t.free[kind]) == 0 {
		kind = 1 - kind
	}
	if len(t.free[kind]) == 0 {
		return 0, ErrFull
	}
	slot, t.free[kind] = t.free[kind][0], t.free[kind][1:]
	return slot, nil
}

// Replace puts r, which must carry old's keys, in old's place. ErrBound says that there are windows bound to old,
// which then stays.
func (t *Table) Replace(old, r *Region) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old.windows > 0 {
		return ErrBound
	}
	slot := old.LKey >> slotBits
	(*t.pages.Load())[slot/pageSize][slot%pageSize].Store(r)
	return nil
}

// Remove forgets r. ErrBound says that there are windows bound to it, so that it stays (V-MR-21). Whoever holds a
// shard may still be using r: see engine.Engine.Quiesce.
func (t *Table) Remove(r *Region) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.windows > 0 {
		return ErrBound
	}
	t.clear(r.LKey>>slotBits, r.LKey, regionSlot)
	return nil
}

// clear frees a slot, whose last key was the given one.
func (t *Table) clear(slot, key uint32, kind int) {
	(*t.pages.Load())[slot/pageSize][slot%pageSize].Store(nil)
	t.tags[slot] = uint8(key)
	t.free[kind] = append(t.free[kind], slot)
}

// All lists the regions, without the windows. Those that come and go meanwhile may be there or not.
func (t *Table) All() iter.Seq[*Region] {
	return func(yield func(*Region) bool) {
		for _, p := range *t.pages.Load() {
			for i := range p {
				if r := p[i].Load(); r != nil && r.window == nil && !yield(r) {
					return
				}
			}
		}
	}
}

// Num is the number of a region, by which people know it: that of its place in the table.
func (r *Region) Num() uint32 { return r.LKey >> slotBits }

// at is what the slot of a key holds, nil if nothing.
func (t *Table) at(key uint32) *Region {
	pages, slot := *t.pages.Load(), key>>slotBits
	if int(slot/pageSize) >= len(pages) {
		return nil
	}
	return pages[slot/pageSize][slot%pageSize].Load()
}

// Get finds the region of an lkey, nil if there is none.
func (t *Table) Get(key uint32) *Region {
	r := t.at(key)
	if r == nil || r.LKey != key || r.window != nil {
		return nil
	}
	return r
}

// Check finds n bytes at addr in the region of an lkey, for a user in domain pd that needs the given
// rights. Of a null region there are NullChunk bytes at most. Where n may be 0 its callers decide whether to check at all.
func (t *Table) Check(key uint32, addr, n uint64, pd uint32, need Access) ([]byte, error) {
	r := t.Get(key)
	switch {
	case r == nil:
		return nil, ErrKey
	case r.PD != pd:
		return nil, ErrPD
	case r.Access&need != need:
		return nil, ErrAccess
	case r.Null:
		return nothing(n, need), nil
	}
	return r.Slice(addr, n)
}

// CheckKey tells whether the peer of a QP in domain pd has the given rights to all of the region of an rkey. Windows, which never have it
// all, are none.
func (t *Table) CheckKey(key, pd uint32, need Access) error {
	r := t.at(key)
	if r == nil || r.window != nil {
		return ErrKey
	}
	_, _, err := t.CheckRemote(key, r.Base, 0, pd, 0, need)
	return err
}

// CheckRemote finds n bytes at addr in the region or window of an rkey, for the peer of QP qp in domain pd, who
// needs the given rights, one at least. The window, if not nil, must be released once the bytes are no longer used.
func (t *Table) CheckRemote(key uint32, addr, n uint64, pd uint32, qp uint64, need Access) ([]byte, *Window, error) {
	r := t.at(key)
	switch {
	case r == nil:
		return nil, nil, ErrKey
	case r.window != nil:
		return r.window.check(key, addr, n, pd, qp, need)
	case r.RKey != key:
		return nil, nil, ErrKey
	case r.PD != pd:
		return nil, nil, ErrPD
	case need == 0 || r.Access&need != need:
		return nil, nil, ErrAccess
	}
	b, err := r.Slice(addr, n)
	return b, nil, err
}
