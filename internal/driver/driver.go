// Package driver is for those who write providers: it joins them to package verbs, whose Driver interfaces they
// implement. It is internal so that only this module has drivers: a driver that kept a request which PostSend has
// handed to it would corrupt the memory of a program (decision 0030). It imports internal/seam and verbs, and reads
// VERBENA_PROVIDER.
package driver

import (
	"errors"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/seam"
	"github.com/verbena-rdma/verbena/verbs"
)

// Register makes a provider known. A provider's package calls it from init. A second provider of the same name is a
// mistake of the program and panics.
func Register(p verbs.DriverProvider) { seam.Register(p) }

// NewDevice makes a device of a driver that no provider lists, for providers that let programs make devices.
func NewDevice(drv verbs.DriverDevice) *verbs.Device { return seam.NewDevice(drv).(*verbs.Device) }

// Of is the driver's object, of type D, of an object of package verbs; the zero value for a nil pointer or an object
// of another driver. It allocates nothing.
func Of[D any](object any) D {
	d, _ := seam.Of(object).(D)
	return d
}

// Destroyed filters the result of destroying an object: EIO counts as success, since the device was removed and the
// object with it.
func Destroyed(err error) error {
	if errors.Is(err, syscall.EIO) {
		return nil
	}
	return err
}

// CheckModify checks a call of Modify that another process asks for, as verbs.QP.Modify does. It sets attr.QPState if
// mask does not have it. The caller sees to it that the QP does not change meanwhile.
func CheckModify(ctx verbs.DriverContext, qp verbs.DriverQP, t verbs.QPType, attr *verbs.QPAttr,
	mask verbs.QPAttrMask) error {
	return seam.CheckModify(ctx, qp, t, attr, mask)
}

// Absent returns the reasons of the providers that have no devices; nil if all have some.
func Absent() error { return seam.Absent() }

// Streams lists the iWARP devices, which package soft makes for package provider/iwarp: the devices of package soft
// with QPs over TCP. ENODEV on systems that have none. Package soft sets it.
var Streams func() ([]verbs.DriverDevice, error)

// StreamsListed is set by package provider/iwarp, which lists these devices always. Without it package soft lists them
// if VERBENA_TRANSPORT or VERBENA_PROVIDER is iwarp.
var StreamsListed bool
