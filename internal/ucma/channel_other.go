//go:build !linux

package ucma

import (
	"fmt"
	"net/netip"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// Channel exists on Linux only: Open fails, and no method is called.
type Channel struct{}

var errSystem = fmt.Errorf("the kernel's connection manager exists on Linux only: %w", syscall.Errno(verbs.EOPNOTSUPP))

// Open returns EOPNOTSUPP.
func Open() (*Channel, error) { return nil, errSystem }

// Close returns EOPNOTSUPP.
func (*Channel) Close() error { return errSystem }

// Next returns EOPNOTSUPP.
func (*Channel) Next() (*Event, error) { return nil, errSystem }

// Create returns EOPNOTSUPP.
func (*Channel) Create(uint64, uint16, verbs.QPType) (uint32, error) { return 0, errSystem }

// Destroy returns EOPNOTSUPP.
func (*Channel) Destroy(uint32) error { return errSystem }

// Bind returns EOPNOTSUPP.
func (*Channel) Bind(uint32, netip.AddrPort, uint32) error { return errSystem }

// Resolve returns EOPNOTSUPP.
func (*Channel) Resolve(uint32, netip.AddrPort, netip.AddrPort, uint32, uint32) error {
	return errSystem
}

// ResolveRoute returns EOPNOTSUPP.
func (*Channel) ResolveRoute(uint32, uint32) error { return errSystem }

// Query returns EOPNOTSUPP.
func (*Channel) Query(uint32) (Place, error) { return Place{}, errSystem }

// Listen returns EOPNOTSUPP.
func (*Channel) Listen(uint32, int) error { return errSystem }

// Connect returns EOPNOTSUPP.
func (*Channel) Connect(uint32, *Param, ECE) error { return errSystem }

// Accept returns EOPNOTSUPP.
func (*Channel) Accept(uint32, uint64, *Param, ECE) error { return errSystem }

// Reject returns EOPNOTSUPP.
func (*Channel) Reject(uint32, uint8, []byte) error { return errSystem }

// Disconnect returns EOPNOTSUPP.
func (*Channel) Disconnect(uint32) error { return errSystem }

// InitQPAttr returns EOPNOTSUPP.
func (*Channel) InitQPAttr(uint32, verbs.QPState) (verbs.QPAttr, verbs.QPAttrMask, error) {
	return verbs.QPAttr{}, 0, errSystem
}

// Notify returns EOPNOTSUPP.
func (*Channel) Notify(uint32, verbs.EventType) error { return errSystem }

// Join returns EOPNOTSUPP.
func (*Channel) Join(uint32, uint64, netip.AddrPort, uint32, uint16) (uint32, error) {
	return 0, errSystem
}

// Leave returns EOPNOTSUPP.
func (*Channel) Leave(uint32) error { return errSystem }

// SetOption returns EOPNOTSUPP.
func (*Channel) SetOption(uint32, int, int, []byte) error { return errSystem }
