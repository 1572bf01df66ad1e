package verbs

// PD is a protection domain: its members work with each other only (struct ibv_pd). It is safe for concurrent use.
type PD struct {
	ctx      *Context
	drv      DriverPD
	lifetime lifetime

	base    *PD // itself; for a parent domain or an imported PD the original PD
	from    *PD // the original of an imported PD, else nil
	handle  uint32
	td      *TD // of a parent domain; may be nil
	context any
}

// AllocPD allocates a protection domain (ibv_alloc_pd). Close frees it. ENOMEM without resources.
func (vctx *Context) AllocPD() (*PD, error) {
	if err := vctx.use("alloc_pd", kindPD); err != nil {
		return nil, err
	}
	drv, err := vctx.drv.AllocPD()
	if err != nil {
		vctx.lifetime.drop(kindPD)
		return nil, driverError("alloc_pd", vctx.obj(), err)
	}
	pd := &PD{ctx: vctx, drv: drv}
	pd.base = pd
	return pd, nil
}

// Context returns the context of the PD.
func (pd *PD) Context() *Context { return pd.ctx }

// domain returns the PD that all members of one protection domain share. It is nil for a nil PD.
func (pd *PD) domain() *PD {
	if pd == nil {
		return nil
	}
	return pd.base
}

// PDContext returns ParentDomainInitAttr.PDContext; nil for a plain PD.
func (pd *PD) PDContext() any { return pd.context }

func (pd *PD) obj() string {
	if pd.from != nil {
		return "imported PD of " + pd.ctx.obj()
	}
	if pd.base != pd {
		return "parent domain of " + pd.ctx.obj()
	}
	return "PD of " + pd.ctx.obj()
}

// Close deallocates the PD (ibv_dealloc_pd). EBUSY while AHs, MRs, MWs, QPs, SRQs, parent domains or imports use it;
// nothing has changed then.
func (pd *PD) Close() error {
	if pd.from != nil {
		return pd.unimport()
	}
	if pd.base != pd {
		return pd.closeParent()
	}
	if err := pd.lifetime.close("dealloc_pd", pd); err != nil {
		return err
	}
	if err := destroyed(pd.drv.Dealloc()); err != nil {
		pd.lifetime.reopen()
		return driverError("dealloc_pd", pd.obj(), err)
	}
	unexport(&pd.handle, exports.pds)
	pd.ctx.lifetime.drop(kindPD)
	return pd.ctx.ended("dealloc_pd", pd)
}

// TD is a thread domain: the program guarantees that one goroutine at a time uses the objects created with it (struct
// ibv_td). It is a part of a parent domain.
type TD struct {
	ctx      *Context
	lifetime lifetime
}

// AllocTD allocates a thread domain (ibv_alloc_td, struct ibv_td_init_attr). Close frees it. EIO once the device was
// removed.
func (vctx *Context) AllocTD() (*TD, error) {
	if err := vctx.use("alloc_td", kindTD); err != nil {
		return nil, err
	}
	return &TD{ctx: vctx}, nil
}

// Context returns the context of the TD.
func (td *TD) Context() *Context { return td.ctx }

func (td *TD) obj() string { return "TD of " + td.ctx.obj() }

// Close deallocates the TD (ibv_dealloc_td). EBUSY while parent domains use it; nothing has changed then.
func (td *TD) Close() error {
	if err := td.lifetime.close("dealloc_td", td); err != nil {
		return err
	}
	td.ctx.lifetime.drop(kindTD)
	return nil
}

// ParentDomainInitAttr holds the attributes of a new parent domain (struct ibv_parent_domain_init_attr). The
// allocator hooks of the C structure have no counterpart: queues are in Go's memory.
type ParentDomainInitAttr struct {
	PD        *PD // must not be a parent domain
	TD        *TD // may be nil
	PDContext any // returned by PD.PDContext
}

// AllocParentDomain allocates a parent domain: a PD combined with a thread domain (ibv_alloc_parent_domain). It may
// be used in place of a PD; its members work with those of the PD. It must be closed before the PD and the TD.
//
// With a TD, the batches of a CQ and the QPEx of a QP created in the parent domain do not lock: two goroutines must
// not be between StartPoll and EndPoll, or between Start and Complete, at once. All other calls stay safe for
// concurrent use.
//
// Errors: EINVAL without a PD, for a PD that is a parent domain or imported, or for objects of another context. EIO
// once the device was removed.
func (vctx *Context) AllocParentDomain(init *ParentDomainInitAttr) (*PD, error) {
	const op = "alloc_parent_domain"
	switch {
	case init == nil || init.PD == nil:
		return nil, newError(op, vctx.obj(), EINVAL, "the PD is nil")
	case init.PD.ctx != vctx || init.TD != nil && init.TD.ctx != vctx:
		return nil, newError(op, vctx.obj(), EINVAL, "the PD or the TD belongs to another context")
	case init.PD.base != init.PD:
		return nil, newError(op, vctx.obj(), EINVAL, "the PD is a parent domain itself, or imported")
	}
	if err := vctx.checkRemoved(op, vctx); err != nil {
		return nil, err
	}
	if !init.PD.lifetime.use(kindParentDomain) {
		return nil, errClosed(op, init.PD.obj())
	}
	if init.TD != nil && !init.TD.lifetime.use(kindParentDomain) {
		init.PD.lifetime.drop(kindParentDomain)
		return nil, errClosed(op, init.TD.obj())
	}
	return &PD{ctx: vctx, drv: init.PD.drv, base: init.PD, td: init.TD, context: init.PDContext}, nil
}

// closeParent closes a parent domain.
func (pd *PD) closeParent() error {
	if err := pd.lifetime.close("dealloc_pd", pd); err != nil {
		return err
	}
	unexport(&pd.handle, exports.pds)
	if pd.td != nil {
		pd.td.lifetime.drop(kindParentDomain)
	}
	pd.base.lifetime.drop(kindParentDomain)
	return nil
}
