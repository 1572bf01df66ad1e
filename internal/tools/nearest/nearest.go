// Package nearest opens the device that reaches a peer, for tools without an explicit device, and checks
// before a peer is known whether any device is suitable. It imports verbs and internal/sysroute.
package nearest

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/verbena-rdma/verbena/internal/sysroute"
	"github.com/verbena-rdma/verbena/verbs"
)

// Open opens the device whose port of that number, any port if it is 0, has the system's source address for the peer,
// or else the first device whose port can reach it. iWARP devices, whose QPs only rdma_cm connects, are left out.
func Open(peer netip.Addr, port uint8) (*verbs.Context, error) {
	devices, err := verbs.Devices()
	if err != nil && len(devices) == 0 {
		return nil, err
	}
	had := len(devices)
	if devices = slices.DeleteFunc(devices, iwarp); len(devices) == 0 && had > 0 {
		return nil, errors.New("no RoCE device: only rdma_cm connects QPs of iWARP devices")
	}
	source, _ := sysroute.Source(peer, "")
	var usable *verbs.Context
	var errs []error
	for _, d := range devices {
		ctx, err := d.Open()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		_, choice, err := Port(ctx, port, peer, source)
		local := choice.GID.Addr()
		switch {
		case err != nil:
			errs = append(errs, err)
			ctx.Close()
		case local == source || usable == nil && len(devices) == 1:
			if usable != nil {
				usable.Close()
			}
			return ctx, nil
		case usable == nil:
			usable = ctx
		default:
			ctx.Close()
		}
	}
	if usable != nil {
		return usable, nil
	}
	if len(errs) == 0 {
		return nil, errors.New("no IB devices found")
	}
	return nil, fmt.Errorf("no device reaches %s: %w", peer, errors.Join(errs...))
}

// Port returns the port, and its GID, for a peer: the given port, or if that is 0 the one whose GID is the source
// address of the system's route, or else the first with a GID for the peer.
func Port(ctx *verbs.Context, port uint8, peer, source netip.Addr) (uint8, verbs.GIDChoice, error) {
	if port != 0 {
		choice, err := ctx.SelectGID(port, peer)
		return port, choice, err
	}
	attr, err := ctx.QueryDevice()
	if err != nil {
		return 0, verbs.GIDChoice{}, err
	}
	var first verbs.GIDChoice
	var errs []error
	for n := range attr.PhysPortCnt {
		choice, err := ctx.SelectGID(n+1, peer)
		switch {
		case err != nil:
			errs = append(errs, err)
		case choice.GID.Addr() == source:
			return n + 1, choice, nil
		case port == 0:
			port, first = n+1, choice
		}
	}
	if port != 0 {
		return port, first, nil
	}
	return 0, first, errors.Join(errs...)
}

// Check returns an error unless the named device, or any device if name is empty, has this port and this
// GID index. A negative gidIndex is not checked. A server calls it before it waits. If remedy is not empty the tool
// connects its QPs itself, which those of iWARP devices do not allow; remedy is what the user can do then.
func Check(name string, port uint8, gidIndex int, remedy string) error {
	if name != "" {
		ctx, err := verbs.Open(name)
		if err != nil {
			return err
		}
		defer ctx.Close()
		if remedy != "" {
			if err := ByHand(ctx.Device(), remedy); err != nil {
				return err
			}
		}
		return has(ctx, port, gidIndex)
	}
	devices, err := verbs.Devices()
	if len(devices) == 0 {
		if err == nil {
			err = errors.New("no IB devices found: run verbena doctor")
		}
		return err
	}
	if remedy != "" {
		first := devices[0]
		if devices = slices.DeleteFunc(devices, iwarp); len(devices) == 0 {
			return ByHand(first, remedy)
		}
	}
	var errs []error
	for _, d := range devices {
		ctx, err := d.Open()
		if err == nil {
			err = has(ctx, port, gidIndex)
			ctx.Close()
		}
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// ByHand returns an error with a remedy if only rdma_cm connects the QPs of a device.
func ByHand(d *verbs.Device, remedy string) error {
	if iwarp(d) {
		return fmt.Errorf("%s is an iWARP device, whose QPs only rdma_cm connects: %s", d.Name(), remedy)
	}
	return nil
}

func iwarp(d *verbs.Device) bool { return d.TransportType() == verbs.TransportIWARP }

// Instead returns a clause that lists the available devices.
func Instead(devices []*verbs.Device) string {
	if len(devices) == 0 {
		return "; there is none: run verbena doctor"
	}
	return "; there are " + strings.Join(Names(devices), ", ")
}

// Names returns the names of the devices.
func Names(devices []*verbs.Device) []string {
	names := make([]string, len(devices))
	for i, d := range devices {
		names[i] = d.Name()
	}
	return names
}

func has(ctx *verbs.Context, port uint8, gidIndex int) error {
	if _, err := ctx.QueryPort(port); err != nil || gidIndex < 0 {
		return err
	}
	_, err := ctx.QueryGIDEntry(port, gidIndex)
	return err
}
