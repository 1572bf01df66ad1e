package mr

import (
	"errors"
	"sync/atomic"
)

// WindowType is the type of a memory window; its values are those of enum ibv_mw_type.
type WindowType uint8

// The window types. A window of type 1 serves every QP of its domain, one of type 2 only the QP through which it
// was bound (IBTA calls it 2B).
const (
	Type1 WindowType = 1
	Type2 WindowType = 2
)

// The reasons why a window cannot be bound or invalidated, or a region not be changed because of windows.
var (
	ErrBound     = errors.New("memory windows are bound to the region")
	ErrNoWindow  = errors.New("the window was deallocated")
	ErrRebind    = errors.New("the window is bound: a window of type 2 must be invalidated before it is bound again")
	ErrNewKey    = errors.New("the new key must differ from the window's only in its low 8 bits")
	ErrEmpty     = errors.New("a window of type 2 must be bound to at least 1 byte; invalidate it to unbind it")
	ErrOtherQP   = errors.New("the window is bound through another queue pair")
	ErrNoBinding = errors.New("no bound memory window of type 2 has this key")
)

// A Window gives peers a part of a region under a key and rights of its own. The caller makes it with PD and Type;
// from then on only the table's Bind, Invalidate and RemoveWindow change it.
// Lookups take no lock. The words of a binding belong together if state did not change while they were read; a
// lookup during a change finds no window, which is allowed. Memory must also not be accessed through a binding that
// has ended. A type 2 window is changed and used under one shard, that of its QP. The users of a type 1 window are
// counted, and a bind is complete when no user of the previous binding is left (see Drained).
type Window struct {
	PD   uint32
	Type WindowType

	slot uint32 // the upper bits of its key; 0: not in a table; guarded by the table's mu
	key  uint32 // that AddWindow gave; guarded by the table's mu

	state  atomic.Uint64 // count of changes << 32 | R_Key; R_Key 0: not bound
	owner  atomic.Uint64 // type 2: the QP
	access atomic.Uint32
	base   atomic.Uint64 // the address of the first byte for peers
	off    atomic.Uint64 // its offset in parent's memory
	length atomic.Uint64
	parent atomic.Pointer[Region]
	users  atomic.Int32
}

// A Binding is the request of a bind (struct ibv_mw_bind_info and the new key).
type Binding struct {
	Window *Window
	RKey   uint32 // the window's new key
	LKey   uint32 // of the region
	Access Access // of the window; ZeroBased: addresses count from the window's start
	Addr   uint64 // an address of the region
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
	w.slot, w.key = key>>tagBits, key
	return nil
}

// RemoveWindow unbinds w and removes it. The holder of a shard may still be using it afterwards; see
// engine.Engine.Quiesce.
func (t *Table) RemoveWindow(w *Window) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w.unbind()
	t.entries.Remove(w.slot)
	w.slot = 0
}

// Key returns the key that AddWindow gave w.
func (t *Table) Key(w *Window) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return w.key
}

// Bind binds a window on behalf of QP qp of domain pd. If it fails, the window is unchanged.
func (t *Table) Bind(b *Binding, pd uint32, qp uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := b.Window
	switch {
	case w == nil || w.slot == 0:
		return ErrNoWindow
	case w.PD != pd:
		return ErrPD
	case b.RKey>>tagBits != w.slot:
		return ErrNewKey
	case w.Type == Type2 && w.bound():
		return ErrRebind
	case b.Length == 0 && w.Type == Type2:
		return ErrEmpty
	case b.Length == 0:
		w.unbind()
		return nil
	}
	r, err := t.bindable(b, pd)
	if err != nil {
		return err
	}
	w.bind(b, r, qp)
	return nil
}

// bindable returns the region that a window is to be bound to.
func (t *Table) bindable(b *Binding, pd uint32) (*Region, error) {
	r := t.Get(b.LKey)
	const writing = RemoteWrite | RemoteAtomic
	switch {
	case r == nil:
		return nil, ErrKey
	case r.PD != pd:
		return nil, ErrPD
	case r.Null, r.Whole, r.Access&MWBind == 0, b.Access&writing != 0 && r.Access&LocalWrite == 0:
		return nil, ErrAccess
	}
	_, err := r.Slice(b.Addr, b.Length)
	return r, err
}

// Invalidate ends the binding of key on behalf of QP qp of domain pd or of its peer. Only windows of type 2 can be
// invalidated, and only through the QP through which they were bound.
func (t *Table) Invalidate(key, pd uint32, qp uint64) error {
	r := t.at(key)
	if r == nil || r.window == nil || r.window.Type != Type2 {
		return ErrNoBinding
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	w := r.window
	switch {
	case uint32(w.state.Load()) != key: // also if the window was removed
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

// change publishes a key, 0 for none. The table's mu is held.
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

func (w *Window) bind(b *Binding, r *Region, qp uint64) {
	w.unbind()
	r.windows++
	w.parent.Store(r)
	w.owner.Store(qp)
	w.access.Store(uint32(b.Access))
	w.off.Store(b.Addr - r.Base)
	w.length.Store(b.Length)
	w.base.Store(b.Addr)
	if b.Access&ZeroBased != 0 {
		w.base.Store(0)
	}
	w.change(b.RKey)
}

// Drained reports whether no access is in progress through a binding that w had when Bind returned.
func (w *Window) Drained() bool { return w.users.Load() == 0 }

// Release ends an access that CheckRemote began. On nil it does nothing.
func (w *Window) Release() {
	if w != nil {
		w.users.Add(-1)
	}
}

// check is CheckRemote for a key of w.
func (w *Window) check(key uint32, addr, n uint64, pd uint32, qp uint64, need Access) ([]byte, *Window, error) {
	if w.Type == Type2 {
		b, err := w.find(key, addr, n, pd, qp, need)
		return b, nil, err
	}
	w.users.Add(1) // before state is read: either this goroutine sees the change of state, or the changer sees this user
	b, err := w.find(key, addr, n, pd, qp, need)
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
	at := addr - base // below base it wraps around to a huge number
	if at > length || n > length-at {
		return nil, ErrBounds
	}
	return r.Buf[off+at : off+at+n : off+at+n], nil
}
