package auto

import (
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/loopback"
	"github.com/verbena-rdma/verbena/observe"
	"github.com/verbena-rdma/verbena/provider/hw"
	"github.com/verbena-rdma/verbena/verbs"
)

// testPeer is the environment variable with an address that an adapter of this machine reaches, and testAdapter that
// with the adapter's name.
const (
	testPeer    = "VERBENA_TEST_PEER"
	testAdapter = "VERBENA_TEST_DEVICE"
)

// choose opens the device for a peer and returns its name, its provider and the event.
func choose(t *testing.T, peer string) (name, provider string, ev observe.Event) {
	t.Helper()
	stop := observe.Handle(func(e observe.Event) { ev = e })
	vctx, err := Open(netip.MustParseAddr(peer))
	stop()
	if err != nil {
		t.Fatal(err)
	}
	defer vctx.Close()
	if ev.Name != observe.Device || ev.Device != vctx.Device().Name() || ev.Peer.Addr().String() != peer {
		t.Errorf("event %+v of %v", ev, vctx.Device())
	}
	if c, err := vctx.SelectGID(1, netip.MustParseAddr(peer)); err != nil ||
		vctx.Device().TransportType() == verbs.TransportIB && c.GID.Addr() != ev.Local.Addr() {
		t.Errorf("GID %v of local address %v: %v", c, ev.Local, err)
	}
	return vctx.Device().Name(), vctx.Device().Provider(), ev
}

var softAddr = loopback.Addr(91)

// TestSoftware chooses the software device where no adapter has the address, and says why.
func TestSoftware(t *testing.T) {
	t.Setenv("VERBENA_DEVICES", "vrb_auto="+softAddr)
	name, provider, ev := choose(t, softAddr)
	if name != "vrb_auto" || provider != driver.Soft {
		t.Errorf("%s of provider %s", name, provider)
	}
	why := "no adapter has this address"
	if hw.Available() != nil {
		why = "provider hw"
	}
	if !strings.Contains(ev.Reason, why) || !strings.Contains(ev.Reason, softAddr) {
		t.Errorf("reason: %s", ev.Reason)
	}
	t.Setenv(driver.EnvProvider, driver.Soft)
	if _, _, ev = choose(t, softAddr); !strings.Contains(ev.Reason, "VERBENA_PROVIDER is soft") {
		t.Errorf("reason: %s", ev.Reason)
	}
}

// TestAdapter chooses the adapter that reaches a peer although the software device has its address too, unless the
// environment forbids it.
func TestAdapter(t *testing.T) {
	peer, adapter := os.Getenv(testPeer), os.Getenv(testAdapter)
	if peer == "" || adapter == "" {
		t.Skip(testPeer + " and " + testAdapter + " name no peer and no adapter")
	}
	name, provider, ev := choose(t, peer)
	if name != adapter || provider != driver.HW || !strings.Contains(ev.Reason, "it is an adapter") {
		t.Errorf("%s of provider %s: %s", name, provider, ev.Reason)
	}
	t.Setenv(driver.EnvProvider, driver.Soft)
	if name, provider, _ = choose(t, peer); provider != driver.Soft {
		t.Errorf("with VERBENA_PROVIDER=soft: %s of provider %s", name, provider)
	}
}

// TestSourceOfAnotherPort finds the source address of the route at the second port of a device.
func TestSourceOfAnotherPort(t *testing.T) {
	t.Setenv(driver.EnvProvider, driver.Soft)
	t.Setenv("VERBENA_DEVICES", "vrb_auto1=127.0.0.95,vrb_auto2=127.0.0.96/127.0.0.1")
	vctx, err := Open(netip.MustParseAddr(softAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer vctx.Close()
	if name := vctx.Device().Name(); name != "vrb_auto2" {
		t.Errorf("%s, and vrb_auto2 has the source address", name)
	}
}

// TestUnknownProvider refuses a value of VERBENA_PROVIDER that is no provider's name.
func TestUnknownProvider(t *testing.T) {
	t.Setenv(driver.EnvProvider, "hard")
	_, err := Open(netip.MustParseAddr("127.0.0.92"))
	var e *verbs.Error
	if !errors.As(err, &e) || e.Errno != verbs.EINVAL || !strings.Contains(err.Error(), `VERBENA_PROVIDER="hard"`) {
		t.Error(err)
	}
}

// TestRefused has errors say what is wrong.
func TestRefused(t *testing.T) {
	t.Setenv(driver.EnvProvider, driver.HW) // no adapter has a loopback address
	for _, tt := range []struct {
		peer  netip.Addr
		errno verbs.Errno
		says  string
	}{
		{netip.Addr{}, verbs.EINVAL, "must have an address"},
		{netip.IPv4Unspecified(), verbs.EINVAL, "must have an address"},
		{netip.MustParseAddr("127.0.0.92"), verbs.ENODEV, "no device with an active port has 127.0.0.1"},
	} {
		vctx, err := Open(tt.peer)
		if err == nil {
			t.Errorf("%v: opened %v", tt.peer, vctx.Device())
			_ = vctx.Close()
			continue
		}
		var e *verbs.Error
		if !errors.As(err, &e) || e.Errno != tt.errno || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%v: %v", tt.peer, err)
		}
	}
}
