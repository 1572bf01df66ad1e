package verbs

// What the fake driver has beyond the interfaces that every driver must have.

func (c *fakeContext) QueryDeviceEx(attr *DeviceAttrEx) error {
	attr.MaxDMSize = 1000
	attr.ODPCaps.General = ODPSupport
	attr.CQModCaps = CQModerationCaps{MaxCQCount: 100, MaxCQPeriod: 200}
	attr.TSOCaps = TSOCaps{MaxTSO: 1000, SupportedQPTs: 1<<QPTypeRawPacket | 1<<QPTypeUD}
	attr.PacketPacingCaps = PacketPacingCaps{QPRateLimitMin: 10, QPRateLimitMax: 1000, SupportedQPTs: 1 << QPTypeRawPacket}
	attr.RSSCaps = RSSCaps{SupportedQPTs: 1 << QPTypeRawPacket, MaxRWQIndirectionTables: 10, MaxRWQIndirectionTableSize: 8, RxHashFieldsMask: uint64(rxHashAll), RxHashFunction: 1}
	return c.call("QueryDeviceEx")
}

func (c *fakeContext) AllocDM(length uint64, logAlign uint32) (DMDriver, error) {
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

func (p *fakePD) RegDMMR(dm DMDriver, offset, length uint64, access AccessFlags) (MRDriver, error) {
	drv, _ := p.RegMR(dm.(*fakeDM).mem[offset:offset+length], 0, access)
	return drv, p.call("RegDMMR")
}

func (p *fakePD) AllocNullMR() (MRDriver, error) {
	drv, _ := p.RegMR(nil, 0, 0)
	return drv, p.call("AllocNullMR")
}

func (p *fakePD) AdviseMR(AdviseMRAdvice, AdviseMRFlags, []SGE) error { return p.call("AdviseMR") }

func (p *fakePD) AllocMW(MWType) (MWDriver, error) {
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

// barePD and bareContext are drivers without any of it.
type barePD struct{ PDDriver }

type bareContext struct{ ContextDriver }
