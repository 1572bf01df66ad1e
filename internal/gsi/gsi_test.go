package gsi_test

import (
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/gsi"
	"github.com/verbena-rdma/verbena/verbs"
)

// kernelDevice is a device whose QP 1 belongs to the kernel. It cannot be opened: Refused must not try.
//
//conformance:fake
type kernelDevice struct{ fakeDevice }

func (*kernelDevice) KernelManaged() string { return "its QP 1 is the kernel's" }

func (*kernelDevice) Open(verbs.DriverContextEvents) (verbs.DriverContext, error) {
	panic("Refused opens the device")
}

func TestRefusedOnlyForDevicesOfTheKernel(t *testing.T) {
	err := gsi.Refused(driver.NewDevice(&kernelDevice{fakeDevice{name: "mlx5_0"}}))
	if !errors.Is(err, verbs.EOPNOTSUPP) ||
		!strings.Contains(err.Error(), "its QP 1 is the kernel's (EOPNOTSUPP) [mlx5_0]") {
		t.Errorf("a device of the kernel: %v, want EOPNOTSUPP with the device and its reason", err)
	}
	if err := gsi.Refused(driver.NewDevice(&fakeDevice{})); err != nil {
		t.Errorf("another device: %v", err)
	}
}

func TestCreateQPMakesQP1(t *testing.T) {
	pd, init := open(t, &fakePD{})
	qp, err := gsi.CreateQP(pd, init)
	if err != nil || qp.QPN() != 1 {
		t.Fatalf("%v, %v, want QP 1", qp, err)
	}
}

func TestCreateQPErrors(t *testing.T) {
	exists := &fakePD{err: syscall.EBUSY}
	tests := []struct {
		name string
		drv  verbs.DriverPD
		typ  verbs.QPType
		want syscall.Errno
	}{
		{"another type", &fakePD{}, verbs.QPTypeRC, verbs.EINVAL},
		{"another type, of a device that keeps QP 1", plainPD{}, verbs.QPTypeRC, verbs.EINVAL},
		{"a device that keeps QP 1", plainPD{}, verbs.QPTypeUD, verbs.ENOSYS},
		{"QP 1 exists", exists, verbs.QPTypeUD, verbs.EBUSY},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pd, init := open(t, tt.drv)
			init.Type = tt.typ
			if qp, err := gsi.CreateQP(pd, init); qp != nil || !errors.Is(err, tt.want) {
				t.Errorf("%v, %v, want %v", qp, err, tt.want)
			}
		})
	}
}

// TestHintsReachTheDriver gives each hint to a driver that takes it and to one that does not.
func TestHintsReachTheDriver(t *testing.T) {
	for _, drv := range []verbs.DriverPD{&fakePD{}, plainPD{}} {
		pd, init := open(t, drv)
		qp, err := pd.CreateQP(init)
		if err != nil {
			t.Fatal(err)
		}
		ah, err := pd.CreateAH(&verbs.AHAttr{PortNum: 1})
		if err != nil {
			t.Fatal(err)
		}
		gsi.Ended(qp, "the peer has left")
		gsi.Moved(qp, verbs.QPSRTS)
		gsi.SetPKeyIndex(ah, 3)
		if _, ok := drv.(plainPD); ok {
			continue
		}
		if q := driver.Of[*fakeQP](qp); q.why != "the peer has left" || q.state != verbs.QPSRTS {
			t.Errorf("the QP got %q and %v", q.why, q.state)
		}
		if a := driver.Of[*fakeAH](ah); a.index != 3 {
			t.Errorf("the address handle got index %d, want 3", a.index)
		}
	}
}

// usePD makes domains stand for ports during a test.
func usePD(t *testing.T) {
	old := gsi.PD
	gsi.PD = func(port any) *verbs.PD { return port.(*verbs.PD) }
	t.Cleanup(func() { gsi.PD = old })
}

func TestClaimService(t *testing.T) {
	usePD(t)
	drv := &fakePD{}
	pd, _ := open(t, drv)
	at := netip.MustParseAddr("192.0.2.1")
	release, err := gsi.ClaimService(pd, 0x1060001, at)
	if err != nil || drv.claimed != 0x1060001 || drv.at != at {
		t.Fatalf("%v, service %#x at %v", err, drv.claimed, drv.at)
	}
	if release(); !drv.released {
		t.Error("release did not reach the driver")
	}
	cause := errors.New("the lock file is gone")
	for _, tt := range []struct {
		err  error
		want syscall.Errno
	}{{syscall.EADDRINUSE, syscall.EADDRINUSE}, {cause, syscall.EIO}} {
		drv.err = tt.err
		release, err := gsi.ClaimService(pd, 1, at)
		var verr *verbs.Error
		if release != nil || !errors.As(err, &verr) || verr.Errno != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%v: release is nil: %v, %v; want nil and %v", tt.err, release == nil, err, tt.want)
		}
	}
}

func TestCallsOfAPortReachItsDriver(t *testing.T) {
	usePD(t)
	drv := &fakePD{}
	pd, _ := open(t, drv)
	if prefix, bits := gsi.CommIDs(pd); prefix != 0xabc00000 || bits != 12 {
		t.Errorf("communication IDs %#x/%d", prefix, bits)
	}

	screen := &fakeScreen{}
	if gsi.Screen(pd, screen); drv.screen != screen {
		t.Error("the driver did not get the screen")
	}
	if gsi.Screen(pd, nil); drv.screen != nil {
		t.Error("the driver kept the screen")
	}

	var got gsi.PeerDeath
	stop := gsi.WatchPeers(pd, func(d gsi.PeerDeath) { got = d })
	drv.watched(gsi.PeerDeath{QPN: 7})
	if stop(); got.QPN != 7 || !drv.stopped {
		t.Errorf("the watcher got %v; stop reached the driver: %v", got, drv.stopped)
	}

	local, remote := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	will := gsi.NewLastWill(pd, local, remote, 8, 64, 0x8001)
	if w := drv.will; will != w || w.local != local || w.remote != remote || w.tclass != 8 || w.hopLimit != 64 ||
		w.pkey != 0x8001 {
		t.Errorf("a last will with %+v", w)
	}
}
