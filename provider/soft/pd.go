package soft

import (
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/verbs"
)

// pd is a PDDriver: a number that its members share.
type pd struct {
	ctx *context
	num uint32
}

// Dealloc has nothing to give back.
func (p *pd) Dealloc() error {
	p.ctx.dev.census.pds.remove(p)
	return nil
}

// memoryAccess is what a region of software memory can have.
const memoryAccess = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic |
	verbs.AccessMWBind | verbs.AccessZeroBased | verbs.AccessFlushGlobal

// naturalAccess is what makes no difference here: see odp.go, and packets are never handled out of order.
const naturalAccess = verbs.AccessOnDemand | verbs.AccessHugeTLB | verbs.AccessRelaxedOrdering

func checkAccess(access verbs.AccessFlags) error {
	if no := access &^ (memoryAccess | naturalAccess); no != 0 {
		return fail(verbs.EOPNOTSUPP, "%v is not possible; %v are", no, memoryAccess|naturalAccess)
	}
	return nil
}

// RegMR registers memory.
func (p *pd) RegMR(buf []byte, iova uint64, access verbs.AccessFlags) (verbs.MRDriver, error) {
	if err := checkAccess(access); err != nil {
		return nil, err
	}
	return p.add(&mr.Region{PD: p.num, Access: mr.Access(access & memoryAccess), Base: iova, Buf: buf, Share: shareOf(buf)})
}

func (p *pd) add(r *mr.Region) (verbs.MRDriver, error) {
	if err := p.ctx.regions.Add(r); err != nil {
		return nil, verbsError("", err)
	}
	return &region{ctx: p.ctx, r: r}, nil
}

// region is an MRDriver. The verbs layer serialises its calls.
type region struct {
	ctx *context
	r   *mr.Region
}

// LKey is the key for local work requests.
func (m *region) LKey() uint32 { return m.r.LKey }

// RKey is the key for peers.
func (m *region) RKey() uint32 { return m.r.RKey }

// Rereg replaces the region under its keys.
func (m *region) Rereg(p verbs.PDDriver, buf []byte, iova uint64, access *verbs.AccessFlags) error {
	next := *m.r
	next.PD, next.Buf, next.Base, next.Share = p.(*pd).num, buf, iova, shareOf(buf)
	if access != nil {
		if err := checkAccess(*access); err != nil {
			return err
		}
		next.Access = mr.Access(*access & memoryAccess)
	}
	if err := m.ctx.regions.Replace(m.r, &next); err != nil {
		return verbsError("", err)
	}
	old := m.r
	m.r = &next
	m.ctx.settle()
	unshare(old)
	return nil
}

// Dereg forgets the region, unless memory windows are bound to it. Nothing touches its memory afterwards (V-MR-20).
func (m *region) Dereg() error {
	if err := m.ctx.regions.Remove(m.r); err != nil {
		return verbsError("", err)
	}
	m.ctx.settle()
	unshare(m.r)
	return nil
}

// shareOf is what lets other processes of this host read the memory of a region; nil if it is not from AllocBuffer.
func shareOf(buf []byte) any {
	file, off := verbs.BufferFile(buf)
	if file == nil {
		return nil
	}
	st, err := file.Stat()
	if err != nil {
		return nil
	}
	return link.NewShare(file, st.Size(), off)
}

// unshare says that a region is gone. No shard uses it any more; other processes may be reading it.
func unshare(r *mr.Region) {
	if s, ok := r.Share.(*link.Share); ok {
		s.Close()
	}
}

// settle returns when nobody uses a region any more that has left the table: no shard, and no poster of inline data.
func (c *context) settle() {
	c.eng.Quiesce()
	c.dev.inline.Lock()
	c.dev.inline.Unlock() //nolint:staticcheck // waits for the readers
}
