package rdmacm

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// Each field of a path record has its place and its bits.
func TestParsePath(t *testing.T) {
	counting := make([]byte, pathRecordLen)
	for i := range counting {
		counting[i] = byte(i + 1)
	}
	got := parsePath(counting)
	want := PathRec{
		DGID: verbs.GID(counting[8:24]), SGID: verbs.GID(counting[24:40]), DLID: 0x292A, SLID: 0x2B2C, FlowLabel: 0xD2E2F,
		HopLimit: 0x30, TrafficClass: 0x31, Reversible: false, NumbPath: 0x32, PKey: 0x3334, SL: 6, MTU: 0x37, Rate: 0x38,
		PacketLifeTime: 0x39, Preference: 0x3A,
	}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, reversible := range []bool{false, true} {
		p := want
		p.Reversible = reversible
		if again := parsePath(p.data()[pathDataLen-pathRecordLen:]); again != p {
			t.Errorf("%+v has become %+v", p, again)
		}
	}
	if b := want.data()[pathDataLen-pathRecordLen:]; b[54] != 0x80|0x37 || b[55] != 0x80|0x38 || b[56] != 0x80|0x39 {
		t.Errorf("MTU %#x, rate %#x, life time %#x: must be exact", b[54], b[55], b[56])
	}
	got = parsePath(slices.Repeat([]byte{0xFF}, pathRecordLen))
	want = PathRec{
		DGID: got.DGID, SGID: got.SGID, DLID: 0xFFFF, SLID: 0xFFFF, FlowLabel: 0xFFFFF, HopLimit: 0xFF, TrafficClass: 0xFF,
		Reversible: true, NumbPath: 0x7F, PKey: 0xFFFF, SL: 15, MTU: 63, Rate: 63, PacketLifeTime: 63, Preference: 0xFF,
	}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A number that is 0 stands for the default, Zero for 0, and MaxRespRes for itself.
func TestConnParamDefaults(t *testing.T) {
	def := &ConnParam{ResponderResources: 1, InitiatorDepth: 2, RetryCount: 3, RNRRetryCount: 4}
	for _, c := range []struct{ n, rr, depth, retry, rnr uint8 }{
		{0, 1, 2, 3, 4}, {Zero, 0, 0, 0, 0}, {5, 5, 5, 5, 5}, {MaxRespRes, 0xFF, 0xFF, 0xFF, 0xFF}, {0xFD, 0xFD, 0xFD, 0xFD,
			0xFD},
	} {
		p := &ConnParam{ResponderResources: c.n, InitiatorDepth: c.n, RetryCount: c.n, RNRRetryCount: c.n, QPNum: 9,
			SRQ: true, FlowControl: true, PrivateData: []byte("x")}
		q := p.orDefaults(def)
		if q.ResponderResources != c.rr || q.InitiatorDepth != c.depth || q.RetryCount != c.retry ||
			q.RNRRetryCount != c.rnr || q.QPNum != 9 || !q.SRQ || !q.FlowControl || string(q.PrivateData) != "x" {
			t.Errorf("%d: %+v", c.n, q)
		}
		if p.ResponderResources != c.n {
			t.Error("the program's parameters have changed")
		}
	}
	for _, c := range []struct {
		n    uint8
		at   int
		want uint8
	}{{3, 5, 3}, {5, 5, 5}, {6, 5, 5}, {255, 128, 128}, {0, 5, 0}} {
		if got := least(c.n, c.at); got != c.want {
			t.Errorf("%d of at most %d: %d", c.n, c.at, got)
		}
	}
}

// READs and atomics beyond the device's limits are refused, up to the numbers with a meaning of their own.
func TestConnParamLimits(t *testing.T) {
	id := &ID{ps: PSTCP, qpType: verbs.QPTypeRC}
	id.dev = &device{attr: verbs.DeviceAttr{MaxQPRdAtom: 16, MaxQPInitRdAtom: 8}}
	id.mu.Lock()
	defer id.mu.Unlock()
	for _, c := range []struct {
		rr, depth uint8
		errno     syscall.Errno
	}{
		{0, 0, 0}, {16, 8, 0}, {17, 8, syscall.EINVAL}, {16, 9, syscall.EINVAL}, {0xFD, 0, syscall.EINVAL},
		{0, 0xFD, syscall.EINVAL}, {Zero, Zero, 0}, {MaxRespRes, MaxInitDepth, 0},
	} {
		err := id.checkParam("connect", &ConnParam{ResponderResources: c.rr, InitiatorDepth: c.depth})
		if c.errno == 0 && err != nil || c.errno != 0 && !errors.Is(err, c.errno) {
			t.Errorf("%d, %d: %v", c.rr, c.depth, err)
		}
	}
	if err := id.checkParam("connect", nil); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("neither QP nor parameters: %v", err)
	}
	id.ps = PSIB // as Linux: only TCP is checked
	if err := id.checkParam("connect", &ConnParam{ResponderResources: 17}); err != nil {
		t.Error(err)
	}
	id.qpType = verbs.QPTypeUD
	if err := id.checkParam("connect", nil); err != nil {
		t.Error(err)
	}
	for n, want := range map[int]error{0: nil, 5: nil, 6: syscall.EINVAL} {
		if err := id.checkPrivate("connect", n, 5); !errors.Is(err, want) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// A wait that ends says what it waited for, with the errno of its context.
func TestWaitErrors(t *testing.T) {
	id := &ID{ps: PSTCP}
	other := errors.New("other")
	for _, c := range []struct {
		op   string
		err  error
		want error
		text string
	}{
		{"connect", context.Canceled, syscall.ECANCELED, "has not answered"},
		{"connect", context.DeadlineExceeded, syscall.ETIMEDOUT, "has not answered"},
		{"accept", context.DeadlineExceeded, syscall.ETIMEDOUT, "acknowledged"},
		{"disconnect", context.DeadlineExceeded, syscall.ETIMEDOUT, "Disconnect or Close"},
		{"get_send_comp", context.Canceled, syscall.ECANCELED, "no completion"},
		{"get_recv_comp", context.Canceled, syscall.ECANCELED, "no completion"},
		{"resolve_addr", context.Canceled, syscall.ECANCELED, "TCP ID"},
	} {
		err := id.waitError(c.op, c.err)
		if !errors.Is(err, c.want) || !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", c.op, err)
		}
	}
	if err := id.waitError("connect", other); err != other { //nolint:errorlint // the same error, not a wrapped one
		t.Errorf("%v", err)
	}
}

// The end of a wait for a completion has the reason of the connection's end.
func TestErrOver(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(id *ID)
		want error
		text string
	}{
		{"closed", func(id *ID) { id.state = stDestroying }, ErrClosed, ""},
		{"removed", func(id *ID) { id.state = stRemoved }, syscall.ENOTCONN, deviceGone},
		{"left", func(id *ID) { id.conn = connPeerLeft }, syscall.ENOTCONN, peerLeft},
		{"silent", func(id *ID) { id.conn = connSilent }, syscall.ETIMEDOUT, peerSilent},
		{"silent, and the QP has failed", func(id *ID) { id.conn, id.failed = connSilent, verbs.EventQPFatal },
			syscall.ETIMEDOUT, peerSilent},
		{"disconnected", func(id *ID) { id.conn = connDisconnected }, syscall.ENOTCONN, "this side"},
		{"disconnecting", func(id *ID) { id.conn, id.flushed = connEstablished, true }, syscall.ENOTCONN, "this side"},
		{"failed", func(id *ID) { id.conn, id.failed = connEstablished, verbs.EventQPFatal }, syscall.EIO, "has failed"},
		{"failed, and the peer has left", func(id *ID) {
			id.conn, id.failed = connPeerLeft, verbs.EventQPAccessErr
			id.fault.Store(uint32(verbs.EventQPReqErr))
		}, syscall.EIO, "invalid request"},
		{"refused", func(id *ID) { id.conn, id.failed = connFailed, verbs.EventQPFatal }, syscall.ENOTCONN, "not made"},
	} {
		id := &ID{ps: PSTCP}
		c.set(id)
		if err := id.errOver("get_recv_comp"); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// The parts of an ID's name in errors.
func TestObj(t *testing.T) {
	id := &ID{ps: PSUDP}
	id.mu.Lock()
	defer id.mu.Unlock()
	for _, c := range []struct{ local, remote, want string }{
		{"", "", "UDP ID"}, {"192.0.2.1:5", "", "UDP ID 192.0.2.1:5"}, {"192.0.2.1:0", "", "UDP ID 192.0.2.1"},
		{"192.0.2.1:5", "192.0.2.2:6", "UDP ID 192.0.2.1:5 to 192.0.2.2:6"},
	} {
		id.local, id.remote = netip.AddrPort{}, netip.AddrPort{}
		if c.local != "" {
			id.local = netip.MustParseAddrPort(c.local)
		}
		if c.remote != "" {
			id.remote = netip.MustParseAddrPort(c.remote)
		}
		if got := id.obj(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	for ps, want := range map[PortSpace]string{PSTCP: "TCP", PSUDP: "UDP", PSIB: "IB", PSIPoIB: "IPOIB",
		0x107: "port space 0x107"} {
		if ps.String() != want {
			t.Errorf("%s, want %s", ps, want)
		}
	}
	if s := flowLabel(0xFFFF, 0xFFFF); s != (0xFFFF*32)&0xFFFFF || flowLabel(1, 2) != 33 {
		t.Errorf("flow label %#x", s)
	}
}

// The wildcard of either family is the zero GID, which listens for both.
func TestWildcardAsAGID(t *testing.T) {
	ai := &AddrInfo{PortSpace: PSTCP}
	for addr, want := range map[string]verbs.GID{
		"0.0.0.0:7471": {}, "[::]:7471": {}, "192.0.2.1:7471": verbs.GIDFromAddr(netip.MustParseAddr("192.0.2.1")),
	} {
		if a := ai.ib(netip.MustParseAddrPort(addr)); a.GID != want || a.SID != ServiceID(PSTCP, 7471) {
			t.Errorf("%s: GID %v, service ID %#x", addr, a.GID, a.SID)
		}
	}
}

// A connection request needs 256 bytes of MAD and the headers of its packet.
func TestLengthOfAConnectionMessage(t *testing.T) {
	for peer, want := range map[string]int{"192.0.2.1": 308, "::ffff:192.0.2.1": 308, "2001:db8::1": 328} {
		if got := messageLen(netip.MustParseAddr(peer)); got != want {
			t.Errorf("to %s: %d bytes, want %d", peer, got, want)
		}
	}
}

// The zone of the destination is the ID's. A destination without one leaves that of the source.
func TestZoneOfTheDestination(t *testing.T) {
	h := memoryHost(t)
	for dst, want := range map[string]string{"[fe80::1%x9]:7": "x9", "[2001:db8::1]:7": "x8"} {
		id, err := h.CreateID(nil, PSTCP, nil)
		if err == nil {
			err = id.BindAddr(netip.AddrPortFrom(netip.IPv6Unspecified(), 0))
		}
		if err != nil {
			t.Fatal(err)
		}
		id.mu.Lock()
		id.zone = "x8"
		if err := id.startResolve("resolve_addr", netip.AddrPort{}, netip.MustParseAddrPort(dst)); err != nil ||
			id.zone != want {
			t.Errorf("toward %s: zone %q, want %q; %v", dst, id.zone, want, err)
		}
		id.mu.Unlock()
		if err := id.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// An int of C that is not 0 sets an option, and 0 clears it.
func TestSwitchesOfSetOption(t *testing.T) {
	id := &ID{ps: PSTCP, host: NewHost()}
	for name, on := range map[int]*bool{OptionIDReuseAddr: &id.reuse, OptionIDAFOnly: &id.afonly} {
		for _, v := range []uint32{1, 0, 2, 0, 1 << 31} {
			if err := id.SetOption(OptionID, name, binary.NativeEndian.AppendUint32(nil, v)); err != nil || *on != (v != 0) {
				t.Errorf("option %d is %v after %d, %v", name, *on, v, err)
			}
		}
	}
}

// A QP has the right to FLUSH on devices that have FLUSH, if it answers READs.
func TestAccessOfAConnectedQP(t *testing.T) {
	h, d := startedHost(t)
	read := verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic
	for _, c := range []struct {
		caps    verbs.DeviceCapFlags
		peer    uint32
		respRes uint8
		qpType  verbs.QPType
		want    verbs.AccessFlags
	}{
		{verbs.DeviceFlushGlobal, 5, 1, verbs.QPTypeRC, read | verbs.AccessFlushGlobal},
		{0, 5, 1, verbs.QPTypeRC, read},
		{verbs.DeviceFlushGlobal, 5, 0, verbs.QPTypeRC, verbs.AccessRemoteWrite},
		{verbs.DeviceFlushGlobal, 5, 1, verbs.QPTypeUC, verbs.AccessRemoteWrite},
		{verbs.DeviceFlushGlobal, 0, 1, verbs.QPTypeRC, 0},
	} {
		id := &ID{ps: PSTCP, host: h, qpType: c.qpType}
		id.dev, id.sgid = &device{host: h, vdev: d.vdev, ctx: d.ctx, attr: d.attr}, gidPlace{firstPort, 1}
		id.dev.attr.DeviceCapFlags = c.caps
		id.attrs.DestQPN, id.respRes = c.peer, c.respRes
		id.mu.Lock()
		a, mask, err := id.attrInit("create_qp")
		id.mu.Unlock()
		if err != nil || a.QPAccessFlags != c.want || mask&verbs.QPAttrAccessFlags == 0 {
			t.Errorf("%+v: %#x, %v, want %#x", c, a.QPAccessFlags, err, c.want)
		}
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// A port is claimed for the address that the listener is bound to, or for all addresses.
func TestClaimOfAnAddress(t *testing.T) {
	for local, want := range map[string]netip.Addr{
		"0.0.0.0:5": {}, "[::]:5": {}, "192.0.2.1:5": netip.MustParseAddr("192.0.2.1"),
		"[::ffff:192.0.2.1]:5": netip.MustParseAddr("192.0.2.1"), "[fe80::1%x]:5": netip.MustParseAddr("fe80::1"),
	} {
		id := &ID{ps: PSTCP}
		id.mu.Lock()
		id.local = netip.MustParseAddrPort(local)
		got := id.claim()
		id.mu.Unlock()
		if got.at != want || uint64(got.service) != ServiceID(PSTCP, 5) {
			t.Errorf("%s: service ID %#x at %v, want %v", local, got.service, got.at, want)
		}
	}
}
