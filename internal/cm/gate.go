package cm

import (
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// A gate limits requests of one kind of unknown sources while a listener is flooded. It is safe for concurrent use.
type gate struct {
	end      atomic.Int64 // requests are limited until then
	requests bucket
	repeats  bucket // requests that were dropped before
}

// close limits requests for a while.
func (g *gate) close(now int64) { g.end.Store(now + guardTime) }

// closed reports whether requests are limited.
func (g *gate) closed(now int64) bool { return now < g.end.Load() }

// drop reports whether a request is dropped, and remembers it then. ahead is the time of the refusals minus now.
func (g *gate) drop(now, ahead int64, refused *refusals, msg cmmsg.Msg) bool {
	b, at := &g.requests, now+ahead
	h := refused.hash(msg)
	if refused.has(at, h) {
		b = &g.repeats
	}
	if b.pass(now, guardRequests, guardRequestBurst) {
		return false
	}
	refused.add(at, h)
	if msg.Kind() == cmmsg.KindSIDRREQ { // the machine gets too few to notice that the flood goes on
		g.close(now)
	}
	return true
}
