package rdmacm

import (
	"context"
	"errors"
	"net/netip"
	"sync"
)

// asking are the requests of a device that ask the system whether their peer can be reached. A host sends one ICMP
// message a second to an address, so that of many requests few get one: each shares what it hears with the others to
// the same address. It is safe for concurrent use.
type asking struct {
	mu sync.Mutex
	// +checklocks:mu
	waiting map[askedEnds]map[*question]struct{}
}

// askedEnds are the addresses of a request, or of a route that the system is asked about, with zones.
type askedEnds struct{ src, dst netip.Addr }

// A question is one request among asking.
type question struct{ end context.CancelCauseFunc }

// unreached is what another request has heard: the cause with which the context of a question ends.
type unreached struct{ error }

// join adds a question. Its context ends when another request to the same address has heard why nothing arrives; see
// heard. leave ends the question.
func (a *asking) join(ctx context.Context, ends askedEnds) (asks context.Context, leave func()) {
	asks, end := context.WithCancelCause(ctx)
	q := &question{end}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting == nil {
		a.waiting = map[askedEnds]map[*question]struct{}{}
	}
	if a.waiting[ends] == nil {
		a.waiting[ends] = map[*question]struct{}{}
	}
	a.waiting[ends][q] = struct{}{}
	return asks, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if delete(a.waiting[ends], q); len(a.waiting[ends]) == 0 {
			delete(a.waiting, ends)
		}
		end(nil)
	}
}

// tell ends the questions about the way between two addresses with the reason why nothing arrives.
func (a *asking) tell(ends askedEnds, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for q := range a.waiting[ends] {
		q.end(unreached{err})
	}
}

// heard returns what another request has heard, nil if it is nothing.
func heard(ctx context.Context) error {
	var u unreached
	if errors.As(context.Cause(ctx), &u) {
		return u.error
	}
	return nil
}
