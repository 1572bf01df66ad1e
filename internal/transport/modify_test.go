package transport

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

func TestV_QPS_01_NewQPIsInReset(t *testing.T) {
	s := newSender(t, RC, nil)
	qp := NewQP(s.qp.Config)
	if qp.State() != Reset || qp.Pending() || qp.Deadline() != Never {
		t.Errorf("state %d, pending %v", qp.State(), qp.Pending())
	}
}

// In RESET, INIT and RTR nothing is sent even if requests are in the queue; in RTS it is.
func TestV_QPS_05_NothingLeavesBeforeRTS(t *testing.T) {
	s := newSender(t, RC, nil)
	s.modify(Reset, Attr{}, 0)
	for _, st := range []State{Init, RTR} {
		s.modify(st, rtsAttr(), everyMask)
		s.send(1)
		s.sends()
	}
	s.ack(firstPSN)
	s.completes()
	s.modify(RTS, rtsAttr(), everyMask)
	s.sends("RC SEND ONLY 1000 A +1", "RC SEND ONLY 1001 A +1")
}

// V-QPS-03, V-QPS-20: RESET clears work requests, PSNs, waits and failures; the QP then works like a new one.
func TestV_QPS_03_ResetClearsAndTheQPWorksAgain(t *testing.T) {
	for _, typ := range []Type{RC, UC, UD} {
		s := newSender(t, typ, func(c *Config, _ *Attr) { c.SQ = NewSendQueue(4, 8, 0) })
		for round := range 10 {
			switch round % 4 {
			case 0: // unacknowledged
				s.send(3000)
				s.send(1)
				s.out()
				s.send(4000)
			case 1: // waiting for a receive
				s.send(1)
				s.out()
				s.nak(firstPSN, wire.SynRNR)
			case 2: // failed
				s.post(OpSend, []SGE{{Length: 1}}, nil)
				s.out()
			case 3: // draining
				s.send(1)
				s.out()
				s.modify(SQD, Attr{}, 0)
			}
			s.modify(Reset, Attr{}, 0)
			s.is(Reset)
			s.cqes, s.events = nil, nil
			s.sends()
			s.checkIdle()
			if s.qp.first != nil {
				t.Fatal("the failure outlives RESET")
			}
			for _, st := range []State{Init, RTR, RTS} {
				s.modify(st, rtsAttr(), everyMask)
			}
			for range 4 { // the whole queue is free
				s.send(2)
			}
			if pkts := s.out(); len(pkts) != 4 || pkts[0].BTH().PSN() != firstPSN {
				t.Fatalf("round %d: %d packets", round, len(pkts))
			}
			s.ack(firstPSN + 3)
			if len(s.cqes) != 4 {
				t.Fatalf("round %d: %d completions", round, len(s.cqes))
			}
			for _, e := range s.cqes {
				if e.Status != Success {
					t.Fatalf("round %d: %+v", round, e)
				}
				s.qp.SQ.Release(e.Slot)
			}
			s.cqes = nil
		}
	}
}

// V-QPS-17, V-QPS-19: ERR by ibv_modify_qp flushes all requests in order, unsignalled ones too, with no failed
// request.
func TestV_QPS_17_ErrFlushesEverything(t *testing.T) {
	for _, typ := range []Type{RC, UC, UD} {
		s := newSender(t, typ, func(c *Config, _ *Attr) { c.SigAll = false })
		s.send(1)
		s.out()
		s.modify(Err, Attr{}, 0) // a second time changes nothing
		s.send(1)
		s.post(OpSend, s.sges(0, 5000), nil)
		for i, e := range s.cqes {
			if e.Status != WRFlushErr || e.Cause.First != nil || e.Cause.Reason == "" {
				t.Errorf("%+v because of %+v", e, e.Cause)
			}
			if i > 0 && e.WRID != s.cqes[i-1].WRID+1 {
				t.Error("out of order")
			}
		}
		if want := map[Type]int{RC: 3, UC: 2, UD: 2}[typ]; len(s.cqes) != want {
			t.Errorf("type %d: %d completions, want %d", typ, len(s.cqes), want)
		}
		s.modify(Err, Attr{}, 0) // once more changes nothing
		s.sends()
		s.raises()
		s.checkIdle()
		s.ack(firstPSN)
		s.is(Err)
	}
}

// V-QPS-02: RESET and ERR can be entered from every state.
func TestV_QPS_02_ResetAndErrFromAnywhere(t *testing.T) {
	for _, to := range []State{Reset, Err} {
		for _, from := range []State{Reset, Init, RTR, RTS, SQD, SQE, Err} {
			s := newSender(t, UC, nil)
			switch from {
			case Reset, Init, RTR:
				s.modify(Reset, Attr{}, 0)
				for _, st := range []State{Init, RTR}[:from] {
					s.modify(st, rtsAttr(), everyMask)
				}
			case SQD, Err:
				s.modify(from, Attr{}, 0)
			case SQE:
				s.post(OpSend, []SGE{{Length: 1}}, nil)
				s.out()
			}
			s.is(from)
			s.modify(to, Attr{}, 0)
			s.is(to)
			s.checkIdle()
		}
	}
}

// V-QPS-10, V-QPS-12: in SQD started requests are finished, retries included; the others wait for RTS.
func TestV_QPS_10_SQDFinishesWhatHasBegun(t *testing.T) {
	s := newSender(t, RC, nil)
	s.qp.SetWindow(2*(1024+packetCost), nil)
	s.send(1)
	s.send(3000)
	s.send(1)
	s.sends("RC SEND ONLY 1000 A +1", "RC SEND FIRST 1001 A +1024")
	s.modify(SQD, Attr{SQDNotify: true}, MaskSQDNotify)
	s.send(1)
	s.ack(1001)
	s.completes("wr 1 status 0 op 0")
	s.sends("RC SEND MIDDLE 1002 A +1024", "RC SEND LAST 1003 A +952")
	s.timeout()
	s.sends("RC SEND MIDDLE 1002 A +1024", "RC SEND LAST 1003 A +952")
	if !s.qp.Draining() {
		t.Error("not draining")
	}
	s.raises()
	s.ack(1003)
	s.completes("wr 2 status 0 op 0")
	s.raises("event 5") // V-AE-16
	s.sends()
	s.is(SQD)
	if s.qp.Draining() {
		t.Error("still draining")
	}
	s.send(1)
	s.sends()
	s.modify(RTS, Attr{}, 0)
	s.sends("RC SEND ONLY 1004 A +1", "RC SEND ONLY 1005 A +1", "RC SEND ONLY 1006 A +1")
	s.ack(1006)
	s.completes("wr 3 status 0 op 0", "wr 4 status 0 op 0", "wr 5 status 0 op 0")
	s.raises()
	s.checkIdle()
}

// V-QPS-11: a draining QP stays in SQD unchanged.
func TestV_QPS_11_OnlyADrainedQPLeavesSQD(t *testing.T) {
	s := newSender(t, RC, nil)
	s.send(1)
	s.out()
	s.modify(SQD, Attr{}, 0)
	for _, m := range []Mask{MaskState, MaskTimeout, MaskState | MaskTimeout} {
		for _, st := range []State{RTS, SQD} {
			if m&MaskState == 0 && st == RTS {
				continue
			}
			if err := s.qp.Modify(0, &Attr{State: st, Timeout: 3}, m); !errors.Is(err, ErrDraining) {
				t.Errorf("to %d: %v", st, err)
			}
		}
	}
	if s.qp.Attr().Timeout != 14 {
		t.Error("a refused Modify changed something")
	}
	s.ack(firstPSN)
	s.raises() // the event was not requested
	s.modify(SQD, Attr{Timeout: 3}, MaskTimeout)
	s.modify(RTS, Attr{}, 0)
	if s.qp.Attr().Timeout != 3 {
		t.Error("SQD did not take the attribute")
	}
}

// V-AE-16: with no started request the event is raised at once; an earlier request for it does not count.
func TestV_AE_16_SQDrained(t *testing.T) {
	s := newSender(t, RC, nil)
	s.modify(SQD, Attr{SQDNotify: true}, MaskSQDNotify)
	s.raises("event 5")
	s.modify(RTS, Attr{}, 0)
	s.modify(SQD, Attr{}, 0)
	s.raises()

	// Draining is interrupted: by ibv_modify_qp, by a failure.
	for _, cut := range []func(s *sender){
		func(s *sender) { s.modify(Reset, Attr{}, 0) },
		func(s *sender) { s.modify(Err, Attr{}, 0) },
		func(s *sender) { s.nak(firstPSN, wire.SynAccess); s.events = s.events[1:] },
	} {
		s := newSender(t, RC, nil)
		s.send(1)
		s.out()
		s.modify(SQD, Attr{SQDNotify: true}, MaskSQDNotify)
		s.raises()
		cut(s)
		s.raises("event 5")
	}
}

// A request that waits for a fence has not started; one whose first packet was sent has.
func TestSQDHoldsBackAFencedRequest(t *testing.T) {
	s := newSender(t, RC, nil)
	s.post(OpRead, s.sges(0, 1), nil)
	s.post(OpSend, s.sges(0, 1), func(w *SendWQE) { w.Flags = Fence })
	s.out()
	s.modify(SQD, Attr{}, 0)
	s.data(wire.ReadRespOnly, 1000, 1)
	s.sends()
	if s.qp.Draining() {
		t.Error("still draining")
	}
	s.modify(RTS, Attr{}, 0)
	s.sends("RC SEND ONLY 1001 A +1")
}

// An invalid request fails in SQD too, after those before it are complete.
func TestSQDWithABadRequest(t *testing.T) {
	s := newSender(t, RC, nil)
	s.send(1)
	s.post(OpSend, []SGE{{Length: 1}}, nil)
	s.out()
	s.modify(SQD, Attr{}, 0)
	s.ack(firstPSN)
	s.completes("wr 1 status 0 op 0", "wr 2 status 4")
	s.is(Err)
}

// V-QPS-12, V-QPS-14: SQE flushes posted requests and keeps receiving; RTS enables sending again with consecutive
// PSNs.
func TestV_QPS_12_RecoveryFromSQE(t *testing.T) {
	for _, typ := range []Type{UC, UD} {
		s := newSender(t, typ, nil)
		s.send(1)
		s.post(OpSend, []SGE{{Length: 1}}, nil)
		s.send(1)
		s.out()
		s.completes("wr 1 status 0 op 0", "wr 2 status 4", "wr 3 status 5")
		s.raises("state 5")
		s.send(1)
		s.completes("wr 4 status 5")
		q := s.qp.SQ // posted; the doorbell follows the transition
		q.Lock()
		*q.Next() = SendWQE{WRID: 99}
		q.Commit()
		q.Publish()
		q.Unlock()
		s.modify(RTS, rtsAttr(), 0)
		s.completes("wr 99 status 5")
		s.send(1)
		if pkts := s.out(); len(pkts) != 1 || pkts[0].BTH().PSN() != 1001 {
			t.Errorf("%d packets", len(pkts))
		}
		s.completes("wr 5 status 0 op 0")
		if s.qp.first != nil {
			t.Error("the failure outlives SQE")
		}
	}
}

// Each attribute is applied if the mask names it, and unchanged otherwise.
func TestModifyAppliesMaskedAttributes(t *testing.T) {
	s := newSender(t, RC, nil)
	other := Attr{
		Path: link.Path{Src: srcAddr, Dst: srcAddr, HopLimit: 3}, DestQPN: 1, MTU: 256, PKeyIndex: 2, PKey: 3, QKey: 4,
		RQPSN: 5, SQPSN: 6, Access: 7, MaxRdAtomic: 8, MaxDestRdAtom: 9, MinRNRTimer: 10, Timeout: 11, RetryCnt: 5,
		RNRRetry: 6,
	}
	for _, c := range []struct {
		m   Mask
		set func(a *Attr)
	}{
		{MaskAV, func(a *Attr) { a.Path = other.Path }},
		{MaskDestQPN, func(a *Attr) { a.DestQPN = 1 }},
		{MaskPathMTU, func(a *Attr) { a.MTU = 256 }},
		{MaskPKeyIndex, func(a *Attr) { a.PKeyIndex, a.PKey = 2, 3 }},
		{MaskQKey, func(a *Attr) { a.QKey = 4 }},
		{MaskRQPSN, func(a *Attr) { a.RQPSN = 5 }},
		{MaskSQPSN, func(a *Attr) { a.SQPSN = 6 }},
		{MaskAccess, func(a *Attr) { a.Access = 7 }},
		{MaskMaxRdAtomic, func(a *Attr) { a.MaxRdAtomic = 8 }},
		{MaskMaxDestRdAtom, func(a *Attr) { a.MaxDestRdAtom = 9 }},
		{MaskMinRNRTimer, func(a *Attr) { a.MinRNRTimer = 10 }},
		{MaskTimeout, func(a *Attr) { a.Timeout = 11 }},
		{MaskRetryCnt, func(a *Attr) { a.RetryCnt = 5 }},
		{MaskRNRRetry, func(a *Attr) { a.RNRRetry = 6 }},
		{MaskCurState, func(*Attr) {}},
		{0, func(*Attr) {}},
	} {
		want := s.qp.Attr()
		c.set(&want)
		if err := s.qp.Modify(0, &other, c.m); err != nil {
			t.Fatal(err)
		}
		if got := s.qp.Attr(); got != want {
			t.Errorf("mask %#x: %+v, want %+v", c.m, got, want)
		}
	}
	if !s.qp.path.Equal(&other.Path) || s.qp.State() != RTS {
		t.Errorf("path %+v, state %d", s.qp.path, s.qp.State())
	}
}

// A new path does not affect packets that are already in a batch.
func TestBatchedPacketsKeepTheirPath(t *testing.T) {
	s := newSender(t, RC, nil)
	s.send(1)
	s.qp.Transmit(0, s.tx, 9)
	s.ack(firstPSN)
	s.modify(SQD, Attr{}, 0)
	s.modify(SQD, Attr{Path: link.Path{Src: srcAddr, Dst: srcAddr}}, MaskAV)
	if got := s.tx.Packets[0].Path.Dst; got != dstAddr {
		t.Errorf("the packet goes to %v", got)
	}
}

// In RTR a change of attributes does not begin the connection anew.
func TestModifyInRTRKeepsTheExpectedPSN(t *testing.T) {
	s := newSender(t, RC, nil)
	s.modify(Reset, Attr{}, 0)
	for _, st := range []State{Init, RTR} {
		s.modify(st, rtsAttr(), everyMask)
	}
	s.arrives(wire.Fields{Opcode: wire.RC | wire.SendOnly, PSN: 5000, AckReq: true}, 0)
	nak := s.out()
	if len(nak) != 1 || !nak[0].AETH().IsRNR() {
		t.Fatalf("sent %v, want an RNR NAK", nak)
	}
	if err := s.qp.RQ.Post(1, nil); err != nil {
		t.Fatal(err)
	}
	s.arrives(wire.Fields{Opcode: wire.RC | wire.SendOnly, PSN: 5000, AckReq: true}, 0)
	s.out()
	if err := s.qp.Modify(s.now, &Attr{MinRNRTimer: 3}, MaskMinRNRTimer); err != nil {
		t.Fatal(err)
	}
	if s.qp.resp.epsn != 5001 || s.qp.resp.msn != 1 || s.qp.attr.MinRNRTimer != 3 {
		t.Errorf("expecting PSN %d, MSN %d", s.qp.resp.epsn, s.qp.resp.msn)
	}
}

// A change of other attributes does not make an ARMED QP migrate.
func TestModifyKeepsTheMigrationState(t *testing.T) {
	s := newSender(t, RC, nil)
	alt := link.Path{Src: dstAddr, Dst: srcAddr}
	s.modify(RTS, Attr{Alt: alt, AltPKey: 0xFFFF, Mig: Rearm}, MaskAltPath|MaskMigState)
	s.arrives(wire.Fields{Opcode: wire.RC | wire.Ack}, 0)
	if s.qp.attr.Mig != Armed {
		t.Fatalf("migration state %d, want ARMED", s.qp.attr.Mig)
	}
	s.modify(RTS, Attr{MinRNRTimer: 3}, MaskMinRNRTimer)
	if a := s.qp.attr; a.Mig != Armed || a.Alt != alt {
		t.Errorf("migration state %d, alternate path %v", a.Mig, a.Alt)
	}
}

// Each bit of a mask selects its attributes and no others.
func TestMaskSelectsItsAttributes(t *testing.T) {
	full := Attr{
		State: RTS, Path: link.Path{TClass: 1}, DestQPN: 1, MTU: 1, PKeyIndex: 1, PKey: 1, QKey: 1, RQPSN: 1, SQPSN: 1,
		Access: 1, MaxRdAtomic: 1, MaxDestRdAtom: 1, MinRNRTimer: 1, Timeout: 1, RetryCnt: 1, RNRRetry: 1, SQDNotify: true,
		Port: 1, PathOwner: 1, Alt: link.Path{TClass: 1}, AltPKey: 1, AltPKeyIdx: 1, AltPort: 1, AltTimeout: 1,
		AltOwner: 1, Mig: 1,
	}
	for m, want := range map[Mask]string{
		0: "", MaskState: "", MaskCurState: "", MaskMigState: "", MaskSQDNotify: "SQDNotify", MaskAccess: "Access",
		MaskPKeyIndex: "PKeyIndex PKey", MaskPort: "Port", MaskQKey: "QKey", MaskAV: "Path PathOwner", MaskPathMTU: "MTU",
		MaskTimeout: "Timeout", MaskRetryCnt: "RetryCnt", MaskRNRRetry: "RNRRetry", MaskRQPSN: "RQPSN",
		MaskMaxRdAtomic: "MaxRdAtomic", MaskAltPath: "Alt AltPKey AltPKeyIdx AltPort AltTimeout AltOwner",
		MaskMinRNRTimer: "MinRNRTimer", MaskSQPSN: "SQPSN", MaskMaxDestRdAtom: "MaxDestRdAtom", MaskDestQPN: "DestQPN",
	} {
		var a Attr
		a.put(&full, m)
		var got []string
		v := reflect.ValueOf(a)
		for i := range v.NumField() {
			if !v.Field(i).IsZero() {
				got = append(got, v.Type().Field(i).Name)
			}
		}
		same(t, fmt.Sprintf("mask %#x", uint32(m)), slices.Sorted(slices.Values(got)),
			slices.Sorted(slices.Values(strings.Fields(want))))
	}
}

// The transitions are those of V-QPS-04.
func TestTransitionsThatExist(t *testing.T) {
	for from, want := range map[State][]State{
		Reset: {Reset, Init, Err}, Init: {Reset, Init, RTR, Err}, RTR: {Reset, RTS, Err}, RTS: {Reset, RTS, SQD, Err},
		SQD: {Reset, RTS, SQD, Err}, SQE: {Reset, RTS, Err}, Err: {Reset, Err},
	} {
		for to := Reset; to <= Err+1; to++ {
			if got := from.CanMove(to); got != slices.Contains(want, to) {
				t.Errorf("from %d to %d: %v", from, to, got)
			}
		}
	}
}

// RESET forgets the reason of an earlier end.
func TestResetForgetsTheReasonOfTheEnd(t *testing.T) {
	s := newSender(t, RC, nil)
	reason := func() string {
		s.send(1)
		s.modify(Err, Attr{}, 0)
		e := s.cqes[0]
		s.cqes = nil
		return e.Cause.Reason
	}
	s.qp.Ended("the device is gone")
	if got := reason(); got != "the device is gone" {
		t.Errorf("the reason is %q", got)
	}
	s.modify(Reset, Attr{}, 0)
	for _, st := range []State{Init, RTR, RTS} {
		s.modify(st, rtsAttr(), everyMask)
	}
	if got := reason(); got != "the QP was moved to ERR by ibv_modify_qp" {
		t.Errorf("after RESET the reason is %q", got)
	}
}

// A QP that has told that its send queue is drained does not tell it again when it leaves SQD for ERR or RESET.
func TestV_AE_16_SQDrainedOnce(t *testing.T) {
	for _, next := range []State{Err, Reset} {
		s := newSender(t, RC, nil)
		s.modify(SQD, Attr{SQDNotify: true}, MaskSQDNotify)
		s.raises("event 5")
		s.modify(next, Attr{}, 0)
		s.raises()
	}
}

// V-AE-16: the acknowledgement of a counted request ends the draining as an ACK packet does.
func TestV_AE_16_SQDrainedByACount(t *testing.T) {
	s := newShortSender(t, RC, true)
	s.room = 1000
	s.postShort(1)
	s.flush()
	if len(s.counted) != 1 {
		t.Fatalf("%d requests were counted, want 1", len(s.counted))
	}
	s.modify(SQD, Attr{SQDNotify: true}, MaskSQDNotify)
	s.raises()
	s.qp.OnCounted(s.now, &s.counted[0])
	s.raises("event 5")
	if s.qp.Draining() {
		t.Error("still draining")
	}
}
