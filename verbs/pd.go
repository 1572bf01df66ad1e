package verbs

// PD is a protection domain: its members work with each other only (struct ibv_pd). It is safe for concurrent use.
type PD struct {
	ctx  *Context
	drv  PDDriver
	life life
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
	return &PD{ctx: ctx, drv: drv}, nil
}

// Context is the context that the PD belongs to.
func (pd *PD) Context() *Context { return pd.ctx }

func (pd *PD) obj() string { return "PD of " + pd.ctx.obj() }

// Close deallocates the PD (ibv_dealloc_pd). EBUSY while it has AHs, MRs, MWs, QPs or SRQs; it is then as before.
func (pd *PD) Close() error {
	if err := pd.life.end("dealloc_pd", pd.obj()); err != nil {
		return err
	}
	if err := pd.drv.Dealloc(); err != nil {
		pd.life.revive()
		return driverError("dealloc_pd", pd.obj(), err)
	}
	pd.ctx.life.drop(kindPD)
	return nil
}
