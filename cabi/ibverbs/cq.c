// Completion queues.
#include "lib.h"

static struct vb_cq *new_cq(struct ibv_context *x, struct ibv_comp_channel *ch, void *cq_context)
{
	struct vb_cq *q = calloc(1, sizeof *q);

	if (!q)
		VB_FAIL(ENOMEM, NULL);
	q->o.context = x;
	q->o.channel = ch;
	q->o.cq_context = cq_context;
	q->gen = vb_gen(VB_CONTEXT(x));
	vb_signals();
	pthread_mutex_init(&q->o.mutex, NULL);
	pthread_cond_init(&q->o.cond, NULL);
	pthread_mutex_init(&q->poll, NULL);
	return q;
}

static void count_channel(struct ibv_context *x, struct ibv_comp_channel *ch, int by)
{
	if (!ch)
		return;
	pthread_mutex_lock(&x->mutex);
	ch->refcnt += by;
	pthread_mutex_unlock(&x->mutex);
}

// make creates the engine's part. On failure the object is freed.
static int make(struct vb_cq *q, struct vrb_cq_init *init)
{
	struct ibv_context *x = q->o.context;

	init->context = q;
	init->channel = VB_H(channel, q->o.channel);
	int e = VB_DEAD(q) || (q->o.channel && !init->channel) ? EIO : vb_engine->create_cq(VB_CONTEXT(x)->h, init, &q->h);
	if (e) {
		free(q->wcs);
		free(q);
		return e;
	}
	q->o.cqe = init->cqe;
	count_channel(x, q->o.channel, 1);
	return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *x, int cqe, void *cq_context, struct ibv_comp_channel *ch, int vector)
{
	struct vrb_cq_init init = {.cqe = cqe, .comp_vector = vector};
	struct vb_cq *q = new_cq(x, ch, cq_context);

	if (!q)
		return NULL;
	int e = make(q, &init);
	if (e)
		VB_FAIL(e, NULL);
	return (struct ibv_cq *)q;
}

struct ibv_cq_ex *vb_create_cq_ex(struct ibv_context *x, struct ibv_cq_init_attr_ex *a)
{
	if (a->comp_mask & ~(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD))
		VB_FAIL(EOPNOTSUPP, NULL);
	if (a->wc_flags & ~(uint64_t)IBV_CREATE_CQ_SUP_WC_FLAGS)
		VB_FAIL(EOPNOTSUPP, NULL);
	struct vrb_cq_init init = {.cqe = a->cqe > INT32_MAX ? INT32_MAX : (int)a->cqe, .comp_vector = a->comp_vector,
				   .wc_flags = a->wc_flags};
	if (a->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS)
		init.flags = a->flags;
	if (a->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) {
		if (a->parent_domain && VB_DEAD(VB(pd, a->parent_domain)))
			VB_FAIL(EIO, NULL);
		init.parent_domain = VB_H(pd, a->parent_domain);
	}
	struct vb_cq *q = new_cq(x, a->channel, a->cq_context);
	if (!q)
		return NULL;
	q->alone = init.flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
	q->wcs = calloc(VB_PREFETCH, sizeof *q->wcs);
	if (!q->wcs) {
		free(q);
		VB_FAIL(ENOMEM, NULL);
	}
	vb_fill_cq_ex(q);
	int e = make(q, &init);
	if (e)
		VB_FAIL(e, NULL);
	return &q->o;
}

int ibv_resize_cq(struct ibv_cq *o, int cqe)
{
	struct vb_cq *q = VB(cq, o);
	int got = o->cqe;
	int e = VB_DEAD(q) ? EIO : vb_engine->resize_cq(q->h, cqe, &got);

	if (!e)
		o->cqe = got;
	return vb_told(e);
}

int vb_modify_cq(struct ibv_cq *o, struct ibv_modify_cq_attr *a)
{
	struct vb_cq *q = VB(cq, o);

	if (VB_DEAD(q))
		return vb_told(EIO);
	return vb_told(vb_engine->moderate_cq(q->h, a->attr_mask, a->moderate.cq_count, a->moderate.cq_period));
}

int ibv_destroy_cq(struct ibv_cq *o)
{
	struct vb_cq *q = VB(cq, o);
	struct vb_context *c = VB_CONTEXT(o->context);

	if (!VB_DEAD(q)) {
		pthread_mutex_lock(&c->events);
		int e = vb_engine->destroy(q->h);
		pthread_mutex_unlock(&c->events);
		if (e)
			return vb_told(e);
		vb_wait(&o->mutex, &o->cond, &o->comp_events_completed, &q->comp_delivered);
		vb_wait(&o->mutex, &o->cond, &o->async_events_completed, &q->async_delivered);
	}
	count_channel(o->context, o->channel, -1);
	free(q->wcs);
	free(q);
	return 0;
}

int vb_poll_cq(struct ibv_cq *o, int count, struct ibv_wc *wcs)
{
	struct vb_cq *q = VB(cq, o);
	int taken = 0;

	if (VB_DEAD(q))
		return -1;
	if (__builtin_expect(q->wcs != NULL, 0))
		taken = vb_take_fetched(q, count, wcs);
	if (taken == count)
		return taken;
	int n = vb_engine->poll(q->h, count - taken, wcs + taken);
	return n < 0 && taken ? taken : n + taken;
}

// vb_req_notify_cq does not lock: a program may call it between start_poll and end_poll.
int vb_req_notify_cq(struct ibv_cq *o, int solicited_only)
{
	struct vb_cq *q = VB(cq, o);

	if (VB_DEAD(q))
		return EIO;
	return vb_engine->req_notify(q->h, solicited_only, __atomic_load_n(&q->count, __ATOMIC_RELAXED) > 0);
}
