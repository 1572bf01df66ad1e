//go:build !linux && !darwin && !windows

package udp

import "net/netip"

func dontFragment(uintptr, netip.Addr) {}
