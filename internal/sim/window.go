package sim

import (
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// window is the memory window of type 2 that an end of an RC pair has over its target. Its peer uses it like the
// region, until it invalidates it by a SEND or the owner takes it away while the peer does not use it. Then
// it is bound again, with another key.
type window struct {
	mw    *verbs.MW
	state windowState
	zero  bool // it is zero-based
	users int  // requests of the peer through it that are not known to be complete
}

type windowState int

const (
	unbound windowState = iota
	binding             // posted by the owner
	bound               // the peer may use it
	ending              // somebody has posted what invalidates it
)

// windowAddr is the address of byte at of the target as the window has it.
func (e *rcEnd) windowAddr(at int) uint64 {
	if e.win.zero {
		return uint64(at)
	}
	return e.mr.Addr() + uint64(targetAt+at)
}

// turnWindow posts what takes the window to its next state, if its owner can.
func (e *rcEnd) turnWindow() error {
	w := &e.win
	switch {
	case w.state == unbound:
		w.state, w.zero = binding, e.w.rand.IntN(2) == 0
		info := verbs.MWBindInfo{MR: e.mr, Addr: e.mr.Addr() + targetAt, Length: targetSize, Access: verbs.AccessRemoteWrite | verbs.AccessRemoteRead}
		if w.zero {
			info.Access |= verbs.AccessZeroBased
		}
		wr := verbs.SendWR{Opcode: verbs.WRBindMW, Flags: verbs.SendSignaled, MW: w.mw, RKey: verbs.IncRKey(w.mw.RKey()), BindInfo: &info}
		return e.post(wr, rcSend{op: verbs.WCBindMW, done: func() { w.state = bound }})
	case w.state == bound && w.users == 0 && e.w.rand.IntN(4) == 0:
		w.state = ending
		wr := verbs.SendWR{Opcode: verbs.WRLocalInv, Flags: verbs.SendSignaled, InvalidateRKey: w.mw.RKey()}
		return e.post(wr, rcSend{op: verbs.WCLocalInv, done: func() { w.state = unbound }})
	}
	return nil
}

// throughWindow lets a request to byte at of the peer's target take the window instead of the region, now and then.
func (e *rcEnd) throughWindow(wr *verbs.SendWR, s *rcSend, at int) {
	w := &e.peer.win
	if w.state != bound || e.w.rand.IntN(2) == 0 {
		return
	}
	wr.RemoteAddr, wr.RKey = e.peer.windowAddr(at), w.mw.RKey()
	w.users++
	s.done = func() { w.users-- }
	e.w.tally.ThroughWindows++
}

// invalidate lets a SEND invalidate the peer's window, now and then. It is fenced: READs through the window come first.
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

// invalidated checks what a receive completion says of the window, whose key x.inv is unless the SEND was another one.
func (e *rcEnd) invalidated(wc *verbs.WC, x rcRecv) error {
	if (x.inv != 0) != (wc.WCFlags&verbs.WCWithInv != 0) || x.inv != 0 && wc.InvalidatedRKey != x.inv {
		return fmt.Errorf("key %#x is invalidated (flags %v), want %#x", wc.InvalidatedRKey, wc.WCFlags, x.inv)
	}
	if x.inv != 0 {
		e.win.state = unbound
	}
	return nil
}
