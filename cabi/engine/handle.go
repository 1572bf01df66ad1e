//go:build linux && cgo

package main

// #include "engine.h"
// #cgo CFLAGS: -Wall
import "C"

import (
	"cmp"
	"errors"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/engine"
)

// kind is the kind of an object, in the order in which the objects of a context are closed.
type kind int

const (
	kindFlow kind = iota
	kindCounters
	kindAction
	kindQP
	kindMW
	kindSRQ
	kindIndTable
	kindWQ
	kindAH
	kindMR
	kindDM
	kindCQ
	kindChannel
	kindParentDomain
	kindTD
	kindPD
	kindXRCD
	kindContext
)

// entry is an object that C has a pointer to.
type entry struct {
	pin   runtime.Pinner
	ctx   *contextObj // nil after the context is closed
	kind  kind
	order int
	close func() error
}

var live = struct {
	mu sync.Mutex
	// +checklocks:mu
	entries map[unsafe.Pointer]*entry
	// +checklocks:mu
	last int
}{entries: map[unsafe.Pointer]*entry{}}

// keep makes v an object that C may point to, until drop, and returns its handle.
func keep[T any](ctx *contextObj, k kind, v *T, close func() error) unsafe.Pointer {
	e := &entry{ctx: ctx, kind: k, close: close}
	e.pin.Pin(v)
	live.mu.Lock()
	defer live.mu.Unlock()
	live.last++
	e.order = live.last
	live.entries[unsafe.Pointer(v)] = e
	return unsafe.Pointer(v)
}

// drop closes an object. It stays if that fails.
func drop(h unsafe.Pointer) error {
	live.mu.Lock()
	e := live.entries[h]
	live.mu.Unlock()
	if e == nil {
		return syscall.EINVAL
	}
	if e.close != nil {
		if err := e.close(); err != nil {
			return err
		}
	}
	live.mu.Lock()
	defer live.mu.Unlock()
	delete(live.entries, h)
	e.pin.Unpin()
	return nil
}

// closeChildren closes the objects that a program left in a context: ibv_close_device succeeds with them. Their
// memory stays, since the program still has pointers to it.
func closeChildren(ctx *contextObj) {
	live.mu.Lock()
	var children []*entry
	for _, e := range live.entries {
		if e.ctx == ctx && e.kind != kindContext {
			children = append(children, e)
		}
	}
	live.mu.Unlock()
	slices.SortFunc(children, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(b.order, a.order))
	})
	for _, e := range children {
		if e.close != nil && e.close() != nil {
			continue
		}
		live.mu.Lock()
		e.ctx, e.close = nil, nil
		live.mu.Unlock()
	}
}

var explain = os.Getenv("VERBENA_EXPLAIN") != ""

// errno returns the number of an error for C; 0 for nil. Adapters answer EOPNOTSUPP for what they lack.
func errno(err error) C.int {
	if err == nil {
		return 0
	}
	if explain {
		os.Stderr.WriteString("verbena: " + err.Error() + "\n")
	}
	return C.int(errnoOf(err))
}

// errnoOf returns the number of an error; 0 for nil.
func errnoOf(err error) syscall.Errno {
	var e syscall.Errno
	switch {
	case err == nil:
		return 0
	case !errors.As(err, &e):
		return syscall.EIO
	case e == syscall.ENOSYS:
		return syscall.EOPNOTSUPP
	}
	return e
}

//export vrb_destroy
func vrb_destroy(h unsafe.Pointer) C.int { return errno(drop(h)) }

// vrb_owed returns the address of a variable, which does not move.
//
//export vrb_owed
func vrb_owed() C.uintptr_t { return C.uintptr_t(uintptr(unsafe.Pointer(engine.Owed()))) }

//export vrb_set_env
func vrb_set_env(name, value *C.char) C.int {
	err := os.Setenv(C.GoString(name), C.GoString(value))
	explain = os.Getenv("VERBENA_EXPLAIN") != ""
	return errno(err)
}
