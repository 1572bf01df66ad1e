package engine

import "time"

// A Stamp tells when a completion came into its CQ.
type Stamp struct {
	Clock int64 // of the engine, ns
	Wall  int64 // ns since 1970
}

// Now is the engine's clock, ns.
func (e *Engine) Now() int64 { return e.now() }

// Options of a CQ that are rarely wanted; they must be set before it is used.

// KeepTimes makes the CQ note when each completion comes.
func (cq *CQ) KeepTimes() { cq.stamps = make([]Stamp, len(cq.ring)) }

// IgnoreOverrun makes a completion that comes while the CQ is full take the place of the oldest one, which is lost
// (V-CQX-05).
func (cq *CQ) IgnoreOverrun() { cq.overwrite = true }

// stamp is the time now.
func (cq *CQ) stamp() Stamp { return Stamp{Clock: cq.eng.now(), Wall: time.Now().UnixNano()} }
