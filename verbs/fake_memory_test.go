package verbs

import "net/netip"

// The optional interfaces of the fake driver.

func (c *fakeContext) AllocDM(length uint64, logAlign uint32) (DriverDM, error) {
	return &fakeDM{fakeContext: c, mem: make([]byte, length), align: logAlign}, c.call("AllocDM")
}

type fakeDM struct {
	*fakeContext
	mem   []byte
	align uint32
}

func (d *fakeDM) CopyTo(offset uint64, src []byte) error {
	copy(d.mem[offset:], src)
	return d.call("CopyTo")
}

func (d *fakeDM) CopyFrom(dst []byte, offset uint64) error {
	copy(dst, d.mem[offset:])
	return d.call("CopyFrom")
}

func (d *fakeDM) Free() error { return d.call("FreeDM") }

func (p *fakePD) RegDMMR(dm DriverDM, offset, length uint64, access AccessFlags) (DriverMR, error) {
	drv, _ := p.RegMR(dm.(*fakeDM).mem[offset:offset+length], 0, access)
	return drv, p.call("RegDMMR")
}

func (p *fakePD) AllocNullMR() (DriverMR, error) {
	drv, _ := p.RegMR(nil, 0, 0)
	return drv, p.call("AllocNullMR")
}

func (p *fakePD) AdviseMR(AdviseMRAdvice, AdviseMRFlags, []SGE) error { return p.call("AdviseMR") }

func (p *fakePD) AllocMW(MWType) (DriverMW, error) {
	err := p.call("AllocMW")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nextKey += 0x100
	return &fakeMW{p.fakeContext, p.nextKey}, err
}

type fakeMW struct {
	*fakeContext
	key uint32
}

func (w *fakeMW) RKey() uint32   { return w.key }
func (w *fakeMW) Dealloc() error { return w.call("DeallocMW") }

// bareContext, barePD and bareCQ implement only the mandatory driver interfaces.
type (
	requiredContext interface {
		Close() error
		NumCompVectors() int
		QueryDevice() (DeviceAttr, error)
		QueryPort(port uint8) (PortAttr, error)
		GIDTable(port uint8) ([]GIDEntry, error)
		PKeyTable(port uint8) ([]uint16, error)
		SelectGID(port uint8, peer netip.Addr) (GIDChoice, error)
		AllocPD() (DriverPD, error)
		CreateCQ(cqe int, opts *CQOptions, up DriverCQEvents) (DriverCQ, error)
	}
	bareContext struct {
		requiredContext
		DriverUnsupported
	}

	requiredPD interface {
		Dealloc() error
		RegMR(buf []byte, iova uint64, access AccessFlags) (DriverMR, error)
		CreateAH(attr AHAttr) (DriverHandle, error)
		CreateQP(init *QPInitAttr, up DriverQPEvents) (DriverQP, error)
	}
	barePD struct {
		requiredPD
		DriverUnsupported
	}

	requiredCQ interface {
		Cap() int
		Poll(wcs []WC) (int, error)
		ReqNotify(solicitedOnly bool) error
		Destroy() error
	}
	bareCQ struct {
		requiredCQ
		DriverUnsupported
	}
)

var (
	_ DriverContext = bareContext{}
	_ DriverPD      = barePD{}
	_ DriverCQ      = bareCQ{}
)
