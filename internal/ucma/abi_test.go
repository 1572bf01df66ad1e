package ucma

import (
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// TestAddresses writes socket addresses and reads them again.
func TestAddresses(t *testing.T) {
	for _, s := range []string{"192.0.2.1:7471", "[2001:db8::1]:1", "[fe80::1]:65535", "0.0.0.0:0"} {
		a := netip.MustParseAddrPort(s)
		b := make([]byte, sockaddrLen)
		n := putAddr(b, a, 3)
		if want := map[bool]int{true: 16, false: 28}[a.Addr().Is4()]; n != want {
			t.Errorf("%v: %d bytes, want %d", a, n, want)
		}
		if got := addrOf(b); got != a {
			t.Errorf("%v was read as %v", a, got)
		}
	}
	if got := addrOf(make([]byte, sockaddrLen)); got.IsValid() {
		t.Errorf("an address without family was read as %v", got)
	}
}

// TestEvents reads events as the kernel writes them, each field with a value of its own.
func TestEvents(t *testing.T) {
	b := make([]byte, eventLen)
	for i := range b {
		b[i] = byte(i)
	}
	status := int32(-104)
	ne.PutUint32(b[16:], uint32(status))
	b[eventBody+8+MaxPrivate] = 5 // the length of private data
	ev := eventOf(b)
	if ev.UID != ne.Uint64(b) || ev.ID != ne.Uint32(b[8:]) || ev.Type != ne.Uint32(b[12:]) || ev.Status != status {
		t.Errorf("%+v", ev)
	}
	p := ev.Param()
	if p.QPN != ne.Uint32(b[20:]) || len(p.Private) != 5 || p.Private[0] != b[28] || p.RNRRetryCount != b[20+8+256+6] {
		t.Errorf("%+v", p)
	}
	if ev.ECE.Vendor != ne.Uint32(b[328:]) || ev.ECE.Options != ne.Uint32(b[332:]) {
		t.Errorf("%+v", ev.ECE)
	}
	b[eventBody+8+ahAttrLen+MaxPrivate] = 7
	u := eventOf(b).UD()
	if u.QKey != ne.Uint32(b[24:]) || len(u.Private) != 7 || u.Private[0] != b[60] || u.AH.GRH.DGID[0] != b[28] ||
		u.AH.GRH.SGIDIndex != int(b[28+20]) || u.AH.PortNum != b[28+30] {
		t.Errorf("%+v", u)
	}
}

// TestParams writes parameters of connections and reads them again.
func TestParams(t *testing.T) {
	b := make([]byte, paramLen)
	want := Param{
		QPN: 7, QKey: 9, Private: []byte("hello"), SRQ: true, ResponderResources: 1, InitiatorDepth: 2, FlowControl: true,
		RetryCount: 3, RNRRetryCount: 4,
	}
	want.put(b)
	got := paramOf(b)
	if string(got.Private) != "hello" {
		t.Errorf("private data %q", got.Private)
	}
	got.Private, want.Private = nil, nil
	if got.QPN != want.QPN || got.QKey != want.QKey || got.SRQ != want.SRQ || got.RetryCount != want.RetryCount ||
		got.ResponderResources != 1 || got.InitiatorDepth != 2 || !got.FlowControl || got.RNRRetryCount != 4 {
		t.Errorf("%+v, want %+v", got, want)
	}
	if b[paramLen-1] != 1 {
		t.Error("the parameters are not marked valid")
	}
	long := Param{Private: make([]byte, 2*MaxPrivate)}
	long.put(b) // must not write outside of its field
	if n := len(paramOf(b).Private); n != MaxPrivate-1 {
		t.Errorf("%d bytes of private data, want %d", n, MaxPrivate-1)
	}
}

// TestQPAttributes reads attributes of a QP.
func TestQPAttributes(t *testing.T) {
	b := make([]byte, qpAttrLen)
	for i := range b {
		b[i] = byte(i)
	}
	ne.PutUint32(b[4:], uint32(verbs.QPSRTR))
	a, mask := qpAttrOf(b)
	if uint32(mask) != ne.Uint32(b) || a.QPState != verbs.QPSRTR || a.DestQPNum != ne.Uint32(b[32:]) ||
		a.AHAttr.GRH.DGID[0] != 40 || a.AltAHAttr.GRH.DGID[0] != 72 || a.PKeyIndex != ne.Uint16(b[124:]) ||
		a.MaxRdAtomic != 130 || a.MaxDestRdAtomic != 131 || a.MinRNRTimer != 132 || a.PortNum != 133 || a.Timeout != 134 ||
		a.RetryCnt != 135 || a.RNRRetry != 136 {
		t.Errorf("%+v", a)
	}
}

// TestEventsOfTests writes parameters into events and reads them again.
func TestEventsOfTests(t *testing.T) {
	var ev Event
	want := UDParam{QPN: 3, QKey: 4, Private: []byte("verbena"), AH: verbs.AHAttr{
		GRH:  verbs.GlobalRoute{DGID: verbs.GID{1, 15: 2}, FlowLabel: 5, SGIDIndex: 6, HopLimit: 7, TrafficClass: 8},
		DLID: 9, SL: 10, SrcPathBits: 11, StaticRate: 12, IsGlobal: true, PortNum: 13,
	}}
	ev.SetUD(&want)
	got := ev.UD()
	if got.QPN != 3 || got.QKey != 4 || string(got.Private) != "verbena" || got.AH != want.AH {
		t.Errorf("%+v, want %+v", got, want)
	}
	ev.SetParam(&Param{QPN: 3, Private: []byte("hello"), RNRRetryCount: 6})
	if p := ev.Param(); p.QPN != 3 || string(p.Private) != "hello" || p.RNRRetryCount != 6 {
		t.Errorf("%+v", p)
	}
}
