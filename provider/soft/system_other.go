//go:build !linux

package soft

// populatePages does nothing: the advice is a hint.
func populatePages([]byte, bool) error { return nil }

// linkSpeed returns 0: unknown.
func linkSpeed(string) int { return 0 }

// watchInterfaces calls changed once each pollInterval until stop returns.
func watchInterfaces(changed func()) (stop func()) { return pollInterfaces(changed) }

// controlled does nothing: this system has no abstract sockets.
var controlled controller

// controller is the set of devices that tools see.
type controller struct{}

func (controller) add(*device)                   {}
func (controller) remove(*device) (ended func()) { return func() {} }
