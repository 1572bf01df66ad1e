package verbs

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
)

// kind is a kind of object, for the counts of users.
type kind uint8

const (
	noKind kind = iota
	kindPD
	kindCQ
	kindChannel
	kindMR
	kindMW
	kindDM
	kindQP
	kindSRQ
	kindXRCD
	kindAH
	kindGroup
	kindTD
	kindParentDomain
	kindImport
	kindFlow
	kindCounters
	kindFlowAction
	kindWQ
	kindRWQIndTable
	numKinds
)

var kindNames = [numKinds]string{
	"", "PD", "CQ", "completion channel", "MR", "MW", "DM", "QP", "SRQ", "XRC domain", "AH", "multicast group", "TD",
	"parent domain", "import",
	"flow", "counters handle", "flow action", "WQ", "indirection table",
}

// lifetime is the state of an object: open, with the number of users of each kind, or closed. An object with users
// cannot be closed. Most objects have users of one kind only.
type lifetime struct {
	mu     sync.Mutex
	closed atomic.Bool
	// +checklocks:mu
	n int32 // users of kind first
	// +checklocks:mu
	others *[numKinds]int32 // users of other kinds; nil: there were none
	// +checklocks:mu
	first kind // the kind of the first user; noKind: there was none
}

// users returns the number of users of a kind.
//
// +checklocks:l.mu
func (l *lifetime) users(k kind) *int32 {
	switch {
	case l.first == noKind:
		l.first = k
	case l.first != k && l.others == nil:
		l.others = new([numKinds]int32)
	}
	if l.first == k {
		return &l.n
	}
	return &l.others[k]
}

// use adds a user. It returns false if the object is closed.
func (l *lifetime) use(k kind) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed.Load() {
		return false
	}
	*l.users(k)++
	return true
}

// drop removes a user.
func (l *lifetime) drop(k kind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*l.users(k)--
}

// has reports whether there are users of a kind.
func (l *lifetime) has(k kind) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count(k) > 0
}

// count is users for a reader.
//
// +checklocks:l.mu
func (l *lifetime) count(k kind) int32 {
	switch {
	case k == l.first:
		return l.n
	case l.others == nil:
		return 0
	}
	return l.others[k]
}

// close closes the object: EBUSY if it has users, EINVAL if it is closed already.
func (l *lifetime) close(op string, of named) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed.Load() {
		return errClosed(op, of.obj())
	}
	var busy []string
	for k := noKind + 1; k < numKinds; k++ {
		if n := l.count(k); n == 1 {
			busy = append(busy, "1 "+kindNames[k])
		} else if n > 1 {
			busy = append(busy, fmt.Sprintf("%d %ss", n, kindNames[k]))
		}
	}
	if busy != nil {
		return newError(op, of.obj(), EBUSY, "still used by %s", strings.Join(busy, ", "))
	}
	l.closed.Store(true)
	return nil
}

// reopen opens an object again that the driver could not destroy.
func (l *lifetime) reopen() { l.closed.Store(false) }

// parent is an object that another object uses.
type parent struct {
	lifetime *lifetime
	of       named
}

// role is the name in errors of a parent that has none of its own.
type role string

func (r role) obj() string { return string(r) }

// use adds an object of kind k as a user of all its parents, or of none if one of them is closed.
func use(op string, k kind, parents []parent) error {
	for i, p := range parents {
		if !p.lifetime.use(k) {
			drop(k, parents[:i])
			return errClosed(op, p.of.obj())
		}
	}
	return nil
}

// drop undoes use.
func drop(k kind, parents []parent) {
	for _, p := range parents {
		p.lifetime.drop(k)
	}
}
