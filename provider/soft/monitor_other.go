//go:build !linux

package soft

// watchInterfaces calls changed now and then, until stop has returned.
func watchInterfaces(changed func()) (stop func()) { return pollInterfaces(changed) }
