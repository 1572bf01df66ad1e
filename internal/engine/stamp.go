package engine

import "time"

// A Stamp is the time at which a completion was pushed.
type Stamp struct {
	Clock int64 // the engine's clock, ns
	Wall  int64 // ns since 1970
}

// Now returns the engine's time in ns.
func (e *Engine) Now() int64 { return e.now() }

// Options of a CQ. They must be set before it is used.

// KeepTimes makes the CQ record the time of each completion.
func (cq *CQ) KeepTimes() { cq.times = true }

// IgnoreOverrun makes a completion that arrives while the CQ is full replace the oldest one, which is lost
// (V-CQX-05).
func (cq *CQ) IgnoreOverrun() { cq.overwrite = true }

// stamp returns the current time.
func (cq *CQ) stamp() Stamp { return Stamp{Clock: cq.eng.now(), Wall: time.Now().UnixNano()} }
