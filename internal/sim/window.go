package sim

import (
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// A window is the memory window of type 2 of an end of an RC pair over its target. The peer uses it like the region,
// until the peer invalidates it by a SEND or the owner invalidates it while the peer does not use it. Then it is
// bound again, with another key.
type window struct {
	mw    *verbs.MW
	state windowState
	zero  bool // it is zero-based
	users int  // incomplete requests of the peer through it
}

type windowState int

const (
	unbound windowState = iota
	binding             // posted by the owner
	bound               // the peer may use it
	ending              // an end has posted the request that invalidates it
)

// windowAddr returns the address of byte at of the target in the window.
func (e *rcEnd) windowAddr(at int) uint64 {
	if e.win.zero {
		return uint64(at)
	}
	return e.mr.Addr() + uint64(targetAt+at)
}

// turnWindow posts the request that changes the state of the window, if its owner can.
func (e *rcEnd) turnWindow() error {
	w := &e.win
	switch {
	case w.state == unbound:
		w.state, w.zero = binding, e.w.rand.IntN(2) == 0
		info := verbs.MWBindInfo{MR: e.mr, Addr: e.mr.Addr() + targetAt, Length: targetSz,
			Access: verbs.AccessRemoteWrite | verbs.AccessRemoteRead}
		if w.zero {
			info.Access |= verbs.AccessZeroBased
		}
		wr := verbs.SendWR{
			Opcode: verbs.WRBindMW, Flags: verbs.SendSignaled, MW: w.mw, RKey: verbs.IncRKey(w.mw.RKey()), BindInfo: &info,
		}
		return e.post(wr, rcSend{op: verbs.WCBindMW, then: func() { w.state = bound }})
	case w.state == bound && w.users == 0 && e.w.rand.IntN(4) == 0:
		w.state = ending
		wr := verbs.SendWR{Opcode: verbs.WRLocalInv, Flags: verbs.SendSignaled, InvalidateRKey: w.mw.RKey()}
		return e.post(wr, rcSend{op: verbs.WCLocalInv, then: func() { w.state = unbound }})
	}
	return nil
}

// throughWindow makes some requests to byte at of the peer's target use the window instead of the region.
func (e *rcEnd) throughWindow(wr *verbs.SendWR, s *rcSend, at int) {
	w := &e.peer.win
	if w.state != bound || e.w.rand.IntN(2) == 0 {
		return
	}
	wr.RemoteAddr, wr.RKey = e.peer.windowAddr(at), w.mw.RKey()
	w.users++
	s.then = func() { w.users-- }
	e.w.tally.ThroughWindows++
}

// invalidate makes some SENDs invalidate the window of the peer. They are fenced, so that READs through the window
// complete first.
func (e *rcEnd) invalidate(wr *verbs.SendWR, want *rcRecv) {
	w := &e.peer.win
	if w.state != bound || e.w.rand.IntN(3) != 0 {
		return
	}
	w.state = ending
	wr.Opcode, wr.InvalidateRKey = verbs.WRSendWithInv, w.mw.RKey()
	wr.Flags |= verbs.SendFence
	want.inv = wr.InvalidateRKey
	e.w.tally.Invalidated++
}

// invalidated checks the invalidated key of a receive completion, which must be x.inv.
func (e *rcEnd) invalidated(wc *verbs.WC, x rcRecv) error {
	if (x.inv != 0) != (wc.WCFlags&verbs.WCWithInv != 0) || x.inv != 0 && wc.InvalidatedRKey != x.inv {
		return fmt.Errorf("key %#x is invalidated (flags %v), want %#x", wc.InvalidatedRKey, wc.WCFlags, x.inv)
	}
	if x.inv != 0 {
		e.win.state = unbound
	}
	return nil
}
