// Package auto gives programs the adapters of this machine and the software device, and chooses between them. It
// includes packages provider/soft and provider/hw, so the program is linked dynamically with the C library, as that
// package describes:
//
//	vctx, err := auto.Open(peer)
//
// Programs with package rdmacm or rsocket need only the import: those packages choose in the same way.
// VERBENA_PROVIDER=hw or soft in the environment leaves the other devices out. The choice and its reason are an event
// of package observe (observe.Device).
//
// The package owns nothing. It imports verbs, observe, internal/driver, internal/sysroute, provider/hw and
// provider/soft.
package auto

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/sysroute"
	"github.com/verbena-rdma/verbena/observe"
	_ "github.com/verbena-rdma/verbena/provider/hw"   // adapters, which come first
	_ "github.com/verbena-rdma/verbena/provider/soft" // the software device
	"github.com/verbena-rdma/verbena/verbs"
)

// Open opens the device from which the system's route to a peer leaves: an adapter if one has the route's source
// address and an active port, else the software device. If no device has that address, it is the first device of that
// interface, or without interface, which has another address for the peer. The address may be of any active port;
// Context.SelectGID gives its index. It has no C twin: C programs are told the name of a device.
//
// Errors: ENODEV if no device has the address; the error says why there is no adapter. EINVAL for the zero and the
// unspecified address, and for another value of VERBENA_PROVIDER than the name of a provider. ENETUNREACH if the system
// has no route.
func Open(peer netip.Addr) (*verbs.Context, error) {
	fail := func(err error) (*verbs.Context, error) {
		return nil, &verbs.Error{Op: "open_device", Obj: "for peer " + peer.String(), Errno: errno(err), Err: err}
	}
	if !peer.IsValid() || peer.IsUnspecified() {
		return fail(fmt.Errorf("the peer must have an address: %w", verbs.EINVAL))
	}
	if _, err := driver.Selected(driver.Soft); err != nil {
		return fail(err)
	}
	source, err := sysroute.Source(peer, "")
	if err != nil {
		return fail(err)
	}
	devices, listErr := verbs.Devices()
	errs := []error{listErr}
	for _, sends := range []sender{fromSource, fromOther} {
		for _, d := range devices {
			vctx, err := d.Open()
			if err != nil {
				errs = append(errs, err)
				continue
			}
			if local, ok := anyPort(vctx, sends, source, peer); ok {
				report(d, local, peer)
				return vctx, nil
			}
			_ = vctx.Close()
		}
	}
	errs = append(errs, fmt.Errorf("no device with an active port has %v, the source of the route: %w", source,
		verbs.ENODEV), driver.Absent())
	return fail(errors.Join(errs...))
}

// A sender reports whether a port of a device has an address for a peer, and returns it.
type sender func(vctx *verbs.Context, port uint8, source, peer netip.Addr) (netip.Addr, bool)

// anyPort applies a sender to the active ports of a device.
func anyPort(vctx *verbs.Context, sends sender, source, peer netip.Addr) (netip.Addr, bool) {
	attr, err := vctx.QueryDevice()
	if err != nil {
		return netip.Addr{}, false
	}
	for n := range attr.PhysPortCnt {
		if port, err := vctx.QueryPort(n + 1); err != nil || port.State != verbs.PortActive {
			continue
		}
		if local, ok := sends(vctx, n+1, source, peer); ok {
			return local, true
		}
	}
	return netip.Addr{}, false
}

// fromSource looks for the source address of the route.
func fromSource(vctx *verbs.Context, port uint8, source, peer netip.Addr) (netip.Addr, bool) {
	if vctx.Device().TransportType() == verbs.TransportIWARP { // its GID is made of its MAC address
		on := vctx.Device().Interface()
		return source, on != "" && on == sysroute.Interface(source) && sysroute.InZone(peer, on)
	}
	table, err := vctx.QueryGIDTable()
	gid := verbs.GIDFromAddr(source)
	return source, err == nil && slices.ContainsFunc(table, func(e verbs.GIDEntry) bool {
		return e.GID == gid && e.Port == port && (e.NetDev == "" || sysroute.InZone(peer, e.NetDev))
	})
}

// fromOther looks for another address for the peer: of the same interface, or of a device without one.
func fromOther(vctx *verbs.Context, port uint8, source, peer netip.Addr) (netip.Addr, bool) {
	if on := vctx.Device().Interface(); on != "" && on != sysroute.Interface(source) {
		return netip.Addr{}, false
	}
	c, err := vctx.SelectGID(port, peer)
	local := c.GID.Addr()
	return local, err == nil && local.IsLoopback() == peer.IsLoopback()
}

// report emits the choice.
func report(d *verbs.Device, local, peer netip.Addr) {
	if !observe.On() {
		return
	}
	observe.Emit(observe.Event{Name: observe.Device, Device: d.Name(), Local: netip.AddrPortFrom(local, 0),
		Peer:   netip.AddrPortFrom(peer, 0),
		Reason: fmt.Sprintf("the route to %v leaves from %v; %s", peer, local, driver.Why(d))})
}

// errno is the error number of an error: ENODEV if a device is missing, whatever else failed.
func errno(err error) verbs.Errno {
	var n verbs.Errno
	switch {
	case errors.Is(err, verbs.ENODEV):
		return verbs.ENODEV
	case errors.As(err, &n):
		return n
	}
	return verbs.ENODEV
}
