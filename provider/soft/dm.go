package soft

import (
	"sync"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/verbs"
)

// Device memory of a software device is memory that nobody else has the address of.
const (
	maxDMSize  = 256 << 20 // of all of it
	maxDMAlign = 21        // log2; 2 MiB
)

// dmBudget is the device memory that is left.
type dmBudget struct {
	mu   sync.Mutex
	used uint64
}

func (b *dmBudget) take(n uint64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > maxDMSize-b.used {
		return fail(verbs.ENOMEM, "%d bytes are too many; the device has %d left of %d", n, maxDMSize-b.used, uint64(maxDMSize))
	}
	b.used += n
	return nil
}

func (b *dmBudget) giveBack(n uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
}

// dm is a DMDriver.
type dm struct {
	dev *device
	mem []byte
}

// AllocDM gets device memory.
func (c *context) AllocDM(length uint64, logAlign uint32) (verbs.DMDriver, error) {
	if logAlign > maxDMAlign {
		return nil, fail(verbs.EINVAL, "an alignment of 2^%d bytes is not possible; 2^0 to 2^%d are", logAlign, maxDMAlign)
	}
	if err := c.dev.dm.take(length); err != nil {
		return nil, err
	}
	align := uint64(1) << logAlign
	mem := make([]byte, length+align-1)
	skip := -uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) & (align - 1)
	return &dm{c.dev, mem[skip : skip+length : skip+length]}, nil
}

// CopyTo copies into device memory.
func (d *dm) CopyTo(offset uint64, src []byte) error {
	mr.Copy(d.mem[offset:], src)
	return nil
}

// CopyFrom copies out of device memory.
func (d *dm) CopyFrom(dst []byte, offset uint64) error {
	mr.Copy(dst, d.mem[offset:])
	return nil
}

// Free gives the memory back.
func (d *dm) Free() error {
	d.dev.dm.giveBack(uint64(len(d.mem)))
	d.mem = nil
	return nil
}

// RegDMMR registers device memory.
func (p *pd) RegDMMR(d verbs.DMDriver, offset, length uint64, access verbs.AccessFlags) (verbs.MRDriver, error) {
	return p.RegMR(d.(*dm).mem[offset:offset+length:offset+length], 0, access)
}

// AllocNullMR makes a null region.
func (p *pd) AllocNullMR() (verbs.MRDriver, error) {
	return p.add(&mr.Region{PD: p.num, Access: mr.LocalWrite, Null: true})
}
