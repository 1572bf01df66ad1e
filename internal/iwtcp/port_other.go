//go:build !linux

package iwtcp

import "net/netip"

// setAnyPort does nothing: other systems do not have the option.
func setAnyPort(uintptr) {}

// PortIsFree is true: no system but Linux has iWARP devices.
func PortIsFree(netip.AddrPort) bool { return true }
