package umad_test

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/umad"
)

// twoPorts runs a test with a device of two ports, which have the addresses addrs.
func twoPorts(t *testing.T, f func(t *testing.T, p *umad.Port)) {
	synctest.Test(t, func(t *testing.T) {
		fab := rdmatest.New(rdmatest.Config{RealTime: true})
		vctx := must(fab.OpenPorts("two", []netip.Addr{addrs[0]}, []netip.Addr{addrs[1]}))(t)
		p := must(umad.Open(vctx.Device()))(t)
		f(t, p)
		for _, c := range []interface{ Close() error }{p, vctx} {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// answers has an agent answer requests with a text.
func answers(t *testing.T, p *umad.Port, r umad.Registration, text string) *umad.Agent {
	t.Helper()
	var a *umad.Agent
	r.Handler = func(got *umad.Received) {
		if err := a.Reply(got, 0, []byte(text)); err != nil {
			t.Error(err)
		}
	}
	a = must(p.Register(r))(t)
	return a
}

// says calls an agent and compares its answer, of which there is none if want is empty.
func says(t *testing.T, a *umad.Agent, to umad.Address, request umad.MAD, want string) {
	t.Helper()
	r, err := a.Call(t.Context(), &to, request, time.Second, 0)
	switch {
	case want == "" && !errors.Is(err, umad.ErrTimeout):
		t.Errorf("%v, want a time-out", err)
	case want != "" && err != nil:
		t.Errorf("%v, want %q", err, want)
	case want != "" && string(r.MAD.Data()[:len(want)]) != want:
		t.Errorf("%q, want %q", r.MAD.Data()[:len(want)], want)
	}
}

// TestAgentsOfPorts registers agents for the same requests at the two ports of a device.
func TestAgentsOfPorts(t *testing.T) {
	twoPorts(t, func(t *testing.T, p *umad.Port) {
		first := umad.Registration{Class: umad.ClassPerf, ClassVersion: 1, Methods: []uint8{umad.MethodGet}, PortNum: 1}
		second, anywhere, third := first, first, first
		second.PortNum, anywhere.PortNum, third.PortNum = 2, 0, 3
		a, b := answers(t, p, first, "port 1"), answers(t, p, second, "port 2")
		client := must(p.Register(umad.Registration{}))(t)
		says(t, client, umad.Address{Local: addrs[0], Remote: addrs[0]}, get(umad.ClassPerf), "port 1")
		says(t, client, umad.Address{Local: addrs[0], Remote: addrs[1]}, get(umad.ClassPerf), "port 2")
		for _, r := range []umad.Registration{second, anywhere} {
			if _, err := p.Register(r); !errors.Is(err, syscall.EBUSY) {
				t.Errorf("port %d again: %v", r.PortNum, err)
			}
		}
		if _, err := p.Register(third); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("a port that does not exist: %v", err)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		says(t, client, umad.Address{Local: addrs[1], Remote: addrs[0]}, get(umad.ClassPerf), "")
		says(t, client, umad.Address{Local: addrs[1], Remote: addrs[1]}, get(umad.ClassPerf), "port 2")
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestAgentsOfVendors registers agents for the same requests of two vendors, whose OUI is in bytes 37 to 39 of a MAD.
func TestAgentsOfVendors(t *testing.T) {
	bubble(t, rdmatest.Faults{}, func(t *testing.T, _ *rdmatest.Fabric, a, b *umad.Port) {
		const class = 0x32
		mine := umad.Registration{Class: class, ClassVersion: 1, Methods: []uint8{umad.MethodGet}, OUI: 0x001405}
		theirs, any, wrongClass, long := mine, mine, mine, mine
		theirs.OUI, any.OUI, wrongClass.Class, long.OUI = 0x0002C9, 0, 0x2F, 1<<24
		mine.Attributes, theirs.Attributes = nil, []uint16{umad.AttrClassPortInfo}
		x, y := answers(t, b, mine, "1405"), answers(t, b, theirs, "2c9")
		client := must(a.Register(umad.Registration{}))(t)
		for oui, want := range map[[3]byte]string{{0, 0x14, 5}: "1405", {0, 2, 0xC9}: "2c9", {1, 0x14, 5}: "", {}: ""} {
			request := get(class)
			copy(request[37:], oui[:])
			says(t, client, toB, request, want)
		}
		for _, r := range []umad.Registration{mine, any} {
			if _, err := b.Register(r); !errors.Is(err, syscall.EBUSY) {
				t.Errorf("OUI %#x again: %v", r.OUI, err)
			}
		}
		for _, r := range []umad.Registration{wrongClass, long} {
			if _, err := b.Register(r); !errors.Is(err, syscall.EINVAL) {
				t.Errorf("class %#x with OUI %#x: %v", r.Class, r.OUI, err)
			}
		}
		for _, agent := range []*umad.Agent{x, y} {
			if err := agent.Close(); err != nil {
				t.Error(err)
			}
		}
		unnamed := answers(t, b, any, "any")
		defer unnamed.Close()
		says(t, client, toB, get(class), "any")
	})
}
