package rdmacm

import (
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/internal/sysroute"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
	"github.com/verbena-rdma/verbena/verbs"
)

// A program on a host without any device learns where it finds the reason, whatever it calls.
func TestHostWithoutDevices(t *testing.T) {
	h := NewHost()
	id, err := h.CreateID(nil, PSTCP, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, devices := h.Devices()
	for what, err := range map[string]error{
		"Devices":  devices,
		"BindAddr": id.BindAddr(netip.MustParseAddrPort("127.0.0.1:0")),
		"ResolveAddr": id.ResolveAddr(t.Context(), netip.AddrPort{}, netip.MustParseAddrPort("127.0.0.1:7"),
			time.Second),
	} {
		if !errors.Is(err, syscall.ENODEV) || !strings.Contains(err.Error(), "verbena doctor") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := errors.Join(id.Close(), h.Close()); err != nil {
		t.Error(err)
	}
}

// An ID without addresses has none in a report, and no port of a device.
func TestReportOfANewID(t *testing.T) {
	h := memoryHost(t)
	id, err := h.CreateID(nil, PSTCP, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c := id.describe(); c.Src != "" || c.Dst != "" || c.Port != 0 || id.PortNum() != 0 {
		t.Errorf("%+v, port %d", c, id.PortNum())
	}
	if err := id.BindAddr(netip.AddrPortFrom(fuzzHere, 0)); err != nil {
		t.Fatal(err)
	}
	if c := id.describe(); c.Src != id.LocalAddr().String() || c.Dst != "" || c.Port != 1 || id.PortNum() != 1 {
		t.Errorf("bound: %+v, port %d", c, id.PortNum())
	}
	if err := errors.Join(id.Close(), h.Close()); err != nil {
		t.Error(err)
	}
}

// The cause of a refused path MTU names the peer's, if the peer has said it.
func TestCauseOfARefusedMTU(t *testing.T) {
	id := &ID{}
	id.mu.Lock()
	defer id.mu.Unlock()
	id.path.MTU = verbs.MTU4096
	for _, c := range []struct {
		reason cmmsg.Reason
		ari    []byte
		want   string
	}{
		{cmmsg.RejInvalidMTU, []byte{byte(verbs.MTU1024)}, "at most the peer's 1024"},
		{cmmsg.RejInvalidMTU, []byte{byte(verbs.MTU256) << 4}, "at most the peer's 256"},
		{cmmsg.RejInvalidMTU, []byte{0}, ""},
		{cmmsg.RejInvalidMTU, []byte{6}, ""},
		{cmmsg.RejInvalidMTU, nil, ""},
		{cmmsg.RejConsumer, []byte{byte(verbs.MTU1024)}, ""},
	} {
		r := cmmsg.REJ(make([]byte, cmmsg.Len))
		r.Put(1, 2, 0, c.reason, c.ari)
		switch err := id.refusedMTU(r); {
		case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("reason %v, information %v: %v, want %q", c.reason, c.ari, err, c.want)
		}
	}
}

// The error of a peer without a route is that of the route; a device that was removed is not chosen.
func TestNoDeviceTowardAPeer(t *testing.T) {
	h, d := startedHost(t)
	h.mu.Lock()
	_, want := sysroute.Source(netip.MustParseAddr("fe80::77%nosuch0"), "")
	_, _, err := h.find(nil, netip.MustParseAddr("fe80::77%nosuch0"))
	if want == nil || err == nil || err.Error() != want.Error() {
		t.Errorf("a zone that does not exist: %v, want %v", err, want)
	}
	peer := netip.MustParseAddr("127.0.0.77")
	if found, _, err := h.find(nil, peer); found != nil || !errors.Is(err, syscall.ENODEV) {
		t.Errorf("no device: %v, %v", found, err)
	}
	peer = fuzzThere
	if found, src, err := h.find([]*device{d}, peer); found != d || src != fuzzHere || err != nil {
		t.Errorf("%v, %v, %v", found, src, err)
	}
	d.gone = true
	if found, _, err := h.find([]*device{d}, peer); found != nil || err == nil {
		t.Errorf("a removed device: %v, %v", found, err)
	}
	d.gone = false
	h.mu.Unlock()
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// A link-local address needs a zone, but for AF_IB.
func TestLinkLocalPeerWithoutZone(t *testing.T) {
	h := memoryHost(t)
	ch, err := h.CreateEventChannel()
	if err != nil {
		t.Fatal(err)
	}
	id, err := h.CreateID(ch, PSTCP, nil)
	if err != nil {
		t.Fatal(err)
	}
	to := netip.MustParseAddrPort("[fe80::77]:7")
	zoneless := func() bool {
		t.Helper()
		ev, err := ch.TryGetEvent()
		if err != nil || ev.Type != EventAddrError {
			t.Fatalf("%v, %v", ev, err)
		}
		defer func() { _ = ev.Ack() }()
		return errors.Is(ev.Err(), syscall.EINVAL) && strings.Contains(ev.Err().Error(), "must have a zone")
	}
	if err := id.ResolveAddr(t.Context(), netip.AddrPort{}, to, time.Second); err != nil {
		t.Error(err)
	} else if !zoneless() {
		t.Error("the error is not that of an address without zone")
	}
	sid := SockaddrIB{GID: verbs.GIDFromAddr(to.Addr()), SID: ServiceID(PSTCP, 7)}
	if err := id.ResolveAddrIB(t.Context(), nil, sid, time.Second); err != nil {
		t.Error(err)
	} else if zoneless() {
		t.Error("AF_IB: the address must have a zone")
	}
	if err := errors.Join(id.Close(), ch.Close(), h.Close()); err != nil {
		t.Error(err)
	}
}

// The end of a handshake on a device that is on no interface asks the system nothing, which knows nothing of the way.
func TestSilenceWithoutInterface(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := memoryHost(t)
		ch, err := h.CreateEventChannel()
		if err != nil {
			t.Fatal(err)
		}
		id, err := h.CreateID(ch, PSTCP, nil)
		if err == nil {
			err = id.ResolveAddr(t.Context(), netip.AddrPort{}, netip.AddrPortFrom(fuzzThere, 7), time.Second)
		}
		if err != nil {
			t.Fatal(err)
		}
		if ev, err := ch.GetEvent(t.Context()); err != nil || ev.Ack() != nil {
			t.Fatal(err)
		}
		id.mu.Lock()
		id.step(inConnect)
		id.onSilence(false)
		id.mu.Unlock()
		ev, err := ch.TryGetEvent()
		if err != nil || ev.Type != EventUnreachable || ev.Status != -int(syscall.ETIMEDOUT) || ev.cause != nil {
			t.Errorf("%+v, %v", ev, err)
		}
		if err := errors.Join(ev.Ack(), id.Close(), ch.Close(), h.Close()); err != nil {
			t.Error(err)
		}
	})
}

// A listener that ends with results that Accept has not returned ends them too: connections and errors.
func TestListenerEndsWithResults(t *testing.T) {
	h := memoryHost(t)
	unwilling := errors.New("unwilling")
	l, err := Listen(t.Context(), ":0", &Options{Host: h})
	if err != nil {
		t.Fatal(err)
	}
	l.made <- made{err: unwilling} // of a handshake that has failed
	if err := errors.Join(l.Close(), h.Close()); err != nil {
		t.Error(err)
	}
}
