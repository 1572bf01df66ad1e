// Package mr holds registered memory: regions and the windows into them, their keys, bounds and rights, and the
// copies into and out of them. It owns the table that turns an lkey or rkey into bytes, and it is the only package
// of Verbena that accesses a user's memory. Only in internal/link/shm the kernel copies to it, from another process.
//
// The copies are the device's DMA: they carry no race annotations (see dma_race.go), and a peer that reads memory
// while its owner writes it sees a mixture of both contents, as with an adapter. The package imports the standard
// library, internal/numbered, internal/secret, internal/wire and internal/wire/iwarp.
package mr

import (
	"cmp"
	"errors"
	"slices"
	"sync"

	"github.com/verbena-rdma/verbena/internal/numbered"
	"github.com/verbena-rdma/verbena/internal/secret"
)

// Access is a set of access rights of a region; its bits are those of enum ibv_access_flags.
type Access uint32

// Access rights.
const (
	LocalWrite   Access = 1 << 0
	RemoteWrite  Access = 1 << 1
	RemoteRead   Access = 1 << 2
	RemoteAtomic Access = 1 << 3
	MWBind       Access = 1 << 4
	ZeroBased    Access = 1 << 5
	FlushGlobal  Access = 1 << 8
)

// The reasons why Check, CheckKey and CheckRemote refuse an access.
var (
	ErrKey    = errors.New("no region has this key")
	ErrPD     = errors.New("the region belongs to another protection domain")
	ErrBounds = errors.New("outside the region")
	ErrAccess = errors.New("the region does not permit this access")
)

// A Region is memory that work requests and peers may name. It is immutable once in a table; Replace puts another
// one under the same key.
type Region struct {
	LKey, RKey uint32
	PD         uint32 // the owning protection domain's handle
	Access     Access
	Base       uint64 // the address of Buf[0] as work requests and peers give it
	Buf        []byte
	Share      any  // the memory's file (*link.Share), for the layers above; nil if it has none
	Null       bool // no memory: reads return 0, writes are discarded, any address is valid; it has no RKey
	Whole      bool // the process's whole address space instead of Buf; it has no RKey

	num     uint32  // counts from 1 in the table
	windows int     // bound to the region; guarded by the table's mu
	window  *Window // stands for a window in the table: such a region has no keys or memory of its own
}

// Slice returns the n bytes of the region at address addr; nil and ErrBounds if they do not lie in the region.
func (r *Region) Slice(addr, n uint64) ([]byte, error) {
	if r.Whole {
		return space(addr, n)
	}
	off := addr - r.Base // below Base it wraps around to a huge number
	if off > uint64(len(r.Buf)) || n > uint64(len(r.Buf))-off {
		return nil, ErrBounds
	}
	return r.Buf[off : off+n : off+n], nil
}

// tagBits is the number of low bits of a window's key that the program chooses. The bits above identify the region or
// window.
const tagBits = 8

// Table maps keys to regions and windows. Lookups take no lock; changes take mu.
type Table struct {
	mu      sync.Mutex
	entries numbered.Table[Region] // by the upper 24 bits of their keys
	draw    func() uint32
	added   uint32 // regions added since the table was made
	max     int
}

// NewTable makes a table of at most max regions and windows, 2^20 at most. draw makes candidates for keys, for tests
// that need the same ones each time; it is Unguessable if nil.
func NewTable(max int, draw func() uint32) *Table {
	if draw == nil {
		draw = Unguessable()
	}
	return &Table{max: max, draw: draw}
}

// Unguessable returns a source of keys in a secret order, for one table: known keys do not help to guess another. The
// upper 24 bits repeat only after all 2^24 values, so a freed key stays invalid for long, whatever low bits a program
// chooses for its windows.
func Unguessable() func() uint32 {
	order := secret.NewSequence(1<<24, nil)
	return func() uint32 { return order.Next()<<tagBits | secret.Uint32()&(1<<tagBits-1) }
}

// Counted returns a source of keys 0x101, 0x201, ...
func Counted() func() uint32 {
	next := uint32(1)
	return func() uint32 { next += 1 << tagBits; return next }
}

// ErrFull reports that the table holds its maximum of regions.
var ErrFull = errors.New("the device has no free memory key")

// Add gives r a key of its own, as LKey and RKey, and inserts it. A null region gets no RKey.
func (t *Table) Add(r *Region) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err := t.insert(r)
	return err
}

// insert gives r a free key and returns it.
func (t *Table) insert(r *Region) (uint32, error) {
	if t.entries.Len() >= t.max {
		return 0, ErrFull
	}
	key := t.draw()
	for key>>tagBits == 0 || t.entries.Get(key>>tagBits) != nil {
		key = t.draw()
	}
	if r.window == nil {
		t.added++
		r.num = t.added
		r.LKey = key
		if !r.Null && !r.Whole {
			r.RKey = key
		}
	}
	t.entries.Put(key>>tagBits, r)
	return key, nil
}

// Replace puts r, which has the keys of old, in the place of old. It returns ErrBound, and changes nothing, if windows
// are bound to old.
func (t *Table) Replace(old, r *Region) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old.windows > 0 {
		return ErrBound
	}
	r.num = old.num
	t.entries.Put(old.LKey>>tagBits, r)
	return nil
}

// Remove removes r. It returns ErrBound, and changes nothing, if windows are bound to r (V-MR-21). The holder of a
// shard may still be using r afterwards; see engine.Engine.Quiesce.
func (t *Table) Remove(r *Region) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.windows > 0 {
		return ErrBound
	}
	t.entries.Remove(r.LKey >> tagBits)
	return nil
}

// All lists the regions, without the windows, in the order of their numbers. Regions that are added or removed
// meanwhile may or may not be listed.
func (t *Table) All() []*Region {
	var list []*Region
	for _, r := range t.entries.All() {
		if r.window == nil {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b *Region) int { return cmp.Compare(a.num, b.num) })
	return list
}

// Num is the number of a region for users, which counts from 1 in each table.
func (r *Region) Num() uint32 { return r.num }

// at returns the region with the upper bits of a key, nil if there is none. The caller compares the low bits.
func (t *Table) at(key uint32) *Region { return t.entries.Get(key >> tagBits) }

// Get returns the region of an lkey, nil if there is none.
func (t *Table) Get(key uint32) *Region {
	r := t.at(key)
	if r == nil || r.LKey != key || r.window != nil {
		return nil
	}
	return r
}

// Check returns the n bytes at addr of the region of an lkey, for a user in domain pd that needs the given rights. Of a
// null region it returns at most NullChunk bytes. Callers that may pass n = 0 decide themselves whether to check.
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

// CheckKey reports, by a nil error, whether the peer of QP qp in domain pd has the given rights to all of the region or
// window of an rkey.
func (t *Table) CheckKey(key, pd uint32, qp uint64, need Access) error {
	r := t.at(key)
	if r == nil {
		return ErrKey
	}
	base := r.Base
	if r.window != nil {
		base = r.window.base.Load()
	}
	_, w, err := t.CheckRemote(key, base, 0, pd, qp, need)
	w.Release()
	return err
}

// CheckRemote returns the n bytes at addr of the region or window of an rkey, for the peer of QP qp in domain pd, which
// needs the given rights, at least one. The window, if not nil, must be released once the bytes are no longer used.
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
