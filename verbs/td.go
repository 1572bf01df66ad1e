package verbs

// TD is a thread domain: it promises that one goroutine at a time uses what is made with it (struct ibv_td). It is made
// part of a parent domain.
type TD struct {
	ctx  *Context
	life life
}

// TDInitAttr says what TD to make (struct ibv_td_init_attr).
type TDInitAttr struct {
	CompMask uint32 // 0
}

// AllocTD makes a thread domain (ibv_alloc_td). init may be nil. EINVAL if it has anything in it.
func (ctx *Context) AllocTD(init *TDInitAttr) (*TD, error) {
	const op = "alloc_td"
	if init != nil && init.CompMask != 0 {
		return nil, newError(op, ctx.obj(), EINVAL, "unknown attributes %#x; there are none", init.CompMask)
	}
	if !ctx.life.use(kindTD) {
		return nil, errClosed(op, ctx.obj())
	}
	return &TD{ctx: ctx}, nil
}

// Context is the context that the TD belongs to.
func (td *TD) Context() *Context { return td.ctx }

func (td *TD) obj() string { return "TD of " + td.ctx.obj() }

// Close deallocates the TD (ibv_dealloc_td). EBUSY while parent domains use it; it is then as before.
func (td *TD) Close() error {
	if err := td.life.end("dealloc_td", td.obj()); err != nil {
		return err
	}
	td.ctx.life.drop(kindTD)
	return nil
}

// ParentDomainInitAttr says what parent domain to make (struct ibv_parent_domain_init_attr). The C structure's hooks
// for allocating memory have no counterpart: queues are in Go's memory.
type ParentDomainInitAttr struct {
	PD        *PD // not a parent domain itself
	TD        *TD // may be nil
	PDContext any // anything; PD.PDContext returns it
}

// AllocParentDomain makes a domain that adds a thread domain to a PD (ibv_alloc_parent_domain). It can be used wherever
// a PD can, and its members work with those of the PD. Close frees it, before the PD and the TD may be closed.
//
// With a TD, a CQEx or QPEx that is made in it does not lock, so that two goroutines must not use it at once: StartPoll
// to EndPoll, Start to Complete. Everything else stays safe for concurrent use. EINVAL without a PD, for a PD that is a
// parent domain, or for objects of another context.
func (ctx *Context) AllocParentDomain(init *ParentDomainInitAttr) (*PD, error) {
	const op = "alloc_parent_domain"
	switch {
	case init == nil || init.PD == nil:
		return nil, newError(op, ctx.obj(), EINVAL, "the PD is missing")
	case init.PD.ctx != ctx || init.TD != nil && init.TD.ctx != ctx:
		return nil, newError(op, ctx.obj(), EINVAL, "PD or TD belong to another context")
	case init.PD.base != init.PD:
		return nil, newError(op, ctx.obj(), EINVAL, "the PD is a parent domain itself, or imported")
	}
	if !init.PD.life.use(kindParentDomain) {
		return nil, errClosed(op, init.PD.obj())
	}
	if init.TD != nil && !init.TD.life.use(kindParentDomain) {
		init.PD.life.drop(kindParentDomain)
		return nil, errClosed(op, init.TD.obj())
	}
	return &PD{ctx: ctx, drv: init.PD.drv, base: init.PD, td: init.TD, context: init.PDContext}, nil
}

// closeParent is Close for a parent domain.
func (pd *PD) closeParent() error {
	if err := pd.life.end("dealloc_pd", pd.obj()); err != nil {
		return err
	}
	if pd.td != nil {
		pd.td.life.drop(kindParentDomain)
	}
	pd.base.life.drop(kindParentDomain)
	return nil
}
