package rdmacm

import (
	"errors"
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/cm"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/mem"
	"github.com/verbena-rdma/verbena/internal/softlink"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/verbs"
)

// claimLink is shared with other processes: it counts the claims of service IDs that are not given back.
type claimLink struct {
	link.Link
	err    error  // of a claim
	during func() // called while a port is claimed or given back
	made   int
	open   int
}

func (l *claimLink) Capabilities() link.Capabilities {
	c := l.Link.Capabilities()
	c.Shared = l
	return c
}

func (*claimLink) CommIDs() (prefix uint32, bits int) { return 0, 0 }

func (l *claimLink) ClaimService(uint64, netip.Addr) (release func(), err error) {
	if l.during != nil {
		l.during()
	}
	if l.err != nil {
		return nil, l.err
	}
	l.made++
	l.open++
	return func() {
		if l.open--; l.during != nil {
			l.during()
		}
	}, nil
}

// claimingHost is a host at fuzzHere whose device, which runs, is on a claimLink, and a listener of all devices that is
// bound and does not listen yet.
func claimingHost(t *testing.T) (claims *claimLink, d *device, l *ID) {
	t.Helper()
	claims = new(claimLink)
	fabric := mem.NewFabric(mem.Config{})
	dev, err := soft.New(softlink.On(soft.Config{Name: "a", Addrs: []netip.Addr{fuzzHere}}, softlink.Links{
		Open: func(addrs []netip.Addr, ports int) (_ link.Link, err error) {
			claims.Link, err = fabric.Open(addrs, ports)
			return claims, err
		},
	}))
	if err != nil {
		t.Fatal(err)
	}
	h := NewHost(dev.Device)
	first := boundID(t, h)
	d = first.dev
	l, err = h.CreateID(nil, PSTCP, nil)
	if err == nil {
		err = errors.Join(first.Close(), l.BindAddr(netip.AddrPortFrom(netip.IPv4Unspecified(), 7)))
	}
	if err != nil {
		t.Fatal(err)
	}
	return claims, d, l
}

// A listener that cannot begin on a device gives back its claim there, and is not one of all devices. It can try again.
func TestListenThatFailsGivesBackItsClaim(t *testing.T) {
	claims, d, l := claimingHost(t)
	other, err := d.cm.listen(cm.ListenParams{Service: PSTCP.service(7), Kind: transportOf(verbs.QPTypeRC),
		Addr: netip.IPv4Unspecified(), AFOnly: true, Backlog: cm.NewBacklog(1)})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Listen(1); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("%v, want EADDRINUSE", err)
	}
	if claims.open != 0 || len(l.host.wild) != 0 {
		t.Errorf("%d claims, %d IDs listen on all devices", claims.open, len(l.host.wild))
	}
	d.cm.unlisten(other)
	if err := l.Listen(1); err != nil || claims.open != 1 {
		t.Errorf("afterwards: %v, %d claims", err, claims.open)
	}
	if err := errors.Join(l.Close(), l.host.Close()); err != nil || claims.open != 0 {
		t.Errorf("%v, %d claims at the end", err, claims.open)
	}
}

// A listener extends to a new device with a claim, unless it has ended meanwhile, or listens there already, or another
// process has the port.
func TestClaimsOfAListenerThatExtends(t *testing.T) {
	for name, c := range map[string]struct {
		during func(l *ID, d *device)
		err    error
		claims int // in the end
	}{
		"it extends":              {nil, nil, 1},
		"another process listens": {nil, syscall.EADDRINUSE, 0},
		"it ends":                 {func(l *ID, _ *device) { l.state = stIdle }, nil, 0},
		"it listens already":      {func(l *ID, d *device) { l.listeners = []deviceListener{{dev: d}} }, nil, 0},
	} {
		claims, d, l := claimingHost(t)
		l.mu.Lock()
		l.state = stListen
		l.mu.Unlock()
		claims.err = c.err
		if c.during != nil {
			claims.during = func() {
				l.mu.Lock()
				defer l.mu.Unlock()
				c.during(l, d)
			}
		}
		l.extendTo(d)
		began := slices.ContainsFunc(l.listeners, func(l deviceListener) bool { return l.l != nil })
		if claims.open != c.claims || began != (c.claims > 0) {
			t.Errorf("%s: %d claims, want %d; it listens: %v", name, claims.open, c.claims, began)
		}
		made := claims.made
		if l.extendTo(d); c.claims > 0 && claims.made != made {
			t.Errorf("%s: another claim was made", name)
		}
		claims.during = nil
		if err := errors.Join(l.Close(), l.host.Close()); err != nil || claims.open != 0 {
			t.Errorf("%s: %v, %d claims at the end", name, err, claims.open)
		}
	}
}

// A device that goes while a port is claimed there, or given back, is forgotten afterwards.
func TestDeviceThatGoesDuringAClaim(t *testing.T) {
	for _, giving := range []bool{false, true} {
		claims, d, l := claimingHost(t)
		h := l.host
		h.list = func() ([]*verbs.Device, error) { return nil, nil }
		known := func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			return slices.Contains(h.devices, d)
		}
		goes := func() {
			if d.remove(); !known() {
				t.Error("the device is forgotten while it is in use")
			}
		}
		if !giving {
			claims.during = goes
		}
		h.mu.Lock()
		unclaim, err := l.claim().on(d)
		h.mu.Unlock()
		if err != nil || known() != giving {
			t.Errorf("%v; the device is kept: %v", err, known())
		}
		claims.during = nil
		if giving {
			claims.during = goes
		}
		if unclaim(); claims.open != 0 || known() {
			t.Errorf("%d claims; the device is kept: %v", claims.open, known())
		}
		if err := errors.Join(l.Close(), h.Close()); err != nil {
			t.Error(err)
		}
	}
}
