package sim

import (
	"bytes"
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

func (e *rcEnd) completed(wc *verbs.WC) error {
	var err error
	isRecv := wc.WRID < recvSlots
	switch {
	case wc.Status == verbs.WCSuccess && isRecv:
		err = e.received(wc)
	case wc.Status == verbs.WCSuccess:
		err = e.sent(wc)
	case isRecv:
		err = e.recvFailed(wc)
	default:
		err = e.sendFailed(wc)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", e.name, err)
	}
	return nil
}

// complete removes the oldest request, which has succeeded.
func (e *rcEnd) complete() error {
	s := &e.sends[0]
	switch {
	case s.bad != 0:
		return fmt.Errorf("request %d (%v) succeeded, want %v", s.id, s.op, s.bad)
	case e.paused && s.id > e.lastOut:
		return fmt.Errorf("request %d (%v) was executed, and was posted to a drained send queue", s.id, s.op)
	case s.dead:
		return fmt.Errorf("request %d (%v) succeeded, and was posted to a QP in ERR", s.id, s.op)
	case !bytes.Equal(s.land, s.want):
		at := differ(s.land, s.want)
		return fmt.Errorf("request %d (%v) returned wrong data at byte %d of %d", s.id, s.op, at, len(s.want))
	}
	e.peer.known.apply(&s.effect)
	if s.then != nil {
		s.then()
	}
	e.sends = e.sends[1:]
	return nil
}

// sent checks a send completion: it is that of the next signaled request, and all earlier ones have taken effect.
func (e *rcEnd) sent(wc *verbs.WC) error {
	for len(e.sends) > 0 {
		s := e.sends[0]
		if err := e.complete(); err != nil {
			return err
		}
		if !s.signaled {
			continue
		}
		switch {
		case wc.WRID != s.id:
			return fmt.Errorf("completion of request %d, but %d is the next one", wc.WRID, s.id)
		case wc.Opcode != s.op:
			return fmt.Errorf("request %d completes as %v, posted as %v", s.id, wc.Opcode, s.op)
		case s.bytes != 0 && wc.ByteLen != s.bytes:
			return fmt.Errorf("request %d: byte_len %d, want %d", s.id, wc.ByteLen, s.bytes)
		}
		return nil
	}
	return fmt.Errorf("completion of request %d, but none is outstanding", wc.WRID)
}

// received checks a receive completion against the oldest request of the peer that causes one.
func (e *rcEnd) received(wc *verbs.WC) error {
	if len(e.expect) == 0 || len(e.recvs) == 0 {
		return fmt.Errorf("a receive completes, but the peer has sent nothing more")
	}
	x, slot := e.expect[0], e.recvs[0]
	e.expect, e.recvs = e.expect[1:], e.recvs[1:]
	got := e.mem[recvAt+slot*recvSize:][:len(x.data)]
	switch {
	case wc.WRID != uint64(slot):
		return fmt.Errorf("receive %d completes, but %d is the oldest", wc.WRID, slot)
	case wc.Opcode != x.op:
		return fmt.Errorf("receive completes as %v, want %v", wc.Opcode, x.op)
	case wc.ByteLen != x.bytes:
		return fmt.Errorf("receive of %d bytes, want %d", wc.ByteLen, x.bytes)
	case x.hasImm != (wc.WCFlags&verbs.WCWithImm != 0) || x.hasImm && wc.ImmData != x.imm:
		return fmt.Errorf("immediate data %#x (flags %v), want %#x", wc.ImmData, wc.WCFlags, x.imm)
	case !bytes.Equal(got, x.data):
		return fmt.Errorf("a receive of %d bytes differs at byte %d", len(x.data), differ(got, x.data))
	}
	e.freeRcv = append(e.freeRcv, slot)
	return e.invalidated(wc, x)
}

// recvFailed checks a receive that completed with an error. The CQ of the receives may be polled before that of the
// sends.
func (e *rcEnd) recvFailed(wc *verbs.WC) error {
	if len(e.recvs) == 0 || e.recvs[0] != int(wc.WRID) {
		return fmt.Errorf("receive %d completes with %v; posted are %v", wc.WRID, wc.Status, e.recvs)
	}
	e.recvs, e.freeRcv = e.recvs[1:], append(e.freeRcv, int(wc.WRID))
	if wc.Status == verbs.WCWRFlushErr {
		e.flushed = true
		if e.mayEnd() || e.mayBeRefused() {
			return nil
		}
	} else if e.mayBeRefused() && !e.refused && e.recvMayFail(wc.Status) {
		e.refused = true
		return nil
	}
	return fmt.Errorf("receive %d completes with %v: %w", wc.WRID, wc.Status, wc.Err())
}

// sendFailed checks a send completion with an error: the oldest incomplete request has failed, for a permitted
// reason, and all behind it are flushed in order, signaled or not.
func (e *rcEnd) sendFailed(wc *verbs.WC) error {
	for !e.failed && len(e.sends) > 0 && !e.sends[0].signaled && e.sends[0].id != wc.WRID {
		if err := e.complete(); err != nil {
			return err
		}
	}
	if len(e.sends) == 0 || e.sends[0].id != wc.WRID {
		return fmt.Errorf("request %d completes with %v; outstanding are %d others", wc.WRID, wc.Status, len(e.sends))
	}
	s := e.sends[0]
	switch {
	case e.failed && wc.Status != verbs.WCWRFlushErr:
		return fmt.Errorf("request %d completes with %v after another one has failed: %w", s.id, wc.Status, wc.Err())
	case !e.failed && !e.sendMayFail(&s, wc.Status):
		return fmt.Errorf("request %d (%v) completes with %v: %w", s.id, s.op, wc.Status, wc.Err())
	}
	e.failed = true
	e.lost, e.sends = append(e.lost, s), e.sends[1:]
	return nil
}
