// Protection domains, regions, windows, device memory.
#include "lib.h"

static struct vb_pd *new_pd(struct ibv_context *x)
{
	struct vb_pd *p = calloc(1, sizeof *p);

	if (!p)
		VB_FAIL(ENOMEM, NULL);
	p->o.context = x;
	p->gen = vb_gen(VB_CONTEXT(x));
	vb_signals();
	return p;
}

static struct ibv_pd *made_pd(struct vb_pd *p, int e)
{
	if (!e)
		return &p->o;
	free(p);
	VB_FAIL(e, NULL);
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *x)
{
	struct vb_pd *p = new_pd(x);

	if (!p)
		return NULL;
	return made_pd(p, VB_DEAD(p) ? EIO : vb_engine->alloc_pd(VB_CONTEXT(x)->h, &p->o.handle, &p->h));
}

struct ibv_pd *ibv_import_pd(struct ibv_context *x, uint32_t handle)
{
	struct vb_pd *p = new_pd(x);

	if (!p)
		return NULL;
	p->o.handle = handle;
	return made_pd(p, VB_DEAD(p) ? EIO : vb_engine->import_pd(VB_CONTEXT(x)->h, handle, &p->h));
}

struct ibv_pd *vb_alloc_parent_domain(struct ibv_context *x, struct ibv_parent_domain_init_attr *a)
{
	// The last: a virtual machine with encrypted memory may give buffers that are not. All memory is ordinary here.
	const uint32_t known = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT |
			       IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC;

	if (!a->pd || a->comp_mask & ~known)
		VB_FAIL(EINVAL, NULL);
	struct vb_pd *p = new_pd(x);
	if (!p)
		return NULL;
	int e = VB_DEAD(p) || VB_LOST(pd, a->pd) || VB_LOST(td, a->td) ? EIO : 0;
	if (!e)
		e = vb_engine->alloc_parent_domain(VB_CONTEXT(x)->h, VB(pd, a->pd)->h, VB_H(td, a->td), &p->h);
	return made_pd(p, e);
}

int ibv_dealloc_pd(struct ibv_pd *o)
{
	struct vb_pd *p = VB(pd, o);

	return vb_end(p);
}

void ibv_unimport_pd(struct ibv_pd *o) { ibv_dealloc_pd(o); }

struct ibv_td *vb_alloc_td(struct ibv_context *x, struct ibv_td_init_attr *a)
{
	struct vb_context *c = VB_CONTEXT(x);

	if (a && a->comp_mask)
		VB_FAIL(EINVAL, NULL);
	struct vb_td *t = calloc(1, sizeof *t);
	if (!t)
		VB_FAIL(ENOMEM, NULL);
	t->o.context = x;
	t->gen = vb_gen(c);
	int e = VB_DEAD(t) ? EIO : vb_engine->alloc_td(c->h, &t->h);
	if (!e)
		return &t->o;
	free(t);
	VB_FAIL(e, NULL);
}

int vb_dealloc_td(struct ibv_td *o)
{
	struct vb_td *t = VB(td, o);

	return vb_end(t);
}

static struct vb_mr *new_mr(struct ibv_pd *pd, void *addr, size_t length)
{
	struct vb_mr *m = calloc(1, sizeof *m);

	if (!m)
		VB_FAIL(ENOMEM, NULL);
	m->o = (struct ibv_mr){.context = pd->context, .pd = pd, .addr = addr, .length = length};
	m->gen = VB(pd, pd)->gen;
	vb_signals();
	return m;
}

static struct ibv_mr *made_mr(struct vb_mr *m, const struct vrb_mr *keys, int e)
{
	if (e) {
		free(m);
		VB_FAIL(e, NULL);
	}
	m->o.handle = keys->handle;
	m->o.lkey = keys->lkey;
	m->o.rkey = keys->rkey;
	return &m->o;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	struct vrb_mr keys = {};
	struct vb_mr *m = new_mr(pd, addr, length);

	if (!m)
		return NULL;
	int e = VB_DEAD(m) ? EIO : vb_engine->reg_mr(VB(pd, pd)->h, addr, length, iova, access, &keys, &m->h);
	return made_mr(m, &keys, e);
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, iova, access);
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, access);
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
	VB_FAIL(EOPNOTSUPP, NULL);
}

struct ibv_mr *vb_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length, unsigned int access)
{
	struct vrb_mr keys = {};
	struct vb_mr *m = new_mr(pd, NULL, length);

	if (!m)
		return NULL;
	int e = VB_DEAD(m) || VB_DEAD(VB(dm, dm)) ? EIO : 0;
	if (!e)
		e = vb_engine->reg_dm_mr(VB(pd, pd)->h, VB(dm, dm)->h, offset, length, access, &keys, &m->h);
	return made_mr(m, &keys, e);
}

struct ibv_mr *vb_alloc_null_mr(struct ibv_pd *pd)
{
	struct vrb_mr keys = {};
	struct vb_mr *m = new_mr(pd, NULL, SIZE_MAX);

	if (!m)
		return NULL;
	return made_mr(m, &keys, VB_DEAD(m) ? EIO : vb_engine->alloc_null_mr(VB(pd, pd)->h, &keys, &m->h));
}

struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	struct vrb_mr keys = {};
	struct vb_mr *m = new_mr(pd, NULL, 0);

	if (!m)
		return NULL;
	int e = VB_DEAD(m) ? EIO : vb_engine->import_mr(VB(pd, pd)->h, handle, &keys, &m->h);
	m->o.addr = keys.addr;
	m->o.length = keys.length;
	return made_mr(m, &keys, e);
}

int ibv_rereg_mr(struct ibv_mr *o, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct vb_mr *m = VB(mr, o);
	struct vrb_mr keys = {};
	int code = IBV_REREG_MR_ERR_INPUT;

	if (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED || (flags & IBV_REREG_MR_CHANGE_TRANSLATION && (!length || !addr)) ||
	    (access && !(flags & IBV_REREG_MR_CHANGE_ACCESS)))
		VB_FAIL(EINVAL, code);
	if (VB_DEAD(m))
		VB_FAIL(EIO, IBV_REREG_MR_ERR_CMD);
	void *domain = flags & IBV_REREG_MR_CHANGE_PD ? VB_H(pd, pd) : NULL;
	int e = vb_engine->rereg_mr(m->h, flags, domain, addr, length, access, &keys, &code);
	if (e)
		VB_FAIL(e, code);
	o->lkey = keys.lkey;
	o->rkey = keys.rkey;
	if (flags & IBV_REREG_MR_CHANGE_PD)
		o->pd = pd;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		o->addr = addr;
		o->length = length;
	}
	return 0;
}

int ibv_dereg_mr(struct ibv_mr *o)
{
	struct vb_mr *m = VB(mr, o);

	return vb_end(m);
}

void ibv_unimport_mr(struct ibv_mr *o) { ibv_dereg_mr(o); }

int vb_advise_mr(struct ibv_pd *pd, enum ib_uverbs_advise_mr_advice advice, uint32_t flags, struct ibv_sge *list,
		 uint32_t count)
{
	struct vb_pd *p = VB(pd, pd);

	return VB_DEAD(p) ? EIO : vb_engine->advise_mr(p->h, advice, flags, list, count);
}

static int copy_to_dm(struct ibv_dm *o, uint64_t offset, const void *from, size_t length)
{
	struct vb_dm *d = VB(dm, o);

	return VB_DEAD(d) ? EIO : vb_engine->copy_to_dm(d->h, offset, from, length);
}

static int copy_from_dm(void *to, struct ibv_dm *o, uint64_t offset, size_t length)
{
	struct vb_dm *d = VB(dm, o);

	return VB_DEAD(d) ? EIO : vb_engine->copy_from_dm(to, d->h, offset, length);
}

static struct vb_dm *new_dm(struct ibv_context *x)
{
	struct vb_dm *d = calloc(1, sizeof *d);

	if (!d)
		VB_FAIL(ENOMEM, NULL);
	d->o = (struct ibv_dm){.context = x, .memcpy_to_dm = copy_to_dm, .memcpy_from_dm = copy_from_dm};
	d->gen = vb_gen(VB_CONTEXT(x));
	return d;
}

static struct ibv_dm *made_dm(struct vb_dm *d, int e)
{
	if (!e)
		return &d->o;
	free(d);
	VB_FAIL(e, NULL);
}

struct ibv_dm *vb_alloc_dm(struct ibv_context *x, struct ibv_alloc_dm_attr *a)
{
	if (a->comp_mask)
		VB_FAIL(EINVAL, NULL);
	struct vb_dm *d = new_dm(x);
	if (!d)
		return NULL;
	return made_dm(d, VB_DEAD(d) ? EIO : vb_engine->alloc_dm(VB_CONTEXT(x)->h, a->length, a->log_align_req,
								  &d->o.handle, &d->h));
}

int vb_free_dm(struct ibv_dm *o)
{
	struct vb_dm *d = VB(dm, o);

	return vb_end(d);
}

struct ibv_dm *ibv_import_dm(struct ibv_context *x, uint32_t handle)
{
	struct vb_dm *d = new_dm(x);

	if (!d)
		return NULL;
	d->o.handle = handle;
	return made_dm(d, VB_DEAD(d) ? EIO : vb_engine->import_dm(VB_CONTEXT(x)->h, handle, &d->h));
}

void ibv_unimport_dm(struct ibv_dm *o) { vb_free_dm(o); }

struct ibv_mw *vb_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct vb_mw *w = calloc(1, sizeof *w);

	if (!w)
		VB_FAIL(ENOMEM, NULL);
	w->o = (struct ibv_mw){.context = pd->context, .pd = pd, .type = type};
	w->gen = VB(pd, pd)->gen;
	int e = VB_DEAD(w) ? EIO : vb_engine->alloc_mw(VB(pd, pd)->h, type, &w->o.rkey, &w->h);
	if (!e)
		return &w->o;
	free(w);
	VB_FAIL(e, NULL);
}

int vb_bind_mw(struct ibv_qp *qp, struct ibv_mw *o, struct ibv_mw_bind *bind)
{
	struct vb_mw *w = VB(mw, o);
	const struct ibv_mw_bind_info *info = &bind->bind_info;
	struct vrb_wr wr = {.wr_id = bind->wr_id, .flags = bind->send_flags, .mr = VB_H(mr, info->mr),
			    .bind_addr = info->addr, .bind_length = info->length, .bind_access = info->mw_access_flags};

	return VB_DEAD(w) || VB_DEAD(VB(qp, qp)) ? EIO : vb_engine->bind_mw(VB(qp, qp)->h, w->h, &wr, &o->rkey);
}

int vb_dealloc_mw(struct ibv_mw *o)
{
	struct vb_mw *w = VB(mw, o);

	return vb_end(w);
}

// The engine finds the handles behind these structures, and the generations behind the handles.
#define VB_PLACE(kind, at) \
	_Static_assert(offsetof(struct vb_##kind, h) == (at) && offsetof(struct vb_##kind, gen) == (at) + 8, #kind)
VB_PLACE(mr, 48);
VB_PLACE(mw, 32);
VB_PLACE(ah, 24);
VB_PLACE(counters, 8);
VB_PLACE(action, 8);
