package soft

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/verbs"
)

// noEvents is the other process of a handle, which does not listen.
type noEvents struct{}

func (noEvents) Event(verbs.EventType)      {}
func (noEvents) StateChanged(verbs.QPState) {}

// handleOfAnother makes an XRC_RECV QP in RESET, and the handle of it that another process has.
func handleOfAnother(t testing.TB) *handle {
	t.Helper()
	c := opened(t, inMemory(t, 0))
	d, err := c.OpenXRCD(nil)
	okay(t, err)
	qp, err := d.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeXRCRecv})
	okay(t, err)
	h := driver.Of[*xrcDomain](d).openHere(qp.QPN(), noEvents{})
	t.Cleanup(func() { okay(t, errors.Join(h.Destroy(), qp.Close(), d.Close(), c.Close())) })
	return h
}

// toRTS are the calls that connect an XRC_RECV QP.
func toRTS() [3]handleRequest {
	return [...]handleRequest{
		{&verbs.QPAttr{QPState: verbs.QPSInit, PortNum: 1},
			verbs.QPAttrState | verbs.QPAttrPKeyIndex | verbs.QPAttrPort | verbs.QPAttrAccessFlags},
		{&verbs.QPAttr{QPState: verbs.QPSRTR, PathMTU: verbs.MTU1024, DestQPNum: 77, AHAttr: verbs.AHAttr{
			IsGlobal: true, PortNum: 1, GRH: verbs.GlobalRoute{DGID: verbs.GID{10: 0xff, 11: 0xff, 12: 10, 15: 2}, SGIDIndex: 1},
		}}, verbs.QPAttrState | verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN |
			verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer},
		{&verbs.QPAttr{QPState: verbs.QPSRTS, Timeout: 14}, verbs.QPAttrState | verbs.QPAttrTimeout | verbs.QPAttrSQPSN},
	}
}

// spoilt are attributes that a QP cannot have, with the states that a QP leaves by them.
var spoilt = []struct {
	name  string
	in    []verbs.QPState
	more  verbs.QPAttrMask
	spoil func(a *verbs.QPAttr)
}{
	{"an unknown state", []verbs.QPState{verbs.QPSReset, verbs.QPSInit, verbs.QPSRTR}, 0,
		func(a *verbs.QPAttr) { a.QPState = 99 }},
	{"port 0", []verbs.QPState{verbs.QPSReset}, 0, func(a *verbs.QPAttr) { a.PortNum = 0 }},
	{"port 2", []verbs.QPState{verbs.QPSReset}, 0, func(a *verbs.QPAttr) { a.PortNum = 2 }},
	{"a P_Key index", []verbs.QPState{verbs.QPSReset}, 0, func(a *verbs.QPAttr) { a.PKeyIndex = 5000 }},
	{"access flags", []verbs.QPState{verbs.QPSReset}, 0, func(a *verbs.QPAttr) { a.QPAccessFlags = 1 << 30 }},
	{"port 0 of the peer", []verbs.QPState{verbs.QPSInit}, 0, func(a *verbs.QPAttr) { a.AHAttr.PortNum = 0 }},
	{"port 2 of the peer", []verbs.QPState{verbs.QPSInit}, 0, func(a *verbs.QPAttr) { a.AHAttr.PortNum = 2 }},
	{"no path MTU", []verbs.QPState{verbs.QPSInit}, 0, func(a *verbs.QPAttr) { a.PathMTU = 0 }},
	{"a path MTU", []verbs.QPState{verbs.QPSInit}, 0, func(a *verbs.QPAttr) { a.PathMTU = 77 }},
	{"an SGID index", []verbs.QPState{verbs.QPSInit}, 0, func(a *verbs.QPAttr) { a.AHAttr.GRH.SGIDIndex = 1 << 30 }},
	{"no SGID index", []verbs.QPState{verbs.QPSInit}, 0, func(a *verbs.QPAttr) { a.AHAttr.GRH.SGIDIndex = -1 }},
	{"no peer", []verbs.QPState{verbs.QPSInit}, 0, func(a *verbs.QPAttr) { a.AHAttr.GRH.DGID = verbs.GID{} }},
	{"READs", []verbs.QPState{verbs.QPSInit}, 0, func(a *verbs.QPAttr) { a.MaxDestRdAtomic = 255 }},
	{"an RNR timer", []verbs.QPState{verbs.QPSInit}, 0, func(a *verbs.QPAttr) { a.MinRNRTimer = 99 }},
	{"a QPN", []verbs.QPState{verbs.QPSInit}, 0, func(a *verbs.QPAttr) { a.DestQPNum = 1 << 24 }},
	{"an alternate path", []verbs.QPState{verbs.QPSInit, verbs.QPSRTR}, verbs.QPAttrAltPath,
		func(a *verbs.QPAttr) { a.AltPortNum = 9 }},
	{"a timer", []verbs.QPState{verbs.QPSRTR}, 0, func(a *verbs.QPAttr) { a.Timeout = 99 }},
}

// TestX_QPO_01_AttributesOfAnotherProcess: the process of the QP checks the attributes that another one sends, as
// Modify of that one does in a program that keeps the rules.
func TestX_QPO_01_AttributesOfAnotherProcess(t *testing.T) {
	h := handleOfAnother(t)
	for state, call := range toRTS() {
		good, before := *call.Attr, verbs.QPState(state)
		refused := func(name string, a verbs.QPAttr, m verbs.QPAttrMask) {
			t.Helper()
			if r := h.answer(&handleRequest{&a, m}); r.Errno != verbs.EINVAL || r.Error == "" || r.Attr != nil {
				t.Errorf("%v, %s: %v %q", before, name, r.Errno, r.Error)
			}
			if now, err := h.Query(); err != nil || now.QPState != before {
				t.Errorf("%v, %s: the state is %v, %v", before, name, now.QPState, err)
			}
		}
		for m := verbs.QPAttrMask(1); m <= call.Mask; m <<= 1 {
			if call.Mask&m != 0 && m != verbs.QPAttrState {
				refused("without "+m.String(), good, call.Mask&^m)
			}
		}
		refused("the size of queues that it does not have", good, call.Mask|verbs.QPAttrCap)
		for _, bad := range spoilt {
			if slices.Contains(bad.in, before) {
				a, m := good, call.Mask|bad.more
				bad.spoil(&a)
				refused(bad.name, a, m)
			}
		}
		if r := h.answer(&call); r.Errno != 0 || r.Attr == nil {
			t.Fatalf("%v: %v %q", before, r.Errno, r.Error)
		}
	}
	for _, m := range []verbs.QPAttrMask{verbs.QPAttrCap, verbs.QPAttrPort, verbs.QPAttrAV, 1 << 30} {
		if r := h.answer(&handleRequest{new(verbs.QPAttr), m}); r.Errno != verbs.EINVAL {
			t.Errorf("RTS, %v: %v %q", m, r.Errno, r.Error)
		}
	}
	// The state counts only with QPAttrState.
	if r := h.answer(&handleRequest{&verbs.QPAttr{MinRNRTimer: 3}, verbs.QPAttrMinRNRTimer}); r.Errno != 0 {
		t.Errorf("a timer in RTS: %v %q", r.Errno, r.Error)
	}
	if now, err := h.Query(); err != nil || now.QPState != verbs.QPSRTS || now.MinRNRTimer != 3 || now.DestQPNum != 77 {
		t.Errorf("afterwards: %+v, %v", now, err)
	}
}

// FuzzX_QPO_01: no request of another process ends this one, in whatever state the QP is.
func FuzzX_QPO_01(f *testing.F) {
	for state, call := range toRTS() {
		f.Add(uint8(state), putJSON(nil, &call))
	}
	f.Add(uint8(3), putJSON(nil, &handleRequest{new(verbs.QPAttr), verbs.QPAttrCap}))
	f.Add(uint8(3), []byte(`{"Attr":{"AltAHAttr":{"GRH":{"SGIDIndex":-1}}},"Mask":`+"16384}"))
	f.Fuzz(func(t *testing.T, state uint8, b []byte) {
		var q handleRequest
		if json.Unmarshal(b, &q) != nil {
			return
		}
		h := handleOfAnother(t)
		for i, call := range toRTS() {
			if i < int(state) {
				h.answer(&call)
			}
		}
		if r := h.answer(&q); (r.Errno == 0) != (r.Attr != nil) {
			t.Errorf("%+v", r)
		}
	})
}
