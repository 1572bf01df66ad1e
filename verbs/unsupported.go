package verbs

import "net/netip"

// UnsupportedContext answers EOPNOTSUPP to every call of ContextDriver. A driver embeds it and overrides what it has.
type UnsupportedContext struct{}

// Close answers EOPNOTSUPP.
func (UnsupportedContext) Close() error { return ErrNotSupported }

// NumCompVectors is 1, which is the least there can be.
func (UnsupportedContext) NumCompVectors() int { return 1 }

// QueryDevice answers EOPNOTSUPP.
func (UnsupportedContext) QueryDevice() (DeviceAttr, error) { return DeviceAttr{}, ErrNotSupported }

// QueryPort answers EOPNOTSUPP.
func (UnsupportedContext) QueryPort(uint8) (PortAttr, error) { return PortAttr{}, ErrNotSupported }

// GIDTable answers EOPNOTSUPP.
func (UnsupportedContext) GIDTable(uint8) ([]GIDEntry, error) { return nil, ErrNotSupported }

// PKeyTable answers EOPNOTSUPP.
func (UnsupportedContext) PKeyTable(uint8) ([]uint16, error) { return nil, ErrNotSupported }

// SelectGID answers EOPNOTSUPP.
func (UnsupportedContext) SelectGID(uint8, netip.Addr) (GIDChoice, error) {
	return GIDChoice{}, ErrNotSupported
}

// AllocPD answers EOPNOTSUPP.
func (UnsupportedContext) AllocPD() (PDDriver, error) { return nil, ErrNotSupported }

// CreateCQ answers EOPNOTSUPP.
func (UnsupportedContext) CreateCQ(int, int, CQUpcalls) (CQDriver, error) {
	return nil, ErrNotSupported
}

// UnsupportedPD answers EOPNOTSUPP to every call of PDDriver.
type UnsupportedPD struct{}

// Dealloc answers EOPNOTSUPP.
func (UnsupportedPD) Dealloc() error { return ErrNotSupported }

// RegMR answers EOPNOTSUPP.
func (UnsupportedPD) RegMR([]byte, uint64, AccessFlags) (MRDriver, error) {
	return nil, ErrNotSupported
}

// CreateAH answers EOPNOTSUPP.
func (UnsupportedPD) CreateAH(AHAttr) (AHDriver, error) { return nil, ErrNotSupported }

// CreateSRQ answers EOPNOTSUPP.
func (UnsupportedPD) CreateSRQ(*SRQAttr, SRQUpcalls) (SRQDriver, error) {
	return nil, ErrNotSupported
}

// CreateQP answers EOPNOTSUPP.
func (UnsupportedPD) CreateQP(*QPDriverInit, QPUpcalls) (QPDriver, error) {
	return nil, ErrNotSupported
}

// UnsupportedMR answers EOPNOTSUPP to what MRDriver has besides keys and Dereg.
type UnsupportedMR struct{}

// Rereg answers EOPNOTSUPP.
func (UnsupportedMR) Rereg(PDDriver, []byte, uint64, *AccessFlags) error { return ErrNotSupported }

// UnsupportedCQ answers EOPNOTSUPP to the calls of CQDriver that a device may lack.
type UnsupportedCQ struct{}

// Resize answers EOPNOTSUPP.
func (UnsupportedCQ) Resize(int) error { return ErrNotSupported }

// UnsupportedSRQ answers EOPNOTSUPP to the calls of SRQDriver that a device may lack.
type UnsupportedSRQ struct{}

// Modify answers EOPNOTSUPP.
func (UnsupportedSRQ) Modify(*SRQAttr, SRQAttrMask) error { return ErrNotSupported }

// Query answers EOPNOTSUPP.
func (UnsupportedSRQ) Query() (SRQAttr, error) { return SRQAttr{}, ErrNotSupported }

// UnsupportedQP answers EOPNOTSUPP to the calls of QPDriver that a device may lack.
type UnsupportedQP struct{}

// AttachMcast answers EOPNOTSUPP.
func (UnsupportedQP) AttachMcast(GID) error { return ErrNotSupported }

// DetachMcast answers EOPNOTSUPP.
func (UnsupportedQP) DetachMcast(GID) error { return ErrNotSupported }
