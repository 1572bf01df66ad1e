package rdmacm_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/apart"
	_ "github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// addInterface makes an interface with an address.
func addInterface(t *testing.T) {
	t.Helper()
	for _, line := range []string{"link add back type veth peer name other", "link set other up",
		"addr add " + near4 + "/24 dev back", "link set back up"} {
		ip(t, "%s", line)
	}
}

// onInterface runs a test in a network namespace with such an interface, whose device is the only one. It returns nil
// to the process outside.
func onInterface(t *testing.T) *world {
	t.Helper()
	apart.NeedsIP(t)
	if !apart.Run(t) {
		return nil
	}
	w := &world{T: t}
	w.ok(os.Setenv("VERBENA_DEVICES", "back"))
	ip(t, "link set lo up")
	addInterface(t)
	return w
}

// connectAt makes a connection between two IDs of a host at an address.
func connectAt(ctx context.Context, h *rdmacm.Host, addr string) (l *rdmacm.Listener, c, s *rdmacm.ID, err error) {
	at := netip.AddrPortFrom(netip.MustParseAddr(addr), 0).String()
	if l, err = rdmacm.Listen(ctx, at, &rdmacm.Options{Host: h}); err != nil {
		return nil, nil, nil, err
	}
	dialled := make(chan error)
	go func() {
		var err error
		c, err = rdmacm.Dial(ctx, l.Addr().String(), &rdmacm.Options{Host: h})
		dialled <- err
	}()
	s, err = l.Accept(ctx)
	return l, c, s, errors.Join(err, <-dialled)
}

// An interface goes and comes back: the host makes connections by its new device, while IDs of the old one are open. A
// listener on all devices listens there too.
func TestDeviceThatComesBack(t *testing.T) {
	w := onInterface(t)
	if w == nil {
		return
	}
	h := rdmacm.NewGrowingHost(verbs.Devices)
	soon, cancel := context.WithTimeout(bg, 30*time.Second)
	defer cancel()
	connect := func() (l *rdmacm.Listener, c, s *rdmacm.ID, err error) { return connectAt(soon, h, near4) }
	everywhere := must(rdmacm.Listen(soon, ":7471", &rdmacm.Options{Host: h}))(w)
	l, c, s, err := connect()
	w.ok(err)
	ip(t, "link del back")
	_, err = l.Accept(soon)
	w.errno(err, syscall.ENODEV)
	addInterface(t)
	l2, c2, s2, err := connect()
	for errors.Is(err, syscall.ENODEV) && l2 == nil { // until the device has noticed
		time.Sleep(10 * time.Millisecond)
		l2, c2, s2, err = connect()
	}
	w.ok(err)
	go func() { _, _ = everywhere.Accept(soon) }()
	c3, err := rdmacm.Dial(soon, near4+":7471", &rdmacm.Options{Host: h})
	for errors.Is(err, syscall.ECONNREFUSED) { // until it listens on the new device
		time.Sleep(10 * time.Millisecond)
		c3, err = rdmacm.Dial(soon, near4+":7471", &rdmacm.Options{Host: h})
	}
	w.ok(err)
	for _, id := range []*rdmacm.ID{c, s, c2, s2, c3} {
		w.ok(id.Close())
	}
	for _, l := range []*rdmacm.Listener{l, l2, everywhere} {
		w.ok(l.Close())
	}
}

// An interface goes and comes back while IDs of the old one are open: all addresses can be used, not only the one whose
// sockets are still there.
func TestAddressesOfADeviceThatComesBack(t *testing.T) {
	w := onInterface(t)
	if w == nil {
		return
	}
	const near6 = "2001:db8::1"
	addrs := []string{near4, near6}
	ip(t, "addr add %s/64 dev back nodad", near6)
	h := rdmacm.NewGrowingHost(verbs.Devices)
	soon, cancel := context.WithTimeout(bg, 30*time.Second)
	defer cancel()
	var ids []*rdmacm.ID
	var listeners []*rdmacm.Listener
	for _, addr := range addrs {
		l, c, s, err := connectAt(soon, h, addr)
		w.ok(err)
		ids, listeners = append(ids, c, s), append(listeners, l)
	}
	ip(t, "link del back")
	_, err := listeners[0].Accept(soon)
	w.errno(err, syscall.ENODEV)
	addInterface(t)
	ip(t, "addr add %s/64 dev back nodad", near6)
	for _, addr := range addrs {
		l, c, s, err := connectAt(soon, h, addr)
		for errors.Is(err, syscall.ENODEV) && l == nil { // until the device has noticed
			time.Sleep(10 * time.Millisecond)
			l, c, s, err = connectAt(soon, h, addr)
		}
		w.ok(err)
		ids, listeners = append(ids, c, s), append(listeners, l)
	}
	for _, id := range ids {
		w.ok(id.Close())
	}
	for _, l := range listeners {
		w.ok(l.Close())
	}
}

// An address goes, another one takes its place in the GID table, and it comes back: the ID that is bound to it has its
// new place.
func TestAddressThatComesBackElsewhere(t *testing.T) {
	w := onInterface(t)
	if w == nil {
		return
	}
	e := w.newEnd(rdmacm.NewGrowingHost(verbs.Devices), rdmacm.PSUDP)
	own := netip.MustParseAddr(near4)
	w.ok(e.BindAddr(at(own, 0)))
	place := func(addr string) (index int) {
		index = -1
		for _, g := range must(e.Verbs().QueryGIDTable())(w) {
			if g.GID == verbs.GIDFromAddr(netip.MustParseAddr(addr)) {
				index = g.Index
			}
		}
		return index
	}
	first := place(near4)
	ip(t, "addr del %s/24 dev back", near4)
	ip(t, "addr add %s/24 dev back", far4)
	for place(far4) != first {
		time.Sleep(time.Millisecond)
	}
	e.expect(rdmacm.EventAddrChange)
	ip(t, "addr add %s/24 dev back", near4)
	for place(near4) < 0 {
		time.Sleep(time.Millisecond)
	}
	group := at(netip.MustParseAddr("239.1.2.3"), 0)
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) { // until rdmacm has noticed
		w.ok(e.JoinMulticast(bg, group, nil))
		ev := w.next(e.ch, rdmacm.EventMulticastJoin)
		got, want := ev.UD.AHAttr.GRH.SGIDIndex, place(near4)
		w.ok(ev.Ack())
		if got == want {
			break
		}
		if time.Since(begin) > 20*time.Second {
			t.Fatalf("GID index %d, which is %v: must be %d", got, far4, want)
		}
		w.ok(e.LeaveMulticast(group))
	}
	e.close()
}
