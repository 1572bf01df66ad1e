package mr

import (
	"errors"
	"sync/atomic"
)

// WindowType is the type of a memory window; values of enum ibv_mw_type.
type WindowType uint8

// The window types. Those of type 1 serve every QP of their domain, those of type 2 the QP through which they
// were bound (IBTA calls it 2B).
const (
	Type1 WindowType = 1
	Type2 WindowType = 2
)

// Reasons why a window cannot be bound or invalidated, or a region not change because of windows.
var (
	ErrBound     = errors.New("memory windows are bound to the region")
	ErrNoWindow  = errors.New("the window was deallocated")
	ErrRebind    = errors.New("the window is bound; one of type 2 must be invalidated before it is bound again")
	ErrNewKey    = errors.New("the new key differs from the window's in more than its low 8 bits")
	ErrEmpty     = errors.New("a window of type 2 cannot be bound to no memory; it is unbound by invalidating it")
	ErrOtherQP   = errors.New("the window is bound through another queue pair")
	ErrNoBinding = errors.New("the key is not that of a bound memory window of type 2")
)

// A Window gives peers a part of a region under a key and rights of its own. It is made with PD and Type, and
// changes only by the table's Bind, Invalidate and RemoveWindow.
//
// Lookups take no lock. The binding is a set of words that belong together if state did not change while they
// were read; a lookup during a change finds no window, as it may. What is more, nobody must touch memory through a
// binding that has ended. Those of type 2 are changed and used with one shard held, the one of their QP. The users
// of a type 1 window are counted, and a bind is complete when there are none any more (see Settled).
type Window struct {
	PD   uint32
	Type WindowType

	slot uint32 // 0: not in a table; under the table's lock
	last uint32 // the latest key, valid or not; under the table's lock

	state  atomic.Uint64 // count of changes << 32 | R_Key; R_Key 0 is not bound
	owner  atomic.Uint64 // type 2: the QP
	access atomic.Uint32
	base   atomic.Uint64 // the address of the first byte as peers give it
	off    atomic.Uint64 // where it lies in parent's memory
	length atomic.Uint64
	parent atomic.Pointer[Region]
	users  atomic.Int32
}

// A Binding is what a bind asks for (struct ibv_mw_bind_info and what goes with it).
type Binding struct {
	Window *Window
	RKey   uint32 // the window's new key
	LKey   uint32 // of the region
	Access Access // of the window; ZeroBased: peers count from the window's start
	Addr   uint64 // as the region has it
	Length uint64 // 0 unbinds a window of type 1
}

// AddWindow gives w, which is not bound, a key of its own.
func (t *Table) AddWindow(w *Window) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	key, err := t.insert(&Region{window: w})
	if err != nil {
		return err
	}
	w.slot, w.last = key>>slotBits, key
	return nil
}

// RemoveWindow unbinds w and forgets it. Whoever holds a shard may still be using it: see engine.Engine.Quiesce.
func (t *Table) RemoveWindow(w *Window) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w.unbind()
	t.clear(w.slot, w.last, windowSlot)
	w.slot = 0
}

// Key is w's key after it was added and before it was bound for the first time.
func (t *Table) Key(w *Window) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return w.last
}

// Bind binds a window as QP qp of domain pd asks for. If it fails the window is as it was.
func (t *Table) Bind(b *Binding, pd uint32, qp uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := b.Window
	switch {
	case w == nil || w.slot == 0:
		return ErrNoWindow
	case w.PD != pd:
		return ErrPD
	case b.RKey>>slotBits != w.slot:
		return ErrNewKey
	case w.Type == Type2 && w.bound():
		return ErrRebind
	case b.Length == 0 && w.Type == Type2:
		return ErrEmpty
	case b.Length == 0:
		w.unbind()
		w.last = b.RKey
		return nil
	}
	r, off, err := t.bindable(b, pd)
	if err != nil {
		return err
	}
	w.bind(b, r, off, qp)
	return nil
}

// bindable finds the memory that a window may be bound to.
func (t *Table) bindable(b *Binding, pd uint32) (r *Region, off uint64, err error) {
	r = t.Get(b.LKey)
	const writing = RemoteWrite | RemoteAtomic
	switch {
	case r == nil:
		return nil, 0, ErrKey
	case r.PD != pd:
		return nil, 0, ErrPD
	case r.Null, r.Access&MWBind == 0, b.Access&writing != 0 && r.Access&LocalWrite == 0:
		return nil, 0, ErrAccess
	}
	if _, err := r.Slice(b.Addr, b.Length); err != nil {
		return nil, 0, err
	}
	return r, b.Addr - r.Base, nil
}

// Invalidate ends the binding that key stands for, as QP qp of domain pd asks for, by itself or for its peer.
// Only windows of type 2 can be invalidated, and only through the QP through which they were bound.
func (t *Table) Invalidate(key, pd uint32, qp uint64) error {
	r := t.at(key)
	if r == nil || r.window == nil || r.window.Type != Type2 {
		return ErrNoBinding
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	w := r.window
	switch {
	case uint32(w.state.Load()) != key || w.slot == 0:
		return ErrNoBinding
	case w.PD != pd:
		return ErrPD
	case w.owner.Load() != qp:
		return ErrOtherQP
	}
	w.unbind()
	return nil
}

func (w *Window) bound() bool { return uint32(w.state.Load()) != 0 }

// change publishes a key, 0 for none. Its caller holds the table's lock.
func (w *Window) change(key uint32) {
	w.state.Store((w.state.Load()>>32+1)<<32 | uint64(key))
}

func (w *Window) unbind() {
	if !w.bound() {
		return
	}
	w.change(0)
	w.parent.Load().windows--
}

func (w *Window) bind(b *Binding, r *Region, off, qp uint64) {
	w.unbind()
	r.windows++
	w.parent.Store(r)
	w.owner.Store(qp)
	w.access.Store(uint32(b.Access))
	w.off.Store(off)
	w.length.Store(b.Length)
	w.base.Store(b.Addr)
	if b.Access&ZeroBased != 0 {
		w.base.Store(0)
	}
	w.last = b.RKey
	w.change(b.RKey)
}

// Settled tells whether nobody touches memory any more through a binding that w had when Bind returned.
func (w *Window) Settled() bool { return w.users.Load() == 0 }

// Release ends a use that CheckRemote began. It does nothing on nil.
func (w *Window) Release() {
	if w != nil {
		w.users.Add(-1)
	}
}

// check is CheckRemote for a key of w's.
func (w *Window) check(key uint32, addr, n uint64, pd uint32, qp uint64, need Access) ([]byte, *Window, error) {
	if w.Type == Type2 {
		b, err := w.find(key, addr, n, pd, qp, need)
		return b, nil, err
	}
	w.users.Add(1) // before the look at state: either we see that it has changed, or who changed it sees us
	b, err := w.find(key, addr, n, pd, 0, need)
	if err != nil {
		w.Release()
		return nil, nil, err
	}
	return b, w, nil
}

func (w *Window) find(key uint32, addr, n uint64, pd uint32, qp uint64, need Access) ([]byte, error) {
	state := w.state.Load()
	r, owner, access := w.parent.Load(), w.owner.Load(), Access(w.access.Load())
	base, off, length := w.base.Load(), w.off.Load(), w.length.Load()
	switch {
	case uint32(state) != key || w.state.Load() != state:
		return nil, ErrKey
	case w.PD != pd:
		return nil, ErrPD
	case w.Type == Type2 && owner != qp:
		return nil, ErrOtherQP
	case access&need != need:
		return nil, ErrAccess
	}
	at := addr - base // wraps around to something huge below base
	if at > length || n > length-at {
		return nil, ErrBounds
	}
	return r.Buf[off+at : off+at+n : off+at+n], nil
}
