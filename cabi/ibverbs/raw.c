// Work queues, flow steering and counters.
#include "lib.h"

static int post_recv(struct ibv_wq *o, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct vb_wq *w = VB(wq, o);

	if (!VB_DEAD(w))
		return vb_engine->post_wq_recv(w->h, wr, (void **)bad);
	*bad = wr;
	return EIO;
}

struct ibv_wq *vb_create_wq(struct ibv_context *x, struct ibv_wq_init_attr *a)
{
	struct vb_context *c = VB_CONTEXT(x);
	struct vrb_wq_init init = {.type = a->wq_type, .max_wr = a->max_wr, .max_sge = a->max_sge, .pd = VB_H(pd, a->pd),
				   .cq = VB_H(cq, a->cq)};

	if (a->comp_mask >= IBV_WQ_INIT_ATTR_RESERVED)
		VB_FAIL(EOPNOTSUPP, NULL);
	if (a->comp_mask & IBV_WQ_INIT_ATTR_FLAGS)
		init.create_flags = a->create_flags;
	struct vb_wq *w = calloc(1, sizeof *w);
	if (!w)
		VB_FAIL(ENOMEM, NULL);
	init.context = w;
	w->gen = vb_gen(c);
	int lost = VB_LOST(pd, a->pd) || VB_LOST(cq, a->cq);
	int e = VB_DEAD(w) || lost ? EIO : vb_engine->create_wq(c->h, &init, &w->h);
	if (e) {
		free(w);
		VB_FAIL(e, NULL);
	}
	a->max_wr = init.max_wr;
	a->max_sge = init.max_sge;
	w->o = (struct ibv_wq){.context = x, .wq_context = a->wq_context, .pd = a->pd, .cq = a->cq, .wq_num = init.wq_num,
			       .handle = init.wq_num, .state = IBV_WQS_RESET, .wq_type = a->wq_type,
			       .post_recv = post_recv};
	pthread_mutex_init(&w->o.mutex, NULL);
	pthread_cond_init(&w->o.cond, NULL);
	return &w->o;
}

int vb_modify_wq(struct ibv_wq *o, struct ibv_wq_attr *a)
{
	struct vb_wq *w = VB(wq, o);

	if (a->attr_mask >= IBV_WQ_ATTR_RESERVED)
		return EINVAL;
	if (VB_DEAD(w))
		return EIO;
	int e = vb_engine->modify_wq(w->h, a->attr_mask, a->wq_state, a->curr_wq_state, a->flags, a->flags_mask);
	if (!e && a->attr_mask & IBV_WQ_ATTR_STATE)
		o->state = a->wq_state;
	return vb_told(e);
}

int vb_destroy_wq(struct ibv_wq *o)
{
	struct vb_wq *w = VB(wq, o);
	struct vb_context *c = VB_CONTEXT(o->context);

	if (!VB_DEAD(w)) {
		pthread_mutex_lock(&c->events);
		int e = vb_engine->destroy(w->h);
		pthread_mutex_unlock(&c->events);
		if (e)
			return vb_told(e);
		vb_wait(&o->mutex, &o->cond, &o->events_completed, &w->delivered);
	}
	free(w);
	return 0;
}

struct ibv_rwq_ind_table *vb_create_table(struct ibv_context *x, struct ibv_rwq_ind_table_init_attr *a)
{
	struct vb_context *c = VB_CONTEXT(x);
	uint32_t num;

	if (a->comp_mask >= IBV_CREATE_IND_TABLE_RESERVED || a->log_ind_tbl_size > 16 || !a->ind_tbl)
		VB_FAIL(EINVAL, NULL);
	struct vb_table *t = calloc(1, sizeof *t);
	void **wqs = calloc((size_t)1 << a->log_ind_tbl_size, sizeof *wqs);
	int e = t && wqs ? 0 : ENOMEM;
	for (size_t i = 0; !e && i < (size_t)1 << a->log_ind_tbl_size; i++) {
		wqs[i] = VB_H(wq, a->ind_tbl[i]);
		if (VB_LOST(wq, a->ind_tbl[i]))
			e = EIO;
	}
	if (!e)
		e = (t->gen = vb_gen(c)) != vb_generation ? EIO : vb_engine->create_ind_table(c->h, a->log_ind_tbl_size, wqs, &num, &t->h);
	free(wqs);
	if (e) {
		free(t);
		VB_FAIL(e, NULL);
	}
	t->o = (struct ibv_rwq_ind_table){.context = x, .ind_tbl_handle = num, .ind_tbl_num = num};
	return &t->o;
}

int vb_destroy_table(struct ibv_rwq_ind_table *o)
{
	struct vb_table *t = VB(table, o);

	return vb_end(t);
}

struct ibv_flow *vb_create_flow(struct ibv_qp *qp, struct ibv_flow_attr *a)
{
	struct vb_flow *f = calloc(1, sizeof *f);

	if (!f)
		VB_FAIL(ENOMEM, NULL);
	f->o.context = qp->context;
	f->gen = VB(qp, qp)->gen;
	int e = VB_DEAD(f) ? EIO : vb_engine->create_flow(VB(qp, qp)->h, a, &f->h);
	if (!e)
		return &f->o;
	free(f);
	VB_FAIL(e, NULL);
}

int vb_destroy_flow(struct ibv_flow *o)
{
	struct vb_flow *f = VB(flow, o);

	return vb_end(f);
}

struct ibv_flow_action *vb_create_action(struct ibv_context *x, struct ibv_flow_action_esp_attr *attr)
{
	struct vb_context *c = VB_CONTEXT(x);
	struct vb_action *a = calloc(1, sizeof *a);

	if (!a)
		VB_FAIL(ENOMEM, NULL);
	a->o.context = x;
	a->gen = vb_gen(c);
	int e = VB_DEAD(a) ? EIO : vb_engine->create_action_esp(c->h, attr, &a->h);
	if (!e)
		return &a->o;
	free(a);
	VB_FAIL(e, NULL);
}

int vb_modify_action(struct ibv_flow_action *o, struct ibv_flow_action_esp_attr *attr)
{
	struct vb_action *a = VB(action, o);

	return VB_DEAD(a) ? EIO : vb_engine->modify_action_esp(a->h, attr);
}

int vb_destroy_action(struct ibv_flow_action *o)
{
	struct vb_action *a = VB(action, o);

	return vb_end(a);
}

struct ibv_counters *vb_create_counters(struct ibv_context *x, struct ibv_counters_init_attr *attr)
{
	struct vb_context *c = VB_CONTEXT(x);

	if (attr && attr->comp_mask)
		VB_FAIL(EOPNOTSUPP, NULL);
	struct vb_counters *k = calloc(1, sizeof *k);
	if (!k)
		VB_FAIL(ENOMEM, NULL);
	k->o.context = x;
	k->gen = vb_gen(c);
	int e = VB_DEAD(k) ? EIO : vb_engine->create_counters(c->h, &k->h);
	if (!e)
		return &k->o;
	free(k);
	VB_FAIL(e, NULL);
}

int vb_destroy_counters(struct ibv_counters *o)
{
	struct vb_counters *k = VB(counters, o);

	return vb_end(k);
}

int vb_attach_counters(struct ibv_counters *o, struct ibv_counter_attach_attr *a, struct ibv_flow *flow)
{
	struct vb_counters *k = VB(counters, o);

	if (a->comp_mask)
		return EOPNOTSUPP;
	// NULL describes the counters of rules that are made afterwards.
	if (flow && VB_DEAD(VB(flow, flow)))
		return EIO;
	return VB_DEAD(k) ? EIO : vb_engine->attach_counters(k->h, VB_H(flow, flow), a->counter_desc, a->index);
}

int vb_read_counters(struct ibv_counters *o, uint64_t *values, uint32_t count, uint32_t flags)
{
	struct vb_counters *k = VB(counters, o);

	return VB_DEAD(k) ? EIO : vb_engine->read_counters(k->h, values, count, flags);
}
