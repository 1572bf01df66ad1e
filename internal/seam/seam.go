// Package seam connects package verbs with the packages of this module that need more of it than programs may have:
// internal/driver and internal/gsi, which give the functions below their types. It owns nothing and imports nothing, so
// that verbs can import it. Package verbs sets the functions when it is initialised.
package seam

var (
	// Register makes a verbs.DriverProvider known.
	Register func(provider any)
	// NewDevice makes a *verbs.Device of a verbs.DriverDevice.
	NewDevice func(drv any) any
	// Of is the driver's object of an object of package verbs; nil for a nil pointer.
	Of func(object any) any
	// CreateQP makes a QP (*verbs.QP) in a *verbs.PD, of a *verbs.QPInitAttr, by a
	// func(*verbs.QPInitAttr, verbs.DriverQPEvents) (verbs.DriverQP, error). op names the operation in errors.
	CreateQP func(op string, pd, init, create any) (any, error)
)
