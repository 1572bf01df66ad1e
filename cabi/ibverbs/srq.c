// Shared receive queues and XRC domains.
#include "lib.h"

static struct vb_srq *new_srq(struct ibv_context *x, struct ibv_pd *pd, void *srq_context)
{
	struct vb_srq *s = calloc(1, sizeof *s);

	if (!s)
		VB_FAIL(ENOMEM, NULL);
	s->o.context = x;
	s->o.pd = pd;
	s->o.srq_context = srq_context;
	s->gen = vb_gen(VB_CONTEXT(x));
	pthread_mutex_init(&s->o.mutex, NULL);
	pthread_cond_init(&s->o.cond, NULL);
	return s;
}

// make creates the engine's part, and returns the actual sizes in attr.
static struct ibv_srq *make(struct vb_srq *s, struct vrb_srq_init *init, struct ibv_srq_attr *attr)
{
	struct vb_context *c = VB_CONTEXT(s->o.context);

	init->context = s;
	init->max_wr = attr->max_wr;
	init->max_sge = attr->max_sge;
	int e = VB_DEAD(s) || VB_DEAD(VB(pd, s->o.pd)) ? EIO : vb_engine->create_srq(c->h, VB(pd, s->o.pd)->h, init, &s->h);
	if (e) {
		free(s);
		VB_FAIL(e, NULL);
	}
	attr->max_wr = init->max_wr;
	attr->max_sge = init->max_sge;
	s->type = init->type;
	s->o.handle = s->num = init->srq_num;
	return &s->o;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *a)
{
	struct vrb_srq_init init = {};
	struct vb_srq *s = new_srq(pd->context, pd, a->srq_context);

	return s ? make(s, &init, &a->attr) : NULL;
}

struct ibv_srq *vb_create_srq_ex(struct ibv_context *x, struct ibv_srq_init_attr_ex *a)
{
	struct vrb_srq_init init = {.type = a->comp_mask & IBV_SRQ_INIT_ATTR_TYPE ? a->srq_type : IBV_SRQT_BASIC};

	if (a->comp_mask >= IBV_SRQ_INIT_ATTR_RESERVED)
		VB_FAIL(EOPNOTSUPP, NULL);
	if (!(a->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !a->pd)
		VB_FAIL(EINVAL, NULL);
	if ((a->comp_mask & IBV_SRQ_INIT_ATTR_XRCD && VB_LOST(xrcd, a->xrcd)) ||
	    (a->comp_mask & IBV_SRQ_INIT_ATTR_CQ && VB_LOST(cq, a->cq)))
		VB_FAIL(EIO, NULL);
	if (a->comp_mask & IBV_SRQ_INIT_ATTR_XRCD)
		init.xrcd = VB_H(xrcd, a->xrcd);
	if (a->comp_mask & IBV_SRQ_INIT_ATTR_CQ)
		init.cq = VB_H(cq, a->cq);
	if (a->comp_mask & IBV_SRQ_INIT_ATTR_TM) {
		init.max_num_tags = a->tm_cap.max_num_tags;
		init.max_ops = a->tm_cap.max_ops;
	}
	struct vb_srq *s = new_srq(x, a->pd, a->srq_context);
	return s ? make(s, &init, &a->attr) : NULL;
}

int vb_get_srq_num(struct ibv_srq *o, uint32_t *num)
{
	struct vb_srq *s = VB(srq, o);

	if (s->type != IBV_SRQT_XRC)
		return EINVAL;
	*num = s->num;
	return 0;
}

int ibv_modify_srq(struct ibv_srq *o, struct ibv_srq_attr *a, int mask)
{
	struct vb_srq *s = VB(srq, o);

	return vb_told(VB_DEAD(s) ? EIO : vb_engine->modify_srq(s->h, a, mask));
}

int ibv_query_srq(struct ibv_srq *o, struct ibv_srq_attr *a)
{
	struct vb_srq *s = VB(srq, o);

	return vb_told(VB_DEAD(s) ? EIO : vb_engine->query_srq(s->h, a));
}

int ibv_destroy_srq(struct ibv_srq *o)
{
	struct vb_srq *s = VB(srq, o);
	struct vb_context *c = VB_CONTEXT(o->context);

	if (!VB_DEAD(s)) {
		pthread_mutex_lock(&c->events);
		int e = vb_engine->destroy(s->h);
		pthread_mutex_unlock(&c->events);
		if (e)
			return vb_told(e);
		vb_wait(&o->mutex, &o->cond, &o->events_completed, &s->delivered);
	}
	free(s);
	return 0;
}

int vb_post_srq_recv(struct ibv_srq *o, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct vb_srq *s = VB(srq, o);

	if (!VB_DEAD(s))
		return vb_engine->post_srq_recv(s->h, wr, (void **)bad);
	*bad = wr;
	return EIO;
}

int vb_post_srq_ops(struct ibv_srq *o, struct ibv_ops_wr *wr, struct ibv_ops_wr **bad)
{
	struct vb_srq *s = VB(srq, o);

	if (!VB_DEAD(s))
		return vb_engine->post_srq_ops(s->h, wr, (void **)bad);
	*bad = wr;
	return EIO;
}

struct ibv_xrcd *vb_open_xrcd(struct ibv_context *x, struct ibv_xrcd_init_attr *a)
{
	const uint32_t needed = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
	struct vb_context *c = VB_CONTEXT(x);

	if (a->comp_mask >= IBV_XRCD_INIT_ATTR_RESERVED)
		VB_FAIL(EOPNOTSUPP, NULL);
	if ((a->comp_mask & needed) != needed)
		VB_FAIL(EINVAL, NULL);
	struct vb_xrcd *d = calloc(1, sizeof *d);
	if (!d)
		VB_FAIL(ENOMEM, NULL);
	d->o.context = x;
	d->gen = vb_gen(c);
	int e = VB_DEAD(d) ? EIO : vb_engine->open_xrcd(c->h, a->fd, a->oflags, &d->h);
	if (!e)
		return &d->o;
	free(d);
	VB_FAIL(e, NULL);
}

int vb_close_xrcd(struct ibv_xrcd *o)
{
	struct vb_xrcd *d = VB(xrcd, o);

	return vb_end(d);
}
