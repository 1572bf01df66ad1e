// Package numbered maps 24-bit numbers, such as QPNs and indexes of memory keys, to values. A lookup takes no lock,
// allocates nothing and reads one cache line of the table. It imports internal/prefetch.
package numbered

import (
	"iter"
	"slices"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/prefetch"
)

// Table maps numbers of at most 24 bits to values. The zero Table is empty. Get and All may be called concurrently with
// any other method; calls of the other methods must not overlap.
type Table[T any] struct {
	cells atomic.Pointer[[]cell[T]]
	live  int
	used  int // cells with a number, including those without a value
}

// cell is one place of a hash table with open addressing. Its number does not change once it is set, so a lookup that
// finds the number finds its value or nil. Unused numbers disappear when the table is copied.
type cell[T any] struct {
	number atomic.Uint32 // number + 1; 0: the cell is free
	value  atomic.Pointer[T]
}

const leastCells = 16

// find returns the cell of a number, or the free cell at the end of the search. At most half of the cells are used, so
// there is one.
func find[T any](cells []cell[T], number uint32) (c *cell[T], found bool) {
	mask := uint32(len(cells) - 1)
	for i := number & mask; ; i = (i + 1) & mask {
		c = &cells[i]
		switch c.number.Load() {
		case number + 1:
			return c, true
		case 0:
			return c, false
		}
	}
}

// Get returns the value of a number, nil if there is none.
func (t *Table[T]) Get(number uint32) *T {
	cells := t.cells.Load()
	if cells == nil {
		return nil
	}
	if c, found := find(*cells, number); found {
		return c.value.Load()
	}
	return nil
}

// Prefetch asks the processor for what Get of a number reads.
func (t *Table[T]) Prefetch(number uint32) {
	if cells := t.cells.Load(); cells != nil {
		prefetch.Value(&(*cells)[number&uint32(len(*cells)-1)])
	}
}

// Len returns the number of values.
func (t *Table[T]) Len() int { return t.live }

// Put sets the value of a number, which must not be nil.
func (t *Table[T]) Put(number uint32, v *T) {
	cells := t.cells.Load()
	if cells == nil || 2*(t.used+1) > len(*cells) {
		cells = t.copied()
		defer t.cells.Store(cells)
	}
	c, found := find(*cells, number)
	if c.value.Swap(v) == nil {
		t.live++
	}
	if !found {
		c.number.Store(number + 1)
		t.used++
	}
}

// Remove removes the value of a number.
func (t *Table[T]) Remove(number uint32) {
	if cells := t.cells.Load(); cells != nil {
		if c, found := find(*cells, number); found && c.value.Swap(nil) != nil {
			t.live--
		}
	}
}

// copied returns cells with the existing values and room for as many more.
func (t *Table[T]) copied() *[]cell[T] {
	n := leastCells
	for n < 4*(t.live+1) {
		n *= 2
	}
	to := make([]cell[T], n)
	t.used = 0
	for number, v := range t.All() {
		c, _ := find(to, number)
		c.number.Store(number + 1)
		c.value.Store(v)
		t.used++
	}
	return &to
}

// All yields the numbers and their values in ascending order. Concurrent changes may or may not be seen.
func (t *Table[T]) All() iter.Seq2[uint32, *T] {
	return func(yield func(uint32, *T) bool) {
		cells := t.cells.Load()
		if cells == nil {
			return
		}
		var list []uint32
		for i := range *cells {
			c := &(*cells)[i]
			if n := c.number.Load(); n != 0 && c.value.Load() != nil {
				list = append(list, n-1)
			}
		}
		slices.Sort(list)
		for _, n := range list {
			if v := t.Get(n); v != nil && !yield(n, v) {
				return
			}
		}
	}
}
