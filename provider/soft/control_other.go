//go:build !linux

package soft

// controlled does nothing on this system, which has no abstract sockets.
var controlled controller

type controller struct{}

func (controller) add(*device)                   {}
func (controller) remove(*device) (ended func()) { return func() {} }
