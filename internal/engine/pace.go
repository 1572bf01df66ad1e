package engine

import (
	"sync/atomic"
	"time"
)

// pace tells programs that poll all the time from those that poll now and then, for example once per millisecond while
// they wait for a socket. The background goroutine leaves the shard only to the first kind: packets would wait for the
// next poll of the second kind. It decides whenever the goroutine would doze.
type pace struct {
	notes  atomic.Uint32 // intervals of pollNote in which the program polled
	seen   uint32        // notes at the begin of the window
	began  int64         // of the window, ns
	seldom bool          // the last window had few polls
}

// paceWindow is the shortest window after which pace decides, ns.
const paceWindow = int64(time.Millisecond)

// seldomPoll is the mean interval of notes from which a program polls seldom, ns. A program that polls all the time has
// one per 5 us while it runs, which is part of the time on a busy machine. A variable, because tests change it.
var seldomPoll = int64(200_000)

// note counts n intervals of pollNote in which the program polled.
func (p *pace) note(n uint32) { p.notes.Add(n) }

// rare reports whether the program polls seldom.
func (p *pace) rare(now int64) bool {
	if d := now - p.began; d >= paceWindow {
		n := p.notes.Load()
		p.seldom = int64(n-p.seen) < d/seldomPoll
		p.seen, p.began = n, now
	}
	return p.seldom
}
