package soft

import (
	"errors"
	"math"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/verbs"
)

// To a device in software every region is one with on-demand paging: the kernel brings a page when the device
// touches it. So ON_DEMAND needs nothing but to be allowed, and HUGETLB is a promise that nobody depends on. A region of
// the whole address space is not possible: an address that is not mapped, given by a peer, would end the process.

// odpCaps is what works on regions with on-demand paging: everything.
var odpCaps = verbs.ODPCaps{
	General: verbs.ODPSupport,
	RC:      verbs.ODPSend | verbs.ODPRecv | verbs.ODPWrite | verbs.ODPRead | verbs.ODPAtomic | verbs.ODPSRQRecv,
	UC:      verbs.ODPSend | verbs.ODPRecv | verbs.ODPWrite,
	UD:      verbs.ODPSend | verbs.ODPRecv | verbs.ODPSRQRecv,
}

// xrcODPCaps are those of XRC, which receives from SRQs only.
const xrcODPCaps = verbs.ODPSend | verbs.ODPWrite | verbs.ODPRead | verbs.ODPAtomic | verbs.ODPSRQRecv

// QueryDeviceEx describes the device further.
func (c *context) QueryDeviceEx(attr *verbs.DeviceAttrEx) error {
	attr.ODPCaps, attr.XRCODPCaps = odpCaps, xrcODPCaps
	attr.MaxDMSize = maxDMSize
	attr.TMCaps = tmCaps
	attr.CQModCaps = verbs.CQModerationCaps{MaxCQCount: math.MaxUint16, MaxCQPeriod: math.MaxUint16}
	attr.DeviceCapFlagsEx |= verbs.DeviceFlushGlobal | verbs.DeviceAtomicWrite
	c.dev.rawCaps(attr)
	attr.CompletionTimestampMask, attr.HCACoreClock = math.MaxUint64, 1e6 // ticks are nanoseconds
	return nil
}

// AdviseMR brings the pages of the SGEs into memory, if all of them are in order. It always does it at once.
func (p *pd) AdviseMR(advice verbs.AdviseMRAdvice, _ verbs.AdviseMRFlags, list []verbs.SGE) error {
	need := mr.Access(0)
	if advice == verbs.AdvicePrefetchWrite {
		need = mr.LocalWrite
	}
	p.ctx.dev.inline.RLock() // no region goes away meanwhile
	defer p.ctx.dev.inline.RUnlock()
	for i := range list {
		if _, err := p.advised(i, &list[i], need); err != nil {
			return err
		}
	}
	if advice == verbs.AdvicePrefetchNoFault {
		return nil // to bring only what is there already needs no work
	}
	for i := range list {
		b, err := p.advised(i, &list[i], need)
		if err != nil {
			return err
		}
		if err := prefetch(b, need != 0); err != nil {
			return fail(syscall.EFAULT, "SGE %d, address %#x, %d bytes: the memory cannot be brought in: %v", i, list[i].Addr, list[i].Length, err)
		}
	}
	return nil
}

// advised is the memory of an SGE.
func (p *pd) advised(i int, s *verbs.SGE, need mr.Access) ([]byte, error) {
	b, err := p.ctx.regions.Check(s.LKey, s.Addr, uint64(s.Length), p.num, need)
	if err == nil {
		return b, nil
	}
	errno := verbs.EINVAL
	switch {
	case errors.Is(err, mr.ErrPD), errors.Is(err, mr.ErrAccess):
		errno = syscall.EPERM
	case errors.Is(err, mr.ErrBounds):
		errno = syscall.EFAULT
	}
	return nil, fail(errno, "SGE %d, lkey %#x, address %#x, %d bytes: %v", i, s.LKey, s.Addr, s.Length, err)
}
