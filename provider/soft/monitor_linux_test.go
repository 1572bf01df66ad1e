package soft

import (
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/apart"
	"github.com/verbena-rdma/verbena/verbs"
)

// TestV_AE_22_KernelReportsChanges: the kernel reports changes. In its own network namespace the test has a loopback
// interface that is down and has no addresses, and sets it up and down.
func TestV_AE_22_KernelReportsChanges(t *testing.T) {
	if !apart.Run(t) {
		return
	}
	d := newDevice(spec{name: "vrb_lo", iface: "lo"})
	var up portEvents
	ctx, err := d.Open(&up)
	if err != nil {
		t.Fatal(err)
	}
	defer ctx.Close()
	if attr, _ := ctx.QueryPort(1); attr.State != verbs.PortDown {
		t.Fatalf("the port is %v from the start", attr.State)
	}
	setUp(t, true)
	expect(t, &up, verbs.EventPortActive, verbs.EventGIDChange)
	table, _ := ctx.GIDTable(1)
	if !slices.ContainsFunc(table, func(e verbs.GIDEntry) bool {
		return e.GID.Addr().String() == "127.0.0.1" &&
			e.NetDev == "lo"
	}) {
		t.Errorf("GID table %+v", table)
	}
	setUp(t, false)
	expect(t, &up, verbs.EventPortErr)
}

// expect waits for each of the events.
func expect(t *testing.T, up *portEvents, want ...verbs.EventType) {
	t.Helper()
	var got []verbs.EventType
	for start := time.Now(); time.Since(start) < 10*time.Second; time.Sleep(time.Millisecond) {
		got = append(got, up.take()...)
		missing := slices.ContainsFunc(want, func(e verbs.EventType) bool { return !slices.Contains(got, e) })
		if !missing {
			return
		}
	}
	t.Fatalf("events %v, want %v", got, want)
}

func setUp(t *testing.T, up bool) {
	t.Helper()
	apart.Interface(t, "lo", unix.SIOCSIFFLAGS, func(r *unix.Ifreq) {
		if up {
			r.SetUint16(unix.IFF_UP)
		}
	})
}

// TestV_AE_25_KernelRemovesTheInterface: a device whose interface is removed, here one that the test has made in its
// own network namespace, reports it to all contexts, and its objects can still be closed.
func TestV_AE_25_KernelRemovesTheInterface(t *testing.T) {
	if !apart.Run(t) {
		return
	}
	const name = "vrbtest0"
	tun, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("cannot make an interface: %v", err)
	}
	remove := sync.OnceFunc(func() { unix.Close(tun) }) // removes the interface
	defer remove()
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		t.Fatal(err)
	}
	ifr.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(tun, unix.TUNSETIFF, ifr); err != nil {
		t.Skipf("cannot make an interface: %v", err)
	}
	apart.Interface(t, name, unix.SIOCSIFADDR, func(r *unix.Ifreq) {
		if err := r.SetInet4Addr([]byte{192, 0, 2, 1}); err != nil {
			t.Fatal(err)
		}
	})
	apart.Interface(t, name, unix.SIOCSIFFLAGS, func(r *unix.Ifreq) { r.SetUint16(unix.IFF_UP) })

	d := newDevice(spec{name: "vrb_" + name, iface: name})
	var up [2]portEvents
	for i := range up {
		ctx, err := d.Open(&up[i])
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := ctx.Close(); err != nil {
				t.Error(err)
			}
		}()
		if attr, _ := ctx.QueryPort(1); attr.State != verbs.PortActive {
			t.Fatalf("the port is %v from the start", attr.State)
		}
	}
	remove()
	for i := range up {
		expect(t, &up[i], verbs.EventGIDChange, verbs.EventPortErr, verbs.EventDeviceFatal)
	}
}
