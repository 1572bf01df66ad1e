package verbs

// PD is a protection domain: its members work with each other only (struct ibv_pd). It is safe for concurrent use.
type PD struct {
	ctx  *Context
	drv  PDDriver
	life life

	base    *PD // itself, or the PD of a parent domain, or of what an imported PD comes from
	from    *PD // of an imported PD
	handle  uint32
	td      *TD // of a parent domain; may be nil
	context any
}

// AllocPD makes a protection domain (ibv_alloc_pd). ENOMEM without resources.
func (ctx *Context) AllocPD() (*PD, error) {
	if !ctx.life.use(kindPD) {
		return nil, errClosed("alloc_pd", ctx.obj())
	}
	drv, err := ctx.drv.AllocPD()
	if err != nil {
		ctx.life.drop(kindPD)
		return nil, driverError("alloc_pd", ctx.obj(), err)
	}
	pd := &PD{ctx: ctx, drv: drv}
	pd.base = pd
	return pd, nil
}

// Context is the context that the PD belongs to.
func (pd *PD) Context() *Context { return pd.ctx }

// domain is what members must share; nil for that of an object that was not made by a call.
func (pd *PD) domain() *PD {
	if pd == nil {
		return nil
	}
	return pd.base
}

// PDContext is ParentDomainInitAttr.PDContext; nil for a plain PD.
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

// Close deallocates the PD (ibv_dealloc_pd). EBUSY while it has AHs, MRs, MWs, QPs or SRQs, or a parent domain is
// made of it; it is then as before.
func (pd *PD) Close() error {
	if pd.from != nil {
		return pd.unimport()
	}
	if pd.base != pd {
		return pd.closeParent()
	}
	if err := pd.life.end("dealloc_pd", pd.obj()); err != nil {
		return err
	}
	if err := destroyed(pd.drv.Dealloc()); err != nil {
		pd.life.revive()
		return driverError("dealloc_pd", pd.obj(), err)
	}
	unexport(&pd.handle, exports.pds)
	pd.ctx.life.drop(kindPD)
	return nil
}
